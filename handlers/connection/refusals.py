"""Decides how long an upstream may refuse a stream before that is final, and when it is asked again meanwhile.

A 401, 403 or 404 may pass: a key is being rotated, a gateway restarts, a deployment is half done. So the refusals in a
row are counted from the first of them on, in the record that all functions of the stream read (`backoff.Rest`), and the
upstream is asked again, at growing distances with some chance in them, until the profile's `reject_after` is over.

    reject_after = 300
      0 s  403    asked again at 1.2 s, final at 300 s
    1.2 s  403    asked again at 3.9 s, final at 300 s
     ...
    300 s  403    final

Whatever else the upstream does ends the row: it answers with a stream, fails otherwise, or is not reached. So does a
POST, for whoever sends it has reason to think that the cause is mended. While another connection lives the row begins
anew with each refusal: as long as events come, no refusal ends the stream.

It knows no clock and no profile: instants and limits are passed in. Invariant: a refusal is final only if the upstream
has refused, and nobody was connected, for all of `reject_after`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from handlers.connection.backoff import Pace, Rest
from handlers.connection.lease import Lease

# Unless the profile has a pace of its own.
PACE = Pace(start_s=1, factor=2, max_s=30)
# How much longer than its pace a rest may be by chance, so that streams that were refused together do not stay in step.
JITTER = 0.5


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal, one of a row that began at `since_ms` and is final `limit_ms` later."""

    since_ms: int
    limit_ms: int


def since_ms(before: Rest, lease: Lease, connected_ms: int | None, now_ms: int) -> int:
    """Returns since when the upstream has refused, if it refuses a connection now; `before` is what was known.

    `lease` is that of the claim; somebody was known to be connected until `connected_ms`.
    """
    first_ms = before.refused_since_ms
    if not first_ms or first_ms < lease.started_at_ms:
        return now_ms
    return min(max(first_ms, connected_ms or 0), now_ms)


def refused(before: Rest, refusal: Refusal, now_ms: int, pace: Pace, jitter: float, asked_s: float | None) -> Rest:
    """Returns what is known after one more refusal, which was not final; `jitter` is from 0 to 1.

    The last try is not put off beyond the instant from which on it is final, unless the upstream asks for that in
    Retry-After.
    """
    # Another connection may have been refused meanwhile; the later row has seen more of what ends one.
    since = max(refusal.since_ms, before.refused_since_ms)
    final_ms = since + refusal.limit_ms
    failures = before.failures + 1 if before.kind == "refused" else 1
    rest_ms = min(round(pace.rest_ms(failures) * (1 + JITTER * jitter)), max(final_ms - now_ms, 0))
    asked_ms = max(round(1000 * (asked_s or 0)), before.reconnection_ms)
    until_ms = now_ms + max(asked_ms, rest_ms)
    return Rest("refused", failures, until_ms, before.reconnection_ms, refused_since_ms=since, final_ms=final_ms)


def over(before: Rest) -> Rest:
    """Returns what is known once something else than a refusal has come."""
    return replace(before, kind="", failures=0, refused_since_ms=0, final_ms=0)

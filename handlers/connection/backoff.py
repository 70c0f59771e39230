"""Decides how long a stream backs off after its connection failed, and how that time grows.

Each of four kinds of failure has its own pace: `network` (nothing was answered, or the connection broke), `http` (5xx,
408 or 425), `throttled` (429 or 420), `refused` (any other answer that is not a stream, and a request that cannot be
made). Invariant: a back-off is never shorter than what the upstream requested, in Retry-After or as its reconnection
time, and failures in a row never shorten it.

A refusal may pass: a key is being rotated, a gateway shows a maintenance page. So the upstream is tried again, at
growing intervals, until the profile's `reject_after` has passed since the first refusal in a row:

    reject_after = 300
      0 s  403    asked again at 1.2 s, final at 300 s
    1.2 s  403    asked again at 3.9 s, final at 300 s
     ...
    300 s  403    final

Any other answer of the upstream ends the row, and so does a POST: its sender probably fixed the cause. Invariant: a
refusal is final only if the upstream has refused, and nobody was connected, for all of `reject_after`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

from handlers.connection.lease import Lease
from handlers.values import dataclass

FailureKind = Literal["network", "http", "throttled", "refused"]
KINDS: tuple[FailureKind, ...] = ("network", "http", "throttled", "refused")
# How much longer than the time for a connect a try holds the other lane back.
TRY_MS = 5_000


@dataclass(frozen=True, slots=True)
class Pace:
    """The first back-off, what each further failure in a row adds to it or multiplies it by, and its limit."""

    start_s: float
    step_s: float = 0.0
    factor: float = 1.0
    max_s: float = 3600.0

    def backoff_ms(self, failures: int) -> int:
        """The back-off after this many failures in a row, from 1 on."""
        # A hundred doublings exceed every limit and still fit a float.
        times = min(failures - 1, 100)
        grown_s: float = self.start_s * self.factor**times + self.step_s * (failures - 1)
        return round(min(grown_s, self.max_s) * 1000)


@dataclass(frozen=True, slots=True)
class Backoff:
    """A stream's recorded back-off: how many failures in a row, of which kind, and until when the stream waits.

    `reconnection_ms` is what the upstream requested before each new connection, as the profile bounds it. `same_ends`
    is how many connections in a row ended as `same_end` says (`failures.py`), 0 if the last one did not.
    `refused_since_ms` is when the first refusal in a row came, `final_ms` from when on the next one is final; both are
    0 if the last connection was not refused. `tried_ms` is when a connection took the try after the back-off: no other
    one tries until `until_ms`, whatever comes of it. It is 0 while the back-off still lasts.
    """

    kind: str = ""
    failures: int = 0
    until_ms: int = 0
    reconnection_ms: int = 0
    same_ends: int = 0
    same_end: str = ""
    refused_since_ms: int = 0
    final_ms: int = 0
    tried_ms: int = 0


NO_BACKOFF = Backoff()
# A connection that was open for this long has shown that the upstream accepts connections.
ACCEPTED_AFTER_MS = 1_000


class BackoffChange(NamedTuple):
    """What is recorded, and what it replaces."""

    before: Backoff
    after: Backoff


def backoff_after_open(held: Backoff, open_ms: int) -> Backoff:
    """Returns what replaces `held` once a connection has been open for `open_ms`: the row of failures is over.

    The connection's end would be too late for this: its successor has changed the record by then, and the row of
    failures would never end.
    """
    if not held.failures or open_ms < ACCEPTED_AFTER_MS:
        return held
    return without_refusals(held)


def backoff_after_failure(
    before: Backoff, kind: FailureKind, now_ms: int, pace: Pace | None, retry_after_s: float | None
) -> Backoff:
    """Returns the back-off after one more failure; without a pace, only what the upstream requested counts."""
    failures = before.failures + 1 if before.kind == kind else 1
    wait_ms = pace.backoff_ms(failures) if pace is not None else 0
    asked_ms = round(retry_after_s * 1000) if retry_after_s is not None else 0
    until_ms = now_ms + max(wait_ms, asked_ms, before.reconnection_ms)
    return Backoff(kind, failures, until_ms, before.reconnection_ms)


# --- refusals -------------------------------------------------------------------------------------------------------

# Unless the profile has a pace of its own.
REFUSAL_PACE = Pace(start_s=1, factor=2, max_s=30)
# A back-off is up to this much longer than its pace, by chance, so that streams refused together get out of step.
JITTER = 0.5


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal, one of a row that began at `since_ms` and is final `limit_ms` later."""

    since_ms: int
    limit_ms: int


def refused_since_ms(before: Backoff, lease: Lease, connected_ms: int | None, now_ms: int) -> int:
    """Returns since when the upstream has refused, given that it refuses now; `before` is the record until now.

    `lease` is that of the claim; a connection was known to be open until `connected_ms`.
    """
    first_ms = before.refused_since_ms
    if not first_ms or first_ms < lease.started_at_ms:
        return now_ms
    return min(max(first_ms, connected_ms or 0), now_ms)


def backoff_after_refusal(
    before: Backoff, refusal: Refusal, now_ms: int, pace: Pace, jitter: float, asked_s: float | None
) -> Backoff:
    """Returns the back-off after one more refusal that was not final; `jitter` is from 0 to 1.

    The last try comes no later than the instant at which a refusal is final, unless the upstream's Retry-After is
    later.
    """
    # Another connection may have been refused meanwhile. The row that began later counts: something ended the earlier
    # one.
    since = max(refusal.since_ms, before.refused_since_ms)
    final_ms = since + refusal.limit_ms
    failures = before.failures + 1 if before.kind == "refused" else 1
    backoff_ms = round(pace.backoff_ms(failures) * (1 + JITTER * jitter))
    if final_ms > now_ms:  # it may be past, if the refusal is not final because another connection is open
        backoff_ms = min(backoff_ms, final_ms - now_ms)
    asked_ms = max(round(1000 * (asked_s or 0)), before.reconnection_ms)
    until_ms = now_ms + max(asked_ms, backoff_ms)
    return Backoff("refused", failures, until_ms, before.reconnection_ms, refused_since_ms=since, final_ms=final_ms)


def without_refusals(before: Backoff) -> Backoff:
    """Returns the back-off once something other than a refusal has come."""
    return replace(before, kind="", failures=0, refused_since_ms=0, final_ms=0)

"""Decides how long a stream's upstream is left alone after a connection failed, and how that grows.

Four kinds of failure have their own pace: `network` (nothing was answered, or the connection broke), `http` (an answer
that a retry may better), `throttled` (429 or 420), `refused` (401, 403 or 404, `refusals.py`). It knows no clock:
instants are passed in. Invariant: a rest is never shorter than what the upstream asked for, in Retry-After or as its
reconnection time, and failures in a row never shorten it.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

FailureKind = Literal["network", "http", "throttled", "refused"]
KINDS: tuple[FailureKind, ...] = ("network", "http", "throttled", "refused")
# How long after it may connect an upstream has answered, or the next lane tries all the same.
TRY_MS = 5_000


@dataclass(frozen=True, slots=True)
class Pace:
    """The first rest, what is added to or multiplied with it at each further failure in a row, and its limit."""

    start_s: float
    step_s: float = 0.0
    factor: float = 1.0
    max_s: float = 3600.0

    def rest_ms(self, failures: int) -> int:
        """The rest after this many failures in a row, from 1 on."""
        # Beyond a hundred doublings every limit is reached, and a float is not.
        times = min(failures - 1, 100)
        grown_s: float = self.start_s * self.factor**times + self.step_s * (failures - 1)
        return round(min(grown_s, self.max_s) * 1000)


@dataclass(frozen=True, slots=True)
class Rest:
    """What is known of a stream's failures: how many of which kind in a row, and until when it is left alone.

    `reconnection_ms` is what the upstream asked for before each new connection, as the profile bounds it. `same_ends`
    is how many connections in a row came to the end `same_end` (`stuck.py`), 0 where the last came to none such.
    `refused_since_ms` is when the first of the refusals in a row came, `final_ms` from when on the next of them is
    final; 0 where the last connection was not refused. `tried_ms` is when somebody took the try after the rest: until
    `until_ms` no other does, however the try ends. It is 0 where the rest is one that is owed.
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


NO_REST = Rest()
# A connection that was open for so long has shown that the upstream can be connected to.
LIVED_MS = 1_000


class RestChange(NamedTuple):
    """What is written down in place of what."""

    before: Rest
    after: Rest


def outlived(held: Rest, open_ms: int) -> Rest:
    """What is written in place of `held` by a connection that has been open for so long: the row of failures is over.

    Were it to wait for its end, its successor would have failed or been answered before, and the row would never end.
    """
    if not held.failures or open_ms < LIVED_MS:
        return held
    return replace(held, kind="", failures=0, refused_since_ms=0, final_ms=0)


def failed(before: Rest, kind: FailureKind, now_ms: int, pace: Pace | None, retry_after_s: float | None) -> Rest:
    """What is known after one more failure; without a pace only what the upstream asked for makes a rest."""
    failures = before.failures + 1 if before.kind == kind else 1
    wait_ms = pace.rest_ms(failures) if pace is not None else 0
    asked_ms = round(retry_after_s * 1000) if retry_after_s is not None else 0
    until_ms = now_ms + max(wait_ms, asked_ms, before.reconnection_ms)
    return Rest(kind, failures, until_ms, before.reconnection_ms)

"""The effects of the manager: what a connection requests.

All are plain data, so that traces of them can be compared. Each effect's docstring names the input that answers it;
most have none.
"""

from __future__ import annotations

from dataclasses import field

from handlers.connection.backoff import BackoffChange
from handlers.connection.liveness import Silence
from handlers.framing.events import StreamEvent
from handlers.values import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """Raise the stream's fencing token; answered by Claimed, ClaimRefused or BackoffOwed.

    `after_fence` is the last token that this invocation has claimed, 0 if this is its first. `backoff_until_ms` is the
    end of the back-off as the invocation knows it; if another one is recorded, the claim is refused. If `expires_at_ms`
    is not 0, the claim also takes the turn until then, provided that no connection is open and none has claimed since
    `after_fence`; the lease in the answer shows whether it did.

    If `try_until_ms` is not 0, the claim takes the try after a back-off that is over: no other claims until then, or
    until the record says how the try ended. If it `has_backed_off`, the claim is also refused when a connection newer
    than `after_fence` is connected, or when an execution has let go of the stream meanwhile.
    """

    after_fence: int = 0
    backoff_until_ms: int = 0
    expires_at_ms: int = 0
    try_until_ms: int = 0
    has_backed_off: bool = False


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Answered by LeaseRead."""


@dataclass(frozen=True, slots=True)
class Open:
    """Open the upstream at the cursor; answered by Opened or Closed, then Chunks and one Closed.

    If an earlier answer refused the cursor, it is closed first, without a Closed.
    """

    cursor: str | None


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message on the upstream's socket, in one wire frame with this opcode; it may hold a secret."""

    opcode: int
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TakeTurn:
    """Where two connections are forbidden: mark this one as connected before it opens, unless another is.

    Answered by LeaseRead. The turn ends at `expires_at_ms` unless the connection is answered and renews it. `over` is a
    connection that is known to be over; 0 for none.
    """

    fence: int
    expires_at_ms: int
    over: int = 0


@dataclass(frozen=True, slots=True)
class RenewTurn:
    """Extend the turn until `expires_at_ms` while the upstream has not answered; answered by LeaseRead."""

    fence: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class Write:
    """Store the events, each once, in order; answered by Written or StoreFailed. `first` numbers the first of them.

    Once they are stored, so is everything that came until `came_ms`; None means until the last of them was received.
    """

    fence: int
    first: int
    events: tuple[StreamEvent, ...]
    came_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GoToLog:
    """Store the stream's events in a log from now on, whichever connection reads them; stored ones stay as they are."""

    fence: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The ledger's record of this connection; `closed_ms` and `ended_by` are None and "" while it is open.

    `resumed` is whether it requested what came since a cursor, `reach_ms` how far back that goes at most. Everything
    until `since_ms` was known when it requested that; `live_ms` is when it has caught up with the upstream, `forgot_ms`
    when the upstream reported that it no longer has what came after the cursor. The connection is known good until
    `seen_ms`; `heard_ms` is when the upstream last sent something, None before its answer. `saved_ms` is when this
    record was written, `deadline_ms` when its function is killed: no connection outlives that. `conflicts` counts those
    of `stored` and `duplicates` whose key was known with another body, `left_out` the events that the profile does not
    keep, each as often as it came. `error`, `http_status` and `detail` say how it ended, as its `Outcome` does.
    `event_ms` is when the stream's last new event came, on whichever connection, `pause_ms` the longest pause before
    one, and `expect_ms` what the profile expects (`liveness.py`). `stopped_ms` is when the stop before its start was
    requested, `started_ms` when that start was requested; None if no stop was. `missing` counts the losses that the
    upstream announced on it, and the gaps that it could not request in full. `spending` is what the stream has stored
    of its daily budget (`spending.py`), "" if it has none; `counted` are the events and bytes that this connection has
    stored, for the budgets that it shares with other streams. `dropped_from_ms` is when, at the earliest, the first of
    the known keys happened that came in a row with other bodies, 0 if none did.
    """

    fence: int
    claimed_ms: int
    opened_ms: int | None = None
    seen_ms: int = 0
    closed_ms: int | None = None
    ended_by: str = ""
    frames: int = 0
    bytes: int = 0
    stored: int = 0
    duplicates: int = 0
    dead_lettered: int = 0
    unterminated_bytes: int = 0
    resumed: bool = False
    reach_ms: int | None = None
    since_ms: int | None = None
    live_ms: int | None = None
    forgot_ms: int | None = None
    conflicts: int = 0
    left_out: int = 0
    saved_ms: int | None = None
    deadline_ms: int | None = None
    heard_ms: int | None = None
    error: str = ""
    http_status: int = 0
    detail: str = ""
    event_ms: int | None = None
    pause_ms: int | None = None
    expect_ms: int | None = None
    stopped_ms: int | None = None
    started_ms: int | None = None
    missing: int = 0
    spending: str = ""
    counted: tuple[int, int] = (0, 0)
    dropped_from_ms: int = 0

    @property
    def silence(self) -> Silence:
        """The record's part about pauses between new events."""
        return Silence(self.event_ms, self.pause_ms, self.expect_ms)


@dataclass(frozen=True, slots=True)
class MarkConnected:
    """Record that this connection is connected, and that it counts as dead at `expires_at_ms` unless it renews.

    That ends its try: the same write replaces the back-off by `backoff`, unless another one was recorded since.
    """

    fence: int
    expires_at_ms: int
    progress: Progress
    backoff: BackoffChange | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Renew the lease to `expires_at_ms`, with the record and the cursor, unless that is None; answered by LeaseRead.

    Nothing is written if a newer connection is connected; the answer shows that. The same write replaces the back-off
    by `backoff`, unless another one was recorded since.
    """

    cursor: str | None
    progress: Progress
    expires_at_ms: int
    backoff: BackoffChange | None = None


@dataclass(frozen=True, slots=True)
class SaveRecord:
    """Write the connection's record into the ledger."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class ReplaceCursor:
    """Write the record, which says why, into the ledger, then save `cursor` in place of the one that was refused.

    If the ledger does not take the record, the cursor stays: the next connection sends it and is refused too.
    """

    cursor: str
    progress: Progress


@dataclass(frozen=True, slots=True)
class CloseUpstream:
    """Stop reading and close the connection; the chunks read before still follow, then Closed."""


@dataclass(frozen=True, slots=True)
class Release:
    """Record that this connection's upstream connection is closed, with its record as it ends; answered by LeaseRead.

    The same write saves its cursor, unless that is None or a newer connection is connected. It saves `backoff`, the
    back-off after it, unless a stop is requested, or another connection has claimed or recorded another back-off since.
    `is_relieved` says that a newer connection is known to be connected: then only the mark is written.
    """

    cursor: str | None
    progress: Progress
    backoff: BackoffChange | None = None
    is_relieved: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the function ends: `error` names a class of handlers/errors.py to raise, or is "" to return `status`.

    `http_status` is the status of an answer that was not a stream, else 0. `detail` is the part of `message` that adds
    to the ledger's word for the end; None for all of it.
    """

    error: str
    status: str
    message: str
    retry_after_s: float | None = None
    http_status: int = 0
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """Return or raise."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class RecordGaps:
    """Record the gaps that the ledger shows by now; a connection that was silent for `dead_after_ms` counts as killed.

    `again` is whether this connection has recorded an open gap before: that one may be delivered by now.
    """

    dead_after_ms: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class RecordLoss:
    """Record that the upstream announced a loss of events in [from_ms, to_ms).

    `number` counts the losses announced on this connection, `count` the lost events.
    """

    fence: int
    number: int
    from_ms: int
    to_ms: int
    cause: str
    count: int | None = None


Effect = (
    Claim
    | Open
    | Send
    | TakeTurn
    | RenewTurn
    | MarkConnected
    | ReadLease
    | Heartbeat
    | Write
    | GoToLog
    | SaveRecord
    | ReplaceCursor
    | CloseUpstream
    | Release
    | RecordGaps
    | RecordLoss
    | Finish
)

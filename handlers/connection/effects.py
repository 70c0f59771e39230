"""The effects of the manager: what a connection requests, all plain data, so that a trace of them can be compared.

Each names the input that answers it; most have none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from handlers.connection.backoff import RestChange
from handlers.connection.quiet import Silence
from handlers.framing.events import StreamEvent


@dataclass(frozen=True, slots=True)
class Claim:
    """Raise the stream's fencing token; answered by Claimed, ClaimRefused or RestOwed.

    `after_fence` is the last token that this invocation has claimed, 0 where this is its first. `rest_until_ms` is the
    end of the back-off as far as the invocation knows; where another one is recorded, the claim is refused. Where
    `expires_at_ms` is not 0, it takes the turn as well, until then, if nobody is connected and nobody has claimed since
    `after_fence`; the answer's lease says so.

    Where `try_until_ms` is not 0, it takes the try after a back-off that is over: nobody else claims until then, or
    until the record says how the try has ended. Where it `has_rested`, the claim is also refused if a connection
    newer than `after_fence` is connected, or if an execution has let go of the stream meanwhile.
    """

    after_fence: int = 0
    rest_until_ms: int = 0
    expires_at_ms: int = 0
    try_until_ms: int = 0
    has_rested: bool = False


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Answered by LeaseRead."""


@dataclass(frozen=True, slots=True)
class Open:
    """Open the upstream at the cursor; answered by Opened or Closed, then Chunks and one Closed.

    An answer that was opened before, and refused the cursor, is closed without a Closed.
    """

    cursor: str | None


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message on the upstream's socket, in one wire frame with this opcode; it may hold a secret."""

    opcode: int
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TakeTurn:
    """Where two are forbidden: mark this one as connected before it opens, unless another is; answered by LeaseRead.

    The turn ends at `expires_at_ms` unless the connection is answered and renews. Connection `over` is known to be
    over; 0 for none.
    """

    fence: int
    expires_at_ms: int
    over: int = 0


@dataclass(frozen=True, slots=True)
class RenewTurn:
    """Let the turn last until `expires_at_ms`, while the upstream keeps it waiting; answered by LeaseRead."""

    fence: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class Write:
    """Store the events, each once, in order; answered by Written or StoreFailed. `first` numbers the first of them."""

    fence: int
    first: int
    events: tuple[StreamEvent, ...]


@dataclass(frozen=True, slots=True)
class GoToLog:
    """Store the stream's events in a log from now on, whoever brings them; what was stored before stays as it is."""

    fence: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The ledger's record of this connection; `closed_ms` and `ended_by` are None and "" while it is open.

    `resumed` is whether it asked the upstream for what came since a cursor, `reach_ms` how far back that goes at most.
    `since_ms` is until when all was known when it asked, `live_ms` when it has caught up with the upstream; `forgot_ms`
    is when the upstream said that it no longer has what came after the cursor.
    `seen_ms` is until when it is known good, `heard_ms` when the upstream last sent something, None before its answer;
    `saved_ms` is when this record was written, `deadline_ms` when its function is killed: no connection outlives that.
    `conflicts` are those of `stored` and `duplicates` whose key was known with another body, `left_out` those that the
    profile does not keep, each as often as it came. `error`, `http_status` and
    `detail` say how it ended, as its `Outcome` does. `event_ms` is when the stream's last new event came, on whichever
    connection, `pause_ms` the longest pause before one, and `expect_ms` what the profile expects (`quiet.py`).
    `stopped_ms` is since when a stop was requested before the start that it follows, `started_ms` when that start was
    requested; None where no stop was. `missing` are the losses that the upstream announced on it, and the gaps of which
    it could not ask for all that came in them.
    `spending` is what the stream has stored in a day beside its budget (`spending.py`), "" where it has none; `counted`
    are the events and bytes that this connection has stored, for the budgets that it shares.
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

    @property
    def silence(self) -> Silence:
        """What it says of the pauses between new events."""
        return Silence(self.event_ms, self.pause_ms, self.expect_ms)


@dataclass(frozen=True, slots=True)
class MarkConnected:
    """Record that this connection is connected, and that it counts as dead at `expires_at_ms` unless it renews.

    That ends its try: the same write replaces the back-off by `rest`, unless others have recorded another since.
    """

    fence: int
    expires_at_ms: int
    progress: Progress
    rest: RestChange | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Renew the lease to `expires_at_ms`, with the record and the cursor, unless that is None; answered by LeaseRead.

    Nothing is written where a newer connection is connected; the answer says so. The same write replaces the back-off
    by `rest`, unless others have recorded another since.
    """

    cursor: str | None
    progress: Progress
    expires_at_ms: int
    rest: RestChange | None = None


@dataclass(frozen=True, slots=True)
class SaveRecord:
    """Write the connection's record into the ledger."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class ReplaceCursor:
    """Write the record, which says why, into the ledger, then save `cursor` in place of the one that was refused.

    Where the ledger does not take the record, the cursor stays: the next connection sends it and is refused too.
    """

    cursor: str
    progress: Progress


@dataclass(frozen=True, slots=True)
class CloseUpstream:
    """Stop reading and close the connection; the chunks read before still follow, then Closed."""


@dataclass(frozen=True, slots=True)
class Release:
    """Record that this connection's upstream connection is closed, with its record as it ends; answered by LeaseRead.

    The same write saves its cursor, unless that is None or a newer connection is connected, and `rest`, the back-off
    after it, unless a stop is requested, or others have claimed or recorded another back-off since. `is_relieved` says
    that a newer connection is known to be connected: then only the mark is left to write.
    """

    cursor: str | None
    progress: Progress
    rest: RestChange | None = None
    is_relieved: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the function ends: `error` names a class of handlers/errors.py to raise, or is "" to return `status`.

    `http_status` is the status of an answer that was no stream, else 0. `detail` is the part of `message` that the
    ledger's word for the end does not say already; None is the whole.
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
    """Record the gaps that the ledger shows by now; a connection silent for `dead_after_ms` counts as killed.

    `again` is whether this connection has recorded an open gap before: by now it may be delivered.
    """

    dead_after_ms: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class RecordLoss:
    """Record that the upstream announced a loss of events in [from_ms, to_ms).

    `number` counts the losses that it announced, `count` the events.
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


MOST_CHARACTERS = 300


def bounded(text: str) -> str:
    """Returns a phrase for people as it may be shown: bounded, on one line, and every character of it visible.

    It is written into the ledger and shown by the API and in a terminal, so no control character may move a cursor
    there, and no length may fill an item. A line end becomes `\\n`; the end of a longer one becomes an ellipsis.
    """
    visible = "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text[: MOST_CHARACTERS + 1]
    )
    return visible if len(visible) <= MOST_CHARACTERS else visible[: MOST_CHARACTERS - 1] + "…"

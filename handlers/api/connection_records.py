"""The records of one stream as the control API reads them, and the state of each connection.

A connection without a recorded end is in one of three states. It is *open* while its function is known to live: until
it was silent for longer than `dead_after_ms`, or, for the holder, until its lease ends if that is later. Then it is
*unheard*: its function may be killed, paused, or unable to write, and it is impossible to know which. It is *over* once
Lambda must have ended its function, or once that function has made another connection.

    claimed 12:00:00, its function killed by Lambda at 12:15:00 at the latest
    last saved 12:03:10, silent since       open until 12:03:30
    nothing more                            unheard: a function that runs is never called killed
    12:15:20                                over: "unrecorded", because its end was never written

Invariant: the state of a connection follows only from the records and the instant; one that may run is never over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from handlers.connection.backoff import Backoff
from handlers.connection.effects import Progress
from handlers.connection.epochs import NO_EPOCH, Epoch
from handlers.connection.evidence import UNRECORDED
from handlers.connection.gap_record import Gap, Repair
from handlers.connection.lease import Lease
from handlers.connection.spending import Spending, spending_of
from handlers.values import dataclass

# It is unknown yet how the connection ended, or whether it did.
UNHEARD = "unheard"
# The ends after which no connection should be open.
OVER = ("stopped", "ended")
# Lambda's own limit, for the record of a release that wrote no deadline.
LONGEST_MS = 900_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection(Progress):
    """A connection's record, with the function that wrote it; `opened_ms` is None if it was never answered.

    Beside others in a group it is known good only until `lag_ms` before its function's heartbeat, though all came.
    """

    lane: str
    execution: str
    request_id: str
    lag_ms: int = 0

    @property
    def wrote_ms(self) -> int:
        """When its function last wrote something."""
        return max(self.seen_ms, self.saved_ms or 0)

    @property
    def last_ms(self) -> int:
        """Until when it is known to have been connected, or to have tried."""
        return self.seen_ms if self.closed_ms is None else self.closed_ms

    @property
    def is_rejected(self) -> bool:
        """Whether it ended its execution, because another try cannot help."""
        return self.error in ("StreamRejected", "InvalidRequest")


@dataclass(frozen=True, slots=True)
class Records:
    """A stream's records in the control table; `connections` and `losses` are the newest, in any order.

    A loss is a gap that the upstream announced: events of it may be missing although a connection was open. `repairs`
    are those of the newest gaps that are written down, each beside its gap. `is_all` is whether there is no older
    connection than these; those from before `kept_since_ms` may have expired. Losses from before `losses_since_ms` are
    not among these. `damage` names the attributes of the lease that cannot be read. `group` is the one in which it
    shares a function, "" for none, and `group_size` how many streams share it. `epoch` is the newest of its keys,
    `logged_ms` when its log was last appended to, 0 if it has none or that was not read. `was_answered` is whether any
    connection was. `storage_form` is how its events are stored, in the words of the rates. By its profile the upstream
    goes back `upstream_keeps_ms`, 0 if unknown, and is requested only once if `is_once`.
    """

    lease: Lease
    cursor: str | None
    cursor_saved_ms: int | None
    connections: Sequence[Connection]
    losses: Sequence[Gap] = ()
    rest: Backoff = field(default_factory=Backoff)
    is_all: bool = True
    kept_since_ms: int = 0
    damage: tuple[str, ...] = ()
    group: str = ""
    group_size: int = 1
    epoch: Epoch = NO_EPOCH
    logged_ms: int = 0
    was_answered: bool = False
    losses_since_ms: int = 0
    repairs: Sequence[tuple[Gap, Repair]] = ()
    storage_form: str = "items"
    upstream_keeps_ms: int = 0
    is_once: bool = False

    @property
    def spending(self) -> Spending | None:
        """Returns what the newest connection that counts recorded about the stream's budget; None if nothing."""
        newest = sorted(self.connections, key=lambda one: -one.fence)
        return next((spending_of(one.spending) for one in newest if one.spending), None)


class Connections:
    """The connections of one stream at one instant, in the order of their fencing tokens."""

    def __init__(self, records: Records, now_ms: int, dead_after_ms: int) -> None:
        self.lease = records.lease
        self.has_cursor = records.cursor is not None
        self.now_ms = now_ms
        self.dead_after_ms = dead_after_ms
        self.all = sorted(records.connections, key=lambda connection: connection.fence)
        # The last connection of each function; one before it is over.
        self._last = {one.request_id: one.fence for one in self.all}
        self.open = [one for one in self.all if self._is_open(one)]
        self.is_once, self._was_answered = records.is_once, records.was_answered

    @property
    def holder(self) -> Connection | None:
        """The connection that holds the stream; None if it is not known to be open."""
        return next((one for one in self.open if one.fence == self.lease.connected_token), None)

    @property
    def has_only_answer(self) -> bool:
        """Returns whether no start can bring more: the upstream has answered what must be requested only once."""
        return self.is_once and (self._was_answered or any(one.opened_ms is not None for one in self.all))

    @property
    def newest(self) -> Connection | None:
        """The connection with the highest fencing token; None if there is none."""
        return self.all[-1] if self.all else None

    def cause(self, one: Connection) -> str:
        """Returns how the connection ended; "" while it is open, UNHEARD while that cannot be known."""
        if one.ended_by or one in self.open:
            return one.ended_by
        return UNRECORDED if self._is_over(one) else UNHEARD

    def is_of_this_start(self, one: Connection) -> bool:
        """Returns whether it came after the last POST: a successor continues those of the execution that it renews."""
        return one.execution == self.lease.execution or one.claimed_ms >= self.lease.started_at_ms

    @property
    def between_runs_ms(self) -> int | None:
        """Returns an instant between the last stop and the start after it; None if no stop came before the start.

        No connection claims the stream in between, so the middle of that time separates earlier connections from later
        ones, even if clocks differ. It separates none if a connection went on past the start and never saw the stop.
        """
        stopped_ms, started_ms = self.lease.stopped_before_ms, self.lease.started_at_ms
        if stopped_ms is None or any(
            one.claimed_ms < stopped_ms and one.last_ms > started_ms and one.ended_by not in OVER for one in self.all
        ):
            return None
        return (stopped_ms + started_ms + 1) // 2

    def since_start(self) -> list[Connection]:
        """Returns the connections since the last start that the records show; all ends but a stop lead to a
        reconnection.

        A successor is no start either if its predecessor was stopped or rejected after it had been relieved.
        """
        start, started_ms, parted_ms = 0, self.lease.started_at_ms, self.between_runs_ms
        for number, (one, following) in enumerate(zip(self.all, self.all[1:], strict=False), 1):
            is_over = one.ended_by in OVER or one.is_rejected
            is_before = not started_ms or one.claimed_ms < started_ms
            is_parted = parted_ms is not None and one.claimed_ms < parted_ms <= following.claimed_ms
            if is_parted or (is_over and is_before and following.claimed_ms >= one.last_ms):
                start = number
        return self.all[start:]

    def _is_open(self, one: Connection) -> bool:
        if one.opened_ms is None or one.closed_ms is not None or one.ended_by or self._has_later_connection(one):
            return False
        # The holder renews its lease as well, and its later writes prove its life just as much.
        is_holder = self.lease.released_token < one.fence == self.lease.connected_token
        is_renewed = is_holder and self.now_ms < self.lease.expires_at_ms
        return is_renewed or self.now_ms - one.wrote_ms <= self.dead_after_ms

    def _is_over(self, one: Connection) -> bool:
        """Returns whether it has certainly ended: its function connected again, or Lambda must have ended it."""
        deadline_ms = one.claimed_ms + LONGEST_MS if one.deadline_ms is None else one.deadline_ms
        return self._has_later_connection(one) or self.now_ms > deadline_ms + self.dead_after_ms

    def _has_later_connection(self, one: Connection) -> bool:
        return self._last[one.request_id] > one.fence

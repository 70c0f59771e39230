"""Computes what `GET /connections/{streamId}` shows: status, lanes, and what the newest connections covered.

It has the records of the control table and nothing else. It cannot ask whether an execution still runs; it knows only
how long no connection has written anything. Invariant: the answer follows from the records and the instant alone; a
connection counts as open only while its function is known to live.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from handlers.connection import ledger
from handlers.connection.lease import Lease
from handlers.connection.ledger import UNRECORDED, Gap, Record, gaps

# The lanes of statemachines/connections.asl.yml; one that has not connected yet has no record.
LANES = ("A", "B")
# The ends after which nobody was to be connected.
_OVER = ("stopped", "ended")
# The ends that are not an error.
_CALM = ("taken_over", *_OVER)
# What the machine wrote down when it let go of the stream; any other error is a dirty end.
_ENDINGS = {"": "ended", "StreamEnded": "ended", "StreamRejected": "rejected", "InvalidRequest": "rejected"}
# A living execution leaves a trace at least as often as its lanes try again; the longest back-off is five minutes.
UNHEARD_MS = 600_000
_ACTIVE = ("starting", "running", "reconnecting", "stopping")
_CLAIMED = (*_ACTIVE, "unknown")


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection's record; `opened_ms` is None where it was never answered, `ended_by` "" until its end."""

    fence: int
    lane: str
    execution: str
    request_id: str
    claimed_ms: int
    opened_ms: int | None
    seen_ms: int
    closed_ms: int | None
    ended_by: str
    resumed: bool
    stored: int
    duplicates: int
    dead_lettered: int
    reach_ms: int | None = None
    since_ms: int | None = None
    live_ms: int | None = None
    forgot_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Records:
    """What the control table says of a stream; `connections` and `losses` are the newest, in any order.

    A loss is a gap that the upstream announced: events of it may be missing although a connection was open.
    """

    lease: Lease
    cursor: str | None
    cursor_saved_ms: int | None
    connections: Sequence[Connection]
    losses: Sequence[Gap] = ()


def answer(stream_id: str, records: Records, now_ms: int, dead_after_ms: int) -> dict[str, Any]:
    """The whole answer about a stream, as JSON takes it.

    A connection other than the holder counts as ended once it was silent for longer than `dead_after_ms`; how it ended
    is "unrecorded" then: its function was killed, or the table took no record any more. Instants are texts in UTC
    and end in `_at`; lengths are milliseconds. The status is one of

        starting      an execution holds the stream and none of its connections was answered yet
        running       a connection is open
        reconnecting  an execution holds the stream and no connection is open
        stopping      it is to be stopped, and a connection is open or the execution has not let go yet
        stopped       it was stopped: nobody may connect until the next POST
        ended         no execution holds it: the upstream ended the stream
        rejected      no execution holds it: the upstream refused the request, or there is no such stream
        broken        no execution holds it: the last one failed
        unknown       an execution holds it and nobody has been heard of for ten minutes: it may be dead
    """
    view = _View(records, now_ms, dead_after_ms)
    lease, holder, cursor = records.lease, view.holder, records.cursor
    return {
        "stream": stream_id,
        "status": view.status,
        "execution": lease.execution or None,
        "generation": lease.generation,
        "fence": lease.fence,
        "holder": None if holder is None else _named(holder),
        "lanes": view.lanes(),
        "cursor": None if cursor is None else {"value": cursor, "saved_at": at(records.cursor_saved_ms)},
        "coverage": view.coverage(),
        "counts": view.counts(),
        "last_error": view.last_error(),
    }


def at(instant_ms: int | None) -> str | None:
    """The instant as ISO 8601 in UTC with milliseconds; None for None."""
    if instant_ms is None:
        return None
    text = datetime.fromtimestamp(instant_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


class _View:
    """The records of one stream, seen at one instant."""

    def __init__(self, records: Records, now_ms: int, dead_after_ms: int) -> None:
        self._lease = records.lease
        self._losses = sorted(records.losses, key=lambda loss: loss.from_ms)
        self._all = sorted(records.connections, key=lambda connection: connection.fence)
        self._now_ms = now_ms
        self._dead_after_ms = dead_after_ms
        self._open = [one for one in self._all if self._is_open(one)]
        self.status = self._status()

    @property
    def holder(self) -> Connection | None:
        """The connection that holds the stream; None where it is not open."""
        return next((one for one in self._open if one.fence == self._lease.connected_token), None)

    def _is_open(self, one: Connection) -> bool:
        if one.opened_ms is None or one.closed_ms is not None or one.ended_by:
            return False
        if one.fence == self._lease.connected_token:
            # The holder renews the lease even while the stream says nothing.
            return self._now_ms < self._lease.expires_at_ms
        return self._now_ms - one.seen_ms <= self._dead_after_ms

    def _status(self) -> str:
        heard_ms = max((one.closed_ms or one.seen_ms for one in self._all), default=0)
        heard_ms = max(heard_ms, self._lease.started_at_ms)
        heard = bool(self._open) or self._now_ms - heard_ms <= UNHEARD_MS
        last = self._all[-1] if self._all else None
        if self._lease.stop:
            return "stopping" if self._open or (self._lease.execution and heard) else "stopped"
        if self._open:
            return "running"
        if not self._lease.execution:
            return _ENDINGS.get(self._lease.ending, "broken")
        if not heard:
            return "unknown"
        return "reconnecting" if last is not None and self._is_of_this_start(last) else "starting"

    def _is_of_this_start(self, one: Connection) -> bool:
        """A successor's connections go on with those of the execution that it renews."""
        return one.execution == self._lease.execution or one.claimed_ms >= self._lease.started_at_ms

    def lanes(self) -> dict[str, Any]:
        """Each lane's phase and its last connection, by lane."""
        newest = {one.lane: one for one in self._all}
        names = {*newest, *(LANES if self._lease.execution else ())}
        lanes = {name: {"phase": self._phase(newest.get(name)), **_shown(newest.get(name))} for name in sorted(names)}
        # A claim that has no record yet: this lane's function is opening the stream.
        lane = self._lease.holder.partition("/")[0]
        if lane in lanes and self.status in _ACTIVE and self._lease.fence > (self._all[-1].fence if self._all else 0):
            lanes[lane]["phase"] = "connecting"
        return lanes

    def _phase(self, last: Connection | None) -> str:
        if last in self._open:
            return "connected"
        if self.status not in _ACTIVE:
            return self.status
        # A connection from before the last start says nothing of a lane that has not connected since.
        if last is None or last.ended_by == "taken_over" or not self._is_of_this_start(last):
            return "waiting"
        return "ending" if last.ended_by in _OVER else "reconnecting"

    def coverage(self) -> dict[str, Any] | None:
        """What the connections since the last start covered; None where none was answered."""
        records = [record for one in self._run() for record in self._records(one)]
        if not records:
            return None
        missed = gaps(records, self._now_ms, self._dead_after_ms)
        openings = [record.opened_ms for record in records]
        ends = [self._now_ms if record.closed_ms is None else record.closed_ms for record in records]
        from_ms, to_ms = min([*openings, *(gap.from_ms for gap in missed)]), max(ends)
        # Of an end that is not known yet; it is shown as None.
        pending: list[Gap] = []
        last = records[ends.index(to_ms)]
        if self.status in _CLAIMED and not self._open and last.ended_by not in _OVER:
            pending = [Gap(0, to_ms, self._now_ms, last.ended_by, False)]
            to_ms = self._now_ms
        losses = [loss for loss in self._losses if loss.fence >= self._run()[0].fence]
        shown = sorted([*missed, *losses], key=lambda gap: gap.from_ms)
        # A loss may lie in a gap, or before the start from which coverage counts.
        gap_ms = _length_ms((max(gap.from_ms, from_ms), min(gap.to_ms, to_ms)) for gap in [*shown, *pending])
        length_ms = max(1, to_ms - from_ms)
        return {
            "from_at": at(from_ms),
            "to_at": at(to_ms),
            "connected_since_at": at(max((gap.to_ms for gap in missed), default=from_ms)) if self._open else None,
            "connections": sum(one.opened_ms is not None for one in self._run()),
            # Rounded down: only what has no gap is 100.
            "percent": (length_ms - gap_ms) * 1_000_000 // length_ms / 10_000,
            "overlap_ms": _overlap_ms(zip(openings, ends, strict=True)),
            "gap_ms": gap_ms,
            "gaps": [_shown_gap(gap) for gap in shown] + [_shown_gap(gap) | {"to_at": None} for gap in pending],
        }

    def _records(self, one: Connection) -> list[Record]:
        """The connection as the ledger's rules need it; one whose function was killed closed when it was last seen."""
        opened_ms = one.seen_ms if one.opened_ms is None else one.opened_ms
        closed_ms = one.closed_ms
        if closed_ms is None and one not in self._open:
            closed_ms = max(opened_ms, one.seen_ms)
        record = Record(
            one.fence, opened_ms, one.seen_ms, closed_ms, self._cause(one), one.resumed, one.reach_ms, one.since_ms
        )
        return ledger.records(replace(record, live_ms=one.live_ms), one.opened_ms, one.forgot_ms)

    def _cause(self, one: Connection) -> str:
        """How the connection ended; "" while it is open."""
        return one.ended_by or ("" if one in self._open else UNRECORDED)

    def _run(self) -> list[Connection]:
        """The connections since the last start; the time between an earlier stop and that start is not a gap."""
        start = 0
        for number, (one, following) in enumerate(zip(self._all, self._all[1:], strict=False), 1):
            if one.ended_by in _OVER and following.claimed_ms >= (one.closed_ms or one.seen_ms):
                start = number
        return self._all[start:]

    def counts(self) -> dict[str, Any]:
        """What the newest connections wrote, and how they ended."""
        return {
            "connections": len(self._all),
            "stored": sum(one.stored for one in self._all),
            "duplicates": sum(one.duplicates for one in self._all),
            "dead_lettered": sum(one.dead_lettered for one in self._all),
            "ends": dict(sorted(Counter(cause for one in self._all if (cause := self._cause(one))).items())),
        }

    def last_error(self) -> dict[str, Any] | None:
        """How the newest connection that ended by an error ended, or the execution after it; None where none did.

        A refusal of the upstream's is shown as the connection met it, which has its lane.
        """
        lease = self._lease
        if lease.ending not in ("", "StreamEnded", "StreamRejected"):
            return {"cause": lease.ending, "at": at(lease.ended_at_ms), "lane": None, "fence": None}
        for one in reversed(self._all):
            cause = self._cause(one)
            if cause and cause not in _CALM:
                ended_at = at(one.closed_ms if one.closed_ms is not None else one.seen_ms)
                return {"cause": cause, "at": ended_at, "lane": one.lane, "fence": one.fence}
        return None


def _named(holder: Connection) -> dict[str, Any]:
    return {"lane": holder.lane, "fence": holder.fence, "request_id": holder.request_id}


def _shown(last: Connection | None) -> dict[str, Any]:
    if last is None:
        return {}
    return {
        "fence": last.fence,
        "opened_at": at(last.opened_ms),
        "seen_at": at(last.seen_ms),
        "closed_at": at(last.closed_ms),
        "ended_by": last.ended_by or None,
    }


def _shown_gap(gap: Gap) -> dict[str, Any]:
    return {
        "from_at": at(gap.from_ms),
        "to_at": at(gap.to_ms),
        "length_ms": gap.to_ms - gap.from_ms,
        "cause": gap.cause,
        "closed_by_cursor": gap.closed_by_cursor,
    }


def _length_ms(intervals: Iterable[tuple[int, int]]) -> int:
    """How long any of them lasted."""
    total = 0
    until_ms = 0
    for from_ms, to_ms in sorted(intervals):
        total += max(0, to_ms - max(from_ms, until_ms))
        until_ms = max(until_ms, to_ms)
    return total


def _overlap_ms(intervals: Iterable[tuple[int, int]]) -> int:
    """How long two or more were open at once."""
    total = 0
    covered_ms = 0
    for from_ms, to_ms in sorted(intervals):
        total += max(0, min(covered_ms, to_ms) - from_ms)
        covered_ms = max(covered_ms, to_ms)
    return total

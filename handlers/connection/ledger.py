"""Finds the gaps between the connections of a stream from the ledger's records, and which of them were delivered later.

A gap is the time between two connections: events may have been missed in it. It is open until connections have proved
that all of its events came; then it is delivered, for good. What a connection proves follows from four instants of its
record:

    opened_ms   when the upstream answered it
    since_ms    when it requested what came after the cursor, everything until this instant was stored or lay in an open
                gap; so what it requested is no older than this, however old the cursor's own event is
    live_ms     when it has caught up: what the upstream sends from then on has just happened
    heard_ms    when the upstream last sent something

A connection that heard its upstream at `live_ms` or later, and has stored what came, has brought all that happened
since `since_ms`, or since `opened_ms` if the upstream does not go back that far (`reach_ms`). A connection that last
heard its upstream earlier has brought a part, and the next connection requests the rest. It makes no difference whether
it was closed, killed or stopped.

    connection 1   [0, 5) s      gap [5, 18) s
    connection 2   [18, 23) s    requests what came since 5 s; would have caught up at 31 s, but breaks off 8 s before:
                                 it has brought what came until 23 - 8 = 15 s
    connection 3   [32, … s      requests what came since 15 s, 17 s back: with a reach of 16 s [15, 32) s stays open

An idle upstream shows that a connection has caught up: then `record.py` brings `live_ms` forward. On a busy stream
nothing on the wire shows it. There we assume that an upstream sends its backlog at least twice as fast as it happened,
so a connection makes up for one missed second in each second.

A silent connection that has caught up counts as good until it is let go or counts as dead. But its peer may have died
unnoticed after it last sent something. Then the next connection also receives what that peer did not send, so it has
caught up only once it has lasted for as long as that silence in addition.

It is unknown whether an upstream obeys a default resume. One that ignores it sends what happens from its answer on. One
that obeys it is assumed to keep what it sent for at least `KEPT_MS`. So a connection that is relieved before it has
caught up leaves no gap open if its successor brings what it still lacked: either it was live, or its successor requests
the same a moment later.

A connection that was killed left no record of its close. Once it has been silent for long enough to count as dead, it
covers the time until it was last seen. This module knows no table and no clock.

Invariants: each instant between the first opening and the last lies in an open gap, was proved by a connection, or is
about to be proved by an open one; whatever some records prove, later records of the same connections prove too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace

from handlers.connection import repair_record
from handlers.connection.repair_record import Repair
from handlers.values import dataclass

# No end was recorded: the function was killed, or the table accepted no more records.
UNRECORDED = "unrecorded"
STOPPED = "stopped"
CURSOR_EXPIRED = "cursor_expired"
CURSOR_UNKNOWN = "cursor_unknown"
# The least that an upstream is assumed to keep if it resumes from a cursor and the profile promises nothing.
KEPT_MS = 5_000
# The states of a gap. Its events all came later; that is not proved yet; some are known to be missing; or they were
# fetched afterwards (`repaired.py`).
DELIVERED, OPEN, LOST = "delivered", "open", "lost"
REPAIRED = repair_record.REPAIRED
_FOR_EVER = 1 << 62
_HANDOVERS = ("taken_over", "let_go", "claimed_by_successor")
# An upstream that has ended the stream has sent all of it.
_WHOLE = "ended"

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Record:
    """One connection that was answered; `closed_ms` is None while it is open, or if it was killed.

    `reach_ms` is how far back the upstream goes if the connection resumed: None is to the cursor, 0 is unknown.
    `since_ms` is None if that was unknown. `joined_ms` is since when, until its answer, other connections were open
    without a pause; only `_settled` knows it. `refused` is why what came before it cannot be requested: such an answer
    is a connection of no length (`records`). `saved_ms` is when it was last recorded, 0 if unknown; `heard_ms` when the
    upstream last sent something on it, None if unknown. `stopped_ms` is when the stop before its start was requested,
    `started_ms` when that start was; None if no stop was.
    """

    fence: int
    opened_ms: int
    seen_ms: int
    closed_ms: int | None
    ended_by: str
    resumed: bool
    reach_ms: int | None = None
    since_ms: int | None = None
    live_ms: int | None = None
    refused: str = ""
    joined_ms: int | None = None
    saved_ms: int = 0
    heard_ms: int | None = None
    stopped_ms: int | None = None
    started_ms: int | None = None

    @property
    def last_ms(self) -> int:
        """Until when the connection is known to have been good."""
        return self.seen_ms if self.closed_ms is None else self.closed_ms

    def end_ms(self, now_ms: int, dead_after_ms: int) -> int | None:
        """When it ended; None while it may still be open."""
        # While events wait to be stored it is not known good, but a record that was written shows that it is alive.
        if self.closed_ms is None and now_ms - max(self.seen_ms, self.saved_ms) <= dead_after_ms:
            return None
        return self.last_ms

    @property
    def read_ms(self) -> int:
        """Until when it read something; later than `last_ms` if a kill took what was not stored yet."""
        is_killed = self.ended_by in ("", UNRECORDED)
        return max(self.last_ms, self.heard_ms or 0) if is_killed else self.last_ms

    @property
    def from_ms(self) -> int:
        """From when on it brings everything that happened."""
        if not self.resumed or self.since_ms is None:
            return self.opened_ms
        if self.reach_ms == 0 and self.joined_ms is not None:
            return min(self.opened_ms, max(self.since_ms, self.joined_ms, self.opened_ms - KEPT_MS))
        if self.reach_ms is not None and self.opened_ms - self.since_ms > self.reach_ms:
            return self.opened_ms
        return min(self.since_ms, self.opened_ms)

    @property
    def silent_from_ms(self) -> int:
        """When the silence before its end began: its peer may have been dead since then, unnoticed."""
        # A function that stood still notices an answer late, and so counts it from an instant after that of its bytes.
        return self.last_ms if self.heard_ms is None else max(self.opened_ms, min(self.last_ms, self.heard_ms))

    def behind_ms(self, at_ms: int) -> int:
        """How much longer it must last after `at_ms` to have caught up; 0 if it has."""
        return 0 if self.live_ms is None or self.ended_by == _WHOLE else max(0, self.live_ms - at_ms)

    @property
    def has_caught_up(self) -> bool:
        """Whether it has caught up, was still good then, and everything that had come by then is stored."""
        return not self.behind_ms(self._sure_ms)

    @property
    def brought_ms(self) -> int:
        """Until when everything that it requested is stored."""
        # At the assumed speed, the time it still lacked is how far it was behind.
        return self.last_ms if self.has_caught_up else self._sure_ms - self.behind_ms(self._sure_ms)

    @property
    def _sure_ms(self) -> int:
        """Until when it proves anything: until it was let go, or else until the upstream last sent something."""
        # A kill or a stop proves nothing.
        is_let_go = self.closed_ms is not None and self.ended_by not in ("", UNRECORDED, STOPPED)
        return self.last_ms if is_let_go else self.silent_from_ms


@dataclass(frozen=True, slots=True)
class Gap:
    """The interval [from_ms, to_ms), which connection `fence` ended; `cause` is how the connection before it ended.

    `number` is None for a gap between connections, and 0 for one that ended with the answer that its events cannot be
    requested; losses that the upstream announced on that connection count from 1. `events` is how many were lost, None
    if the upstream did not say. `repair` is what was done to repair it.
    """

    fence: int
    from_ms: int
    to_ms: int
    cause: str
    state: str
    number: int | None = None
    events: int | None = None
    repair: Repair | None = field(default=None, compare=False)


def records(record: Record, opened_ms: int | None, forgot_ms: int | None) -> list[Record]:
    """Returns the records that a connection adds to the ledger; `opened_ms` is None if the upstream never answered.

    `forgot_ms` is when the upstream reported that it no longer has what came after the cursor.
    """
    shown = []
    if opened_ms is not None:
        is_unknown = forgot_ms is not None and record.ended_by != CURSOR_EXPIRED
        shown.append(replace(record, opened_ms=opened_ms, refused=CURSOR_UNKNOWN if is_unknown else ""))
    if forgot_ms is not None and record.ended_by == CURSOR_EXPIRED:
        refusal = replace(record, opened_ms=forgot_ms, seen_ms=forgot_ms, closed_ms=forgot_ms, resumed=False)
        shown.append(replace(refusal, live_ms=None, refused=CURSOR_EXPIRED))
    return shown


@dataclass(frozen=True, slots=True)
class Known:
    """The sum of the records up to connection `fence`, in the order of their fencing tokens, for the later connections.

    Everything that happened until `at_ms` is stored or lies in an open gap; None without a record. From `connected_ms`
    to `until_ms` some connection was open without a pause. `waits` has, for each connection that no later one has
    outdone, its fencing token, when it was last heard, and how much longer it would have needed to catch up.
    """

    fence: int = 0
    at_ms: int | None = None
    connected_ms: int = 0
    until_ms: int = -1
    waits: tuple[tuple[int, int, int], ...] = ()

    def behind_ms(self, cursor_fence: int, now_ms: int) -> int | None:
        """The longest time after which a connection that resumes from the cursor now has caught up.

        Connection `cursor_fence` saved the cursor, and later ones did not move it. None if none of them has a record.
        """
        waits = [
            behind_ms + max(0, now_ms - heard_ms) for fence, heard_ms, behind_ms in self.waits if fence >= cursor_fence
        ]
        return min(waits, default=None)


# How many of `Known.waits` are kept; if one is forgotten, a connection only counts as caught up later.
MOST_WAITS = 4


def _after(known: Known, record: Record, joined_ms: int | None) -> tuple[Record, Known]:
    """Returns the record with what was known before it, and what is known after it.

    What a connection knew of its predecessors when it asked is replaced by what is known of them now: one that was open
    then may have turned out to be dead since it was last heard, or may have caught up in its last moments.
    """
    connected_ms = record.opened_ms if joined_ms is None else joined_ms
    since_ms = record.since_ms if known.at_ms is None else known.at_ms
    settled = replace(record, joined_ms=joined_ms, since_ms=since_ms)
    at_ms = max(settled.from_ms, settled.brought_ms, known.at_ms or 0)
    # A connection that resumes from its cursor also receives what a dead peer did not send, so it catches up later.
    heard_ms, behind_ms = record.silent_from_ms, record.behind_ms(record.silent_from_ms)
    waits = [wait for wait in known.waits if wait[1] - heard_ms > wait[2] - behind_ms]
    waits.append((record.fence, heard_ms, behind_ms))
    until_ms = max(known.until_ms, record.last_ms)
    return settled, Known(record.fence, at_ms, connected_ms, until_ms, tuple(waits[-MOST_WAITS:]))


def known(records: Iterable[Record], before: Known | None = None) -> Known:
    """Returns the sum of `before` and of the records after it, in the order of their fencing tokens."""
    after = before or Known()
    for record in sorted(records, key=_by_fence):
        if before is None or record.fence > before.fence:
            is_joined = record.opened_ms <= after.until_ms
            after = _after(after, record, after.connected_ms if is_joined else None)[1]
    return after


def _by_fence(record: Record) -> tuple[int, int]:
    return record.fence, record.opened_ms


def _settled(records: Iterable[Record]) -> list[Record]:
    """Returns the records in the order of their fencing tokens, each with what is known now of those before it."""
    ordered, settled, after = sorted(records, key=_by_fence), list[Record](), Known()
    joined = _joined(ordered)
    for record in ordered:
        one, after = _after(after, record, joined[record])
        settled.append(one)
    return settled


def _joined(records: Iterable[Record]) -> dict[Record, int | None]:
    """Returns for each record since when others were open without a pause until its answer; None if none were.

    Two that open at once may be answered in another order than that of their tokens.
    """
    joined: dict[Record, int | None] = {}
    connected_ms, until_ms = 0, -1
    for record in sorted(records, key=lambda record: (record.opened_ms, record.fence)):
        is_joined = record.opened_ms <= until_ms
        joined[record] = connected_ms if is_joined else None
        connected_ms, until_ms = connected_ms if is_joined else record.opened_ms, max(until_ms, record.last_ms)
    return joined


def corrected(losses: Iterable[Gap], records: Iterable[Record]) -> list[Gap]:
    """Returns the announced losses, each from the instant until which everything was known, as is known now.

    A connection that catches up records a loss from its `since_ms` on; `_settled` says why that may be too late.
    """
    written = sorted(records, key=_by_fence)
    settled = _settled(written)
    since = {(one.fence, one.since_ms): now.since_ms for one, now in zip(written, settled, strict=True)}
    return [
        replace(loss, from_ms=min(loss.from_ms, since_ms))
        if (since_ms := since.get((loss.fence, loss.from_ms))) is not None
        else loss
        for loss in losses
    ]


def gaps(records: Iterable[Record], now_ms: int, dead_after_ms: int) -> list[Gap]:
    """Returns the gaps between the records, oldest first, except those that an undecided connection may still cover."""
    ordered = sorted(_settled(records), key=lambda record: (record.opened_ms, record.fence))
    if not ordered:
        return []
    holes: list[Gap] = []
    proved: list[Interval] = []
    covered_ms: int | None = None
    read_ms = 0
    cause = ""
    first = ordered[0]
    if first.since_ms is not None and all(record.fence == first.fence for record in ordered):
        # There were so many unanswered tries before it that the last connection is not among the records read.
        covered_ms, cause = min(first.since_ms, first.opened_ms), UNRECORDED
    begin_ms = first.opened_ms if covered_ms is None else covered_ms
    ends: list[int] = []
    for before, record in zip([first, *ordered], ordered, strict=False):
        if covered_ms is not None and record.opened_ms > covered_ms:
            asked_until_ms = record.opened_ms
            # A stop that no connection saw before the next start has ended nothing.
            is_heeded = cause == STOPPED or covered_ms <= (record.started_ms or _FOR_EVER)
            if record.stopped_ms is not None and record.stopped_ms != before.stopped_ms and is_heeded:
                # From a stop to the first answer after the next start nobody requested the stream. What a killed
                # connection had read and not stored was requested, whatever the time of the stop.
                asked_until_ms = min(max(covered_ms, record.stopped_ms, read_ms), record.opened_ms)
                proved.append((asked_until_ms, record.opened_ms))
            number = 0 if record.refused == CURSOR_EXPIRED else None
            state = LOST if record.refused else OPEN
            hole = Gap(record.fence, covered_ms, asked_until_ms, record.refused or cause, state, number)
            holes += [hole] if covered_ms < asked_until_ms else []
        end_ms = record.end_ms(now_ms, dead_after_ms)
        if end_ms is None:  # it is open and covers all that follows, or it is dead but not known to be
            proved.append((record.from_ms, _FOR_EVER if record.has_caught_up else record.brought_ms))
            # Where clocks differ, a record after it may still prove what came before.
            covered_ms = _FOR_EVER
            continue
        is_relieved = _is_relieved(record, end_ms, ordered)
        proved.append((record.from_ms, end_ms if is_relieved else record.brought_ms))
        ends.append(end_ms)
        read_ms = max(read_ms, record.read_ms)
        if covered_ms is None or end_ms >= covered_ms:
            covered_ms, cause = end_ms, record.ended_by or UNRECORDED
    # What the last connection has not brought yet, it or its successor will: its end makes no gap longer.
    over = ends if len(ends) < len(ordered) else sorted(ends)[:-1]
    stop_ms = max([begin_ms, ordered[-1].opened_ms, *over])
    return _judged(holes, list(_without(proved, begin_ms, stop_ms)), ordered)


def is_unfounded(gap: Gap, shown: Iterable[Gap], records: Iterable[Record]) -> bool:
    """Returns whether a gap that was recorded as open is none by now; `shown` are the gaps that `records` leave now.

    A connection that only counted as dead then has recorded since that it lasted throughout.
    """
    if gap.state != OPEN or gap.number:
        return False
    lasted = any(
        record.closed_ms is not None and record.opened_ms <= gap.from_ms and gap.to_ms <= record.closed_ms
        for record in records
    )
    return lasted and all(
        other.fence != gap.fence
        and (other.state == DELIVERED or other.to_ms <= gap.from_ms or gap.to_ms <= other.from_ms)
        for other in shown
    )


def unasked(shown: Iterable[Gap], records: Iterable[Record], fence: int) -> list[Gap]:
    """Returns the undelivered gaps that connection `fence` could not request in full; no later connection can.

    The moment of a handover does not count. The connection requested everything from `from_ms` on; as is known now,
    everything until `since_ms` was known or lay in a gap.
    """
    own = [(one.since_ms, one.from_ms) for one in _settled(records) if one.fence == fence and one.since_ms is not None]
    return [
        gap
        for gap in shown
        if gap.state in (OPEN, LOST)
        and gap.cause not in _HANDOVERS
        and any(gap.from_ms < from_ms and since_ms is not None and since_ms < gap.to_ms for since_ms, from_ms in own)
    ]


def _is_relieved(record: Record, end_ms: int, ordered: list[Record]) -> bool:
    """Whether another, answered before this default resume ended, has brought what this one lacked.

    That may also be a connection that relieved the other one in turn.
    """
    brought_ms = max(record.from_ms, end_ms - record.behind_ms(end_ms))
    return record.reach_ms == 0 and any(
        record.opened_ms < other.opened_ms <= end_ms <= other.last_ms
        and other.from_ms <= brought_ms
        and (other.brought_ms >= end_ms or _is_relieved(other, other.last_ms, ordered))
        for other in ordered
    )


def _without(proved: list[Interval], begin_ms: int, stop_ms: int) -> Iterator[Interval]:
    """Returns the intervals of [begin_ms, stop_ms) that none of `proved` covers."""
    at_ms = begin_ms
    for from_ms, to_ms in sorted(interval for interval in proved if interval[0] < interval[1]):
        if from_ms > at_ms:
            yield at_ms, min(from_ms, stop_ms)
        at_ms = max(at_ms, to_ms)
    if at_ms < stop_ms:
        yield at_ms, stop_ms


def _judged(holes: list[Gap], unproved: list[Interval], ordered: list[Record]) -> list[Gap]:
    """Returns the gaps: an unproved interval is open as a whole, with the time of a connection that broke off in it.

    That time is added to the hole before it, or to the one after it if there is none before.
    """
    judged: list[Gap] = []
    proved = list(holes)
    for from_ms, to_ms in unproved:
        inside = [hole for hole in holes if hole.from_ms < to_ms and hole.to_ms > from_ms]
        starts = [min(from_ms, inside[0].from_ms), *(hole.from_ms for hole in inside[1:]), to_ms] if inside else []
        for number, hole in enumerate(inside):
            ends_ms = max(hole.to_ms, starts[number + 1])
            judged.append(replace(hole, from_ms=starts[number], to_ms=ends_ms))
        proved = [hole for hole in proved if hole not in inside]
        if not inside:
            # A connection broke off, and the one beside it did not request what this one should have brought.
            after = [record for record in ordered if record.opened_ms >= to_ms]
            before = [record for record in ordered if record.opened_ms < to_ms]
            if after:
                judged.append(Gap(after[0].fence, from_ms, to_ms, before[-1].ended_by or UNRECORDED, OPEN))
    delivered = [replace(hole, state=DELIVERED) for hole in proved]
    return sorted(judged + delivered, key=lambda gap: (gap.from_ms, gap.fence))

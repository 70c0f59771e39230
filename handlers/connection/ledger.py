"""Finds the gaps between the connections of a stream from the ledger's records, and which of them were delivered later.

A gap is the time between two connections: events may have been missed in it. It is open until connections have proved
that all of its events came; then it is delivered, for good. `evidence.py` says what a connection proves.

    connection 1   [0, 5) s      gap [5, 18) s
    connection 2   [18, 23) s    requests what came since 5 s; would have caught up at 31 s, but breaks off 8 s before:
                                 it has brought what came until 23 - 8 = 15 s
    connection 3   [32, … s      requests what came since 15 s, 17 s back: with a reach of 16 s [15, 32) s stays open

A connection that is relieved before it has caught up leaves no gap open if its successor brings what it still lacked:
either it was live, or its successor requests the same a moment later.

A connection that was killed left no record of its close. Once it has been silent for long enough to count as dead, it
covers the time until it was last seen. This module knows no table and no clock.

Invariant: each instant between the first opening and the last lies in an open gap, was proved by a connection, or is
about to be proved by an open one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from handlers.connection.evidence import (
    CURSOR_EXPIRED,
    STOPPED,
    UNRECORDED,
    Record,
    fence_order,
    with_present_knowledge,
)
from handlers.connection.gap_record import ANNOUNCED, DELIVERED, LOST, OPEN, Gap, Interval, covers

_FOR_EVER = 1 << 62
# Two connections are notified of the same loss within this time of each other, by clocks that may differ.
_TOLD_WITHIN_MS = 10_000
_HANDOVERS = ("taken_over", "let_go", "claimed_by_successor")


def correct_losses(losses: Iterable[Gap], records: Iterable[Record]) -> list[Gap]:
    """Returns the announced losses, each from the instant until which everything was known, as is known now.

    A connection that catches up records a loss from its `since_ms` on at the latest; `with_present_knowledge` says why
    that may be too late.
    """
    written = sorted(records, key=fence_order)
    now_known = with_present_knowledge(written)
    since = {one.fence: (one.since_ms, now.since_ms) for one, now in zip(written, now_known, strict=True)}

    def from_ms(loss: Gap) -> int:
        said_ms, known_ms = since.get(loss.fence, (None, None))
        if said_ms is None or known_ms is None or loss.from_ms > said_ms:
            return loss.from_ms
        return min(loss.from_ms, known_ms)

    return [replace(loss, from_ms=from_ms(loss)) for loss in losses]


def find_gaps(records: Iterable[Record], now_ms: int, dead_after_ms: int) -> list[Gap]:
    """Returns the gaps between the records, oldest first, except those that an undecided connection may still cover."""
    ordered = sorted(with_present_knowledge(records), key=lambda record: (record.opened_ms, record.fence))
    if not ordered:
        return []
    holes: list[Gap] = []
    proved: list[Interval] = []
    covered_ms: int | None = None
    read_ms = alive_ms = unknown_ms = 0
    cause = ""
    first = ordered[0]
    if first.since_ms is not None and all(record.fence == first.fence for record in ordered):
        # There were so many unanswered tries before it that the last connection is not among the records read, or its
        # record has expired.
        covered_ms, cause = min(first.since_ms, first.opened_ms), UNRECORDED
    begin_ms = stop_ms = _answered_ms(first, now_ms, dead_after_ms) if covered_ms is None else covered_ms
    ends: list[int] = []
    for before, record in zip([first, *ordered], ordered, strict=False):
        stop_ms = stop_ms if covered_ms == _FOR_EVER else max(stop_ms, record.opened_ms)
        if covered_ms is not None and record.opened_ms > covered_ms:
            asked_until_ms = record.opened_ms
            # A stop that no connection saw before the next start has ended nothing.
            is_heeded = cause == STOPPED or max(covered_ms, alive_ms) <= (record.started_ms or _FOR_EVER)
            is_new = record is first or record.stopped_ms != before.stopped_ms
            if record.stopped_ms is not None and is_new and is_heeded:
                # From a stop to the first answer after the next start nobody requested the stream. But a connection
                # whose end is unknown had requested all that it read, stored or not, whatever the time of the stop.
                answered_ms = _answered_ms(record, now_ms, dead_after_ms)
                asked_until_ms = min(max(covered_ms, record.stopped_ms, read_ms, unknown_ms), answered_ms)
                proved.append((asked_until_ms, answered_ms))
            number = 0 if record.refused == CURSOR_EXPIRED else None
            state = LOST if record.refused else OPEN
            hole = Gap(record.fence, covered_ms, asked_until_ms, record.refused or cause, state, number)
            holes += [hole] if covered_ms < asked_until_ms else []
        end_ms = record.end_ms(now_ms, dead_after_ms)
        if end_ms is None:  # it is open and covers all that follows, or it is dead but not known to be
            proved.append((record.from_ms, _FOR_EVER if record.has_caught_up else record.delivered_until_ms))
            # Where clocks differ, a record after it may still prove what came before.
            covered_ms = _FOR_EVER
            continue
        is_relieved = _is_relieved(record, end_ms, ordered)
        proved.append((record.from_ms, end_ms if is_relieved else record.delivered_until_ms))
        ends.append(end_ms)
        read_ms = max(read_ms, record.read_ms)
        # Nothing tells how long it read after it was last recorded, so a gap is shown from then on, however short.
        unknown_ms = max(unknown_ms, end_ms + 1) if record.has_no_end else unknown_ms
        alive_ms = alive_ms if record.ended_by == STOPPED else max(alive_ms, record.saved_ms)
        if covered_ms is None or end_ms >= covered_ms:
            covered_ms, cause = end_ms, record.ended_by or UNRECORDED
    # The last connection, or its successor, still brings what is missing: its end makes no gap longer, and neither does
    # the opening of its successor while it is open itself.
    over = ends if len(ends) < len(ordered) else sorted(ends)[:-1]
    return _join_unproved(holes, list(_uncovered(proved, begin_ms, max([stop_ms, *over]))), ordered)


def is_unfounded(gap: Gap, shown: Sequence[Gap], records: Iterable[Record]) -> bool:
    """Returns whether a gap that was recorded as open is none after all; `shown` are the gaps that `records` leave now.

    A connection that only counted as dead then has recorded since that it lasted throughout. Or two opened at once and
    were answered in another order than that of their tokens: the other one ends the gap by now, and all of it came.
    """
    if gap.state != OPEN or gap.number:
        return False
    spans = [(record.opened_ms, record.last_ms) for record in records]
    spans += [other.span for other in shown if other.state == DELIVERED]
    return covers(sorted(spans), gap.span) and all(
        (other.fence, other.number) != (gap.fence, gap.number)
        and (other.state == DELIVERED or other.to_ms <= gap.from_ms or gap.to_ms <= other.from_ms)
        for other in shown
    )


def is_delivered_elsewhere(loss: Gap, losses: Iterable[Gap], records: Iterable[Record], told_since: int = 0) -> bool:
    """Returns whether another connection brought the events that the upstream announced as lost on this one.

    An upstream may drop what a slow connection does not take, and send it on the one beside it. That one was open
    throughout, had caught up, heard the upstream long after, and was notified of no loss of its own. `losses` has all
    losses that the connections with tokens above `told_since` were notified of.
    """
    if loss.cause != ANNOUNCED or loss.state != LOST:
        return False
    from_ms, to_ms = loss.from_ms - _TOLD_WITHIN_MS, loss.to_ms + _TOLD_WITHIN_MS
    told = {other.fence for other in losses if other.number and other.from_ms <= to_ms and from_ms <= other.to_ms}
    return any(
        one.fence > told_since
        and one.fence not in told
        # Events that an upstream has lost for good are missing in its backlog too, without a notice.
        and max(one.opened_ms, one.live_ms or 0) <= from_ms
        and min(one.heard_ms or 0, one.delivered_until_ms) > to_ms
        for one in with_present_knowledge(records)
    )


def unrequested_gaps(shown: Iterable[Gap], records: Iterable[Record], fence: int) -> list[Gap]:
    """Returns the undelivered gaps that connection `fence` could not request in full; no later connection can.

    The moment of a handover does not count. The connection requested everything from `from_ms` on; as is known now,
    everything until `since_ms` was known or lay in a gap.
    """
    own = [
        (one.since_ms, one.from_ms)
        for one in with_present_knowledge(records)
        if one.fence == fence and one.since_ms is not None
    ]
    return [
        gap
        for gap in shown
        if gap.state in (OPEN, LOST)
        and gap.cause not in _HANDOVERS
        and any(gap.from_ms < from_ms and since_ms is not None and since_ms < gap.to_ms for since_ms, from_ms in own)
    ]


def _answered_ms(record: Record, now_ms: int, dead_after_ms: int) -> int:
    """Returns when the upstream answered the connection: at the earliest, if the connection is over."""
    return record.opened_ms if record.end_ms(now_ms, dead_after_ms) is None else record.answered_ms


def _is_relieved(record: Record, end_ms: int, ordered: list[Record]) -> bool:
    """Whether another connection, answered before this default resume ended, has brought what this one lacked.

    That may also be a connection that relieved the other one in turn.
    """
    brought_ms = max(record.from_ms, end_ms - record.behind_ms(end_ms))
    return record.reach_ms == 0 and any(
        record.opened_ms < other.opened_ms <= end_ms <= other.last_ms
        and other.from_ms <= brought_ms
        and (other.delivered_until_ms >= end_ms or _is_relieved(other, other.last_ms, ordered))
        for other in ordered
    )


def _uncovered(proved: list[Interval], begin_ms: int, stop_ms: int) -> Iterator[Interval]:
    """Returns the intervals of [begin_ms, stop_ms) that none of `proved` covers."""
    at_ms = begin_ms
    for from_ms, to_ms in sorted(interval for interval in proved if interval[0] < interval[1]):
        if at_ms < min(from_ms, stop_ms):
            yield at_ms, min(from_ms, stop_ms)
        at_ms = max(at_ms, to_ms)
    if at_ms < stop_ms:
        yield at_ms, stop_ms


def _join_unproved(holes: list[Gap], unproved: list[Interval], ordered: list[Record]) -> list[Gap]:
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
            # Several intervals may end before the same opening, and the table has one gap of each connection.
            ended = [record for record in after if record.from_ms == to_ms] or after
            if ended:
                broken = before[-1] if before else ended[0]
                judged.append(Gap(ended[0].fence, from_ms, to_ms, broken.ended_by or UNRECORDED, OPEN))
    delivered = [replace(hole, state=DELIVERED) for hole in proved]
    return sorted(judged + delivered, key=lambda gap: (gap.from_ms, gap.fence))

"""Decides from the results of repairs which gaps of the ledger are repaired.

A repair is recorded for the interval that its gap had at that time. The ledger may find later that the gap began
earlier, or that two gaps are one. So a gap is repaired if the proved repairs cover all of it, whichever records hold
them. This module knows no table and no clock. Invariants: what was delivered later stays delivered; a gap is never
repaired while a part of it was not fetched.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from handlers.connection.ledger import DELIVERED, LOST, OPEN, REPAIRED, Gap, Interval
from handlers.connection.repair_record import FAILED, PARTLY, Repair

# Events are missing in a gap of these states, or may be.
LACKING = (OPEN, LOST, PARTLY, FAILED)


def applied(gaps: Iterable[Gap], repairs: Sequence[tuple[Gap, Repair]]) -> list[Gap]:
    """Returns the gaps, each with the state that its repair has reached; `repairs` pairs each repair with its gap."""
    proved = sorted(repair.span for _, repair in repairs if repair.state == REPAIRED)
    by_place = {(gap.fence, gap.number): repair for gap, repair in repairs}
    return [_applied(gap, by_place.get((gap.fence, gap.number)), proved) for gap in gaps]


def _applied(gap: Gap, repair: Repair | None, proved: Sequence[Interval]) -> Gap:
    if gap.state == DELIVERED:
        return gap
    if covers(proved, (gap.from_ms, gap.to_ms)):
        return replace(gap, state=REPAIRED, repair=repair)
    if repair is None or repair.state == REPAIRED or repair.span != (gap.from_ms, gap.to_ms):
        # The gap has changed since its repair.
        return gap
    return replace(gap, state=gap.state if repair.state == OPEN else repair.state, repair=repair)


def covers(proved: Iterable[Interval], span: Interval) -> bool:
    """Returns whether the intervals, in the order of their beginnings, cover all of `span`."""
    at_ms, to_ms = span
    is_met = False
    for begin_ms, end_ms in proved:
        if begin_ms <= at_ms <= end_ms:
            at_ms, is_met = end_ms, True
            if at_ms >= to_ms:
                return True
    return is_met and at_ms >= to_ms


def lacking(gap: Gap) -> Interval:
    """Returns the part of the gap that is still open."""
    repair = gap.repair
    if repair is None or gap.state != PARTLY:
        return gap.from_ms, gap.to_ms
    from_ms = gap.from_ms if repair.open_from_ms is None else max(gap.from_ms, repair.open_from_ms)
    to_ms = gap.to_ms if repair.open_to_ms is None else min(gap.to_ms, repair.open_to_ms)
    return (from_ms, to_ms) if from_ms < to_ms else (gap.from_ms, gap.to_ms)

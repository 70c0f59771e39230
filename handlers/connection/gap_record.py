"""A gap's record: its interval and its state, what was done to repair it, and what is still to do.

A repair is recorded for the interval that its gap had at that time. The ledger may find later that the gap began
earlier, or that two gaps are one. So a gap is repaired if the proved repairs cover all of it, whichever records hold
them. This module knows no table and no clock. Invariants: what was delivered later stays delivered; a gap is never
repaired while a part of it was not fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from handlers.values import dataclass

# The states of a gap. Its events all came later; that is not proved yet; some are known to be missing; or they were
# fetched afterwards.
DELIVERED, OPEN, LOST, REPAIRED = "delivered", "open", "lost", "repaired"
# A part of the gap came, or none: the open part is tried again for as long as the address reaches back.
PARTLY, FAILED = "partly", "failed"
# Events are missing in a gap of these states, or may be.
INCOMPLETE = (OPEN, LOST, PARTLY, FAILED)
UP, DOWN, NO_ORDER = 1, -1, 2
# The cause of a loss that the upstream announced, or that a hole in its numbers shows.
ANNOUNCED = "announced_by_upstream"

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done for the gap [from_ms, to_ms), and what is still to do; instants are epoch milliseconds.

    It has `stored` events, which happened from `first_ms` to `last_ms` if the profile names their time. The interval
    [open_from_ms, open_to_ms) is still open; the whole gap if that is unknown. The next try is at `next_ms`, 0 for
    never; until `rest_until_ms` the address accepts no requests. A walk that is under way began at the address `begin`
    and continues at `at`, after `pages`, if its profile still asks as `of` says; `walk` is its number. That page was
    refused in `refused` tries in a row; once all pages are read (`is_read`), it is the first one again. `way` is the
    direction of the pages: up (1), down (-1), unknown (0) or without an order (NO_ORDER); the last page had `items` and
    went from the place `low` to `high`, and the first page began with the event `first`. Events that a killed
    function has stored since `lost_ms` are not counted. `stamp` counts the writes.
    """

    from_ms: int = 0
    to_ms: int = 0
    state: str = "open"
    reason: str = ""
    stored: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    open_from_ms: int | None = None
    open_to_ms: int | None = None
    tries: int = 0
    next_ms: int = 0
    rest_until_ms: int = 0
    walk: int = 0
    of: str = ""
    begin: str = ""
    at: str = ""
    pages: int = 0
    is_read: bool = False
    refused: int = 0
    saw_before: bool = False
    saw_after: bool = False
    way: int = 0
    low: int | None = None
    high: int | None = None
    items: int = 0
    first: str = ""
    lost_ms: int = 0
    stamp: int = 0

    @property
    def span(self) -> Interval:
        """The interval of the gap."""
        return self.from_ms, self.to_ms

    @property
    def is_over(self) -> bool:
        """Whether only a request makes it try again."""
        return self.state == REPAIRED or (self.state in (PARTLY, FAILED) and not self.next_ms)


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

    @property
    def span(self) -> Interval:
        """The interval that must be repaired: a loss may lie behind events that came at the instant of its notice."""
        return self.from_ms, self.to_ms + (self.number is not None)


def apply_repairs(gaps: Iterable[Gap], repairs: Sequence[tuple[Gap, Repair]]) -> list[Gap]:
    """Returns the gaps, each with the state that its repair has reached; `repairs` pairs each repair with its gap."""
    proved = sorted(repair.span for _, repair in repairs if repair.state == REPAIRED)
    by_place = {(gap.fence, gap.number): repair for gap, repair in repairs}
    return [_apply_repair(gap, by_place.get((gap.fence, gap.number)), proved) for gap in gaps]


def _apply_repair(gap: Gap, repair: Repair | None, proved: Sequence[Interval]) -> Gap:
    if gap.state == DELIVERED:
        return gap
    if covers(proved, gap.span):
        return replace(gap, state=REPAIRED, repair=repair)
    if repair is None or repair.span != gap.span:
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


def open_part(gap: Gap) -> Interval:
    """Returns the part of the gap that is still open."""
    repair = gap.repair
    if repair is None or gap.state != PARTLY:
        return gap.from_ms, gap.to_ms
    from_ms = gap.from_ms if repair.open_from_ms is None else max(gap.from_ms, repair.open_from_ms)
    to_ms = gap.to_ms if repair.open_to_ms is None else min(gap.to_ms, repair.open_to_ms)
    return (from_ms, to_ms) if from_ms < to_ms else (gap.from_ms, gap.to_ms)

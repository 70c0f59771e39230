"""Decides what the walks of a gap's repair have proved, and when to try again; `walking.py` makes the walks.

    saw both events at the edges              repaired
    saw one of them, or neither               partly where events came, else failed: tried again for `reach_s`
    nothing came after the gap yet            open

Invariant: a gap counts as repaired only after one whole walk that saw both, or if the profile states why an overlap
cannot be seen (`unproved`).
"""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from handlers.connection.epochs import Epoch
from handlers.connection.gap_record import DOWN, FAILED, NO_ORDER, OPEN, PARTLY, REPAIRED, UP, Gap, Interval, Repair
from handlers.profile.repair_field import Repair as Field

FIRST_REST_MS, LONGEST_REST_MS = 5_000, 3_600_000
# Because clocks differ and transport takes time, an event at the edge of a gap happened earlier or later.
CLOCKS_MS = 5_000
# How long an event takes at most from the upstream into the table.
COMES_MS = 60_000
# Between which events at the edges a walk asks: the nearest ones, or those beyond them.
LITERAL, WIDE = 0, 1
_NUMBER = re.compile(r"-?[0-9]{1,30}")


class Border(NamedTuple):
    """An event at the edge of a gap: its dedup key, when it came, and when it happened, None if unknown."""

    key: str
    came_ms: int
    own_ms: int | None = None

    @property
    def at_ms(self) -> int:
        """When it happened; if that is unknown, when it came."""
        return self.came_ms if self.own_ms is None else self.own_ms


class Borders(NamedTuple):
    """The last events before a gap and the first ones after it, the nearest first; two of each, if there are two.

    `restarted` is whether the upstream's ids started over between them.
    """

    before: tuple[Border, ...]
    after: tuple[Border, ...]
    restarted: bool = False

    @property
    def keys(self) -> set[str]:
        return {border.key for border in (*self.before, *self.after)}

    def may_span_restart(self, epoch: Epoch) -> bool:
        """Returns whether the ids may have started over between the events, as far as the newest restart shows."""
        begins_ms = self.before[0].came_ms if self.before else 0
        ends_ms = self.after[0].came_ms if self.after else epoch.seen_ms
        return 0 < epoch.since_ms <= ends_ms and begins_ms <= epoch.seen_ms

    def since_ms(self, gap: Gap) -> int:
        """Returns when the earliest one came."""
        return min([gap.from_ms, *(border.came_ms for border in self.before)])


def current_repair(gap: Gap) -> Repair:
    """Returns the repair in the gap's record; a new one if the gap has changed since."""
    known = gap.repair or Repair()
    return known if known.span == gap.span else restart_repair(known, gap.span)


def restart_repair(known: Repair, span: Interval) -> Repair:
    """Returns a new repair of the interval that keeps the counts and times of the events fetched so far."""
    kept = {name: getattr(known, name) for name in ("stored", "first_ms", "last_ms", "lost_ms", "stamp")}
    return Repair(*span, **kept)


IDS_RESTARTED = "ids_restarted"
RESTARTED = "the upstream's ids started over, so the same ids may name other events"
NO_EVENT_BEFORE = "no event from before the gap is stored, so there is no place to start from"
NO_EVENT_AFTER = "no event has come since the gap, so nothing shows yet that the address has all of it"


def missing_edge(field: Field, borders: Borders) -> str:
    """Returns which missing event at an edge keeps the address from being asked, as a phrase; "" if none does."""
    if "after" in field.edges and not borders.before:
        return NO_EVENT_BEFORE
    return NO_EVENT_AFTER if "before" in field.edges and not borders.after else ""


def is_proved(field: Field, repair: Repair) -> bool:
    """Returns whether the walk has shown both events at the edges, or the profile states why none can."""
    return _shows_edges(repair) or bool(field.unproved)


def _shows_edges(repair: Repair) -> bool:
    # Pages without an order may change between two requests, and an event may move to a page that was read.
    return repair.saw_before and repair.saw_after and (repair.way != NO_ORDER or repair.pages == 1)


def has_foreign_keys(own: Collection[str], items: Collection[str]) -> bool:
    """Returns whether the stream's keys are whole numbers and no item's is, or the other way round.

    Then 9 is 9.0 or 009 at the address, and each event that is known already would be stored again.
    """
    forms = [{bool(_NUMBER.fullmatch(key)) and str(int(key)) == key for key in keys} for keys in (own, items)]
    return {len(form) for form in forms} == {1} and forms[0] != forms[1]


class Places(NamedTuple):
    """The places of a page's items, None without one; if two differ by less than `apart`, none can lie between."""

    each: Sequence[int | None]
    apart: int


def are_numbers(keys: Collection[str]) -> bool:
    """Returns whether all keys are whole numbers, which are the items' places then."""
    return all(_NUMBER.fullmatch(key) for key in keys)


def has_passed_edge(bounds: Collection[str], earlier: Repair, repair: Repair, keys: Collection[str]) -> bool:
    """Returns whether a page has passed the far edge, beyond which an address bounded at one edge continues to the end.

    `repair` is the repair with the page, which has these keys, and `earlier` without it.
    """
    up = repair.saw_after and repair.way == UP and {"after", "from"}.issuperset(bounds)
    down = repair.saw_before and repair.way == DOWN and {"before", "to"}.issuperset(bounds)
    # Several items may share the edge's time: only a page beyond that edge's shows that there are no more of them.
    was_seen, moves = earlier.saw_before, (repair.low, earlier.low)
    if up:
        was_seen, moves = earlier.saw_after, (earlier.high, repair.high)
    by_number = bool(bounds) and {"after", "before"}.issuperset(bounds) and are_numbers(keys)
    return (up or down) and (by_number or (was_seen and (moves[0] or 0) < (moves[1] or 0)))


def edge_of_begin(before: Collection[int], there: Collection[int]) -> str:
    """Returns at which edge a page of these instants begins, behind the page before; "" if it overlaps."""
    if not before or not there:
        return ""
    return "from" if min(there) > max(before) else "to" if max(there) < min(before) else ""


def places(keys: Sequence[str], times: Sequence[int | None]) -> Places:
    """Returns the items' places: their keys if these are whole numbers, else their times, which several may share."""
    by_number, first = are_numbers(keys), dict[str, int | None]()
    for key, at_ms in zip(keys, times, strict=True):
        first.setdefault(key, int(key) if by_number else at_ms)
    return Places(list(first.values()), 2 if by_number else 0)


def is_continuous(repair: Repair, page: Places) -> bool:
    """Returns whether a page overlaps the one before it by its items' places, or begins at the next whole number."""
    there = [place for place in page.each if place is not None]
    if not there or repair.low is None or repair.high is None:
        return not page.each
    return min(there) < repair.high + page.apart and max(there) > repair.low - page.apart


def with_order(repair: Repair, page: Places) -> Repair:
    """Returns the repair with the order of its walk's pages so far; `page` has what the page before did not have.

    Within a page the items may be in the opposite order.
    """
    if not page.each or repair.way == NO_ORDER:
        return repair
    there = [place for place in page.each if place is not None]
    if len(there) < len(page.each) or there not in (sorted(there), sorted(there, reverse=True)):
        return replace(repair, way=NO_ORDER)
    low, high, way = min(there), max(there), repair.way
    if repair.low is not None and repair.high is not None:
        ways = {UP: low >= repair.high, DOWN: high <= repair.low}
        way = next((one for one in ((way,) if way else (UP, DOWN)) if ways[one]), NO_ORDER)
    return replace(repair, way=way, low=low, high=high)


def later_ms(field: Field, gap: Gap, borders: Borders, now_ms: int, is_by_time: bool) -> float:
    """Returns the instant after which the stream itself may still bring an item: it is left to the stream.

    If the address spells the item otherwise, the stream's would seem to be another event under a known key. What is not
    stored must not be proved: no event has come since the gap, or the item is later than that one in pages by time.
    """
    if field.unproved or (borders.after and (not is_by_time or borders.after[0].own_ms is None)):
        return math.inf
    return max(borders.after[0].at_ms + CLOCKS_MS if borders.after else gap.to_ms - 1, now_ms - COMES_MS)


def judge_repair(field: Field, repair: Repair, borders: Borders, problem: str, retry_s: float, now_ms: int) -> Repair:
    """Returns the repair with its result and when to try again; `problem` is why the last walk is not whole."""
    problem = problem or (RESTARTED if borders.restarted and borders.after else "")
    done, fails = replace(repair, open_from_ms=None, open_to_ms=None, tries=repair.tries + 1), repair.tries
    if problem and repair.at:
        # A walk that was refused at a page continues there; any other begins again.
        done, fails = replace(done, refused=repair.refused + 1), repair.refused
    else:
        done = replace(done, walk=LITERAL, at="", pages=0)
    if not problem and is_proved(field, repair):
        # Everything between the two edges is stored, even beyond the gap, whose ends may be known better later.
        came = [border.came_ms for border in (*borders.before[:1], *borders.after[:1])]
        done = replace(done, from_ms=min([done.from_ms, *came]), to_ms=max([done.to_ms, *came]))
        return replace(done, state=REPAIRED, reason="" if _shows_edges(repair) else field.unproved, next_ms=0)
    done = replace(done, rest_until_ms=now_ms + round(retry_s * 1000) if retry_s else 0)
    rest_ms = min(LONGEST_REST_MS, FIRST_REST_MS << min(fails, 16))
    next_ms = now_ms + max(rest_ms, round(retry_s * 1000))
    is_over = next_ms > repair.to_ms + field.reach_ms
    waits = not is_over and not borders.after and problem in ("", NO_EVENT_AFTER)
    state = OPEN if waits else PARTLY if repair.stored else FAILED
    reason = problem or _lacking_proof(repair, borders)
    if not problem and repair.saw_after != repair.saw_before:
        until_ms, since_ms = (repair.first_ms, None) if repair.saw_after else (None, repair.last_ms)
        done = replace(done, open_to_ms=until_ms, open_from_ms=since_ms)
    return replace(done, state=state, reason=reason, next_ms=0 if is_over else next_ms)


def _lacking_proof(repair: Repair, borders: Borders) -> str:
    if not borders.after:
        return NO_EVENT_AFTER
    if repair.saw_before and repair.saw_after:
        several = "has several pages without an order or with a hole, or one page again and again"
        return f"the address {several}, or it forgot events meanwhile, so one may be missing"
    if repair.saw_before:
        return "the address does not have the first event after the gap"
    if repair.saw_after:
        return "the address does not go back to the last event before the gap"
    return "the address has neither the last event before the gap nor the first after it"

"""Repairs one gap: walks over the pages of the address and stores their events; `proof.py` judges what that proves.

    stream        …  7  8  |  9 10 11 (missed)  | 12 13 …       8 and 12 are the events at the edges
    first walk    ?after=8&before=12       9 10 11              an address may leave out the edges themselves
    second walk   ?after=7&before=13       8  9 10 11 12        both were seen, with all between: repaired

A walk that sees both events at the edges proves that the gap is complete: the address has what was before it and what
came after it, so it has what is between. A walk reads all pages, unless they have no end and go towards an edge.
Several pages in no order prove nothing, because they may change between two requests. Pages that are counted must each
continue the one before without a hole: a deleted item moves all later ones, and one of them to a page that was read.
After pages towards the present the first page is requested once more, because the address may have forgotten events
meanwhile. A walk that sees only one of the edges, or none, proves nothing, however much it brings. If the first walk
did not see both, a second one begins an event earlier and ends an event later.

It is a generator of requests and pauses (`handlers/run/group_ports.py`), so that a simulation performs the same steps.
Invariant: what a page brings is stored before the gap's record says that the page was read.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from handlers.connection.gap_record import NO_ORDER, REPAIRED, UP, Gap, Interval, Repair
from handlers.connection.inputs import Written
from handlers.framing.selection import is_kept
from handlers.profile.addresses import ProfileError
from handlers.repair import pages, proof
from handlers.repair.gap_ports import GapPorts, TakenOver, Unstorable
from handlers.repair.pages import BadPage, Fetched, Page
from handlers.repair.proof import WIDE, Borders
from handlers.run.group_ports import Ask, Wait

# How long a walk waits after a refusal at most, and how often.
PATIENT_S, PATIENT_TIMES = 10.0, 3
CURSOR_LOST = (400, pages.NOT_FOUND, 410, 422)
# How many events are stored before the turn is renewed: a page may have 100,000, which takes minutes.
AT_ONCE = 1_000


def repair_gap(ports: GapPorts, gap: Gap) -> Generator[Ask | Wait, Any, Repair]:
    """Returns the repair after this try, which is saved; raises TakenOver, and what a request raises."""
    repair = proof.current_repair(gap)
    # If this try is refused, the record keeps `lost_ms` until a page is read.
    uncounted = (repair.lost_ms, ports.deps.now_ms()) if repair.lost_ms else None
    borders: Borders = yield Ask(lambda: ports.find_borders(gap))
    problem, retry_s = ports.problem or proof.missing_edge(ports.field, borders), 0.0
    if not problem and uncounted is None:
        # If this function is killed, the next one counts what has been stored since.
        if not (yield Ask(partial(ports.save, gap, replace(repair, lost_ms=ports.deps.now_ms())))):
            raise TakenOver
        repair = replace(repair, stamp=repair.stamp + 1)
    while not problem:
        walk = _Walk(ports, gap, borders, repair.walk, uncounted)
        repair, problem, retry_s = yield from walk.steps(repair)
        if problem or proof.is_proved(ports.field, repair) or repair.walk == WIDE or max(map(len, borders[:2])) < 2:
            break
        repair = replace(repair, walk=WIDE, at="")
        uncounted = None  # The first walk has counted its events.
    if problem != UNFINISHED:
        repair = proof.judge_repair(ports.field, repair, borders, problem, retry_s, ports.deps.now_ms())
    if repair.is_over and repair.state != REPAIRED:
        # The alert comes before the record is saved as over: an alert twice is better than none.
        yield Ask(lambda: ports.alert(gap, repair))
    if not (yield Ask(lambda: ports.save(gap, repair))):
        raise TakenOver
    return replace(repair, stamp=repair.stamp + 1)


def _begin_anew(repair: Repair) -> Repair:
    seen = replace(repair, saw_before=False, saw_after=False, way=0, low=None, high=None)
    return replace(seen, at="", pages=0, items=0, first="", is_read=False, refused=0)


# The function's time is up: the next invocation continues the walk.
UNFINISHED = "unfinished"


class _Walk:
    """One walk over the pages: LITERAL asks between the events at the edges, WIDE between those beyond them.

    Events that a killed function stored in the interval `uncounted` are not in its counts.
    """

    def __init__(self, ports: GapPorts, gap: Gap, borders: Borders, number: int, uncounted: Interval | None) -> None:
        self._ports, self._gap, self._borders, self._number = ports, gap, borders, number
        self._before = borders.before[0].key if borders.before else None
        self._after = borders.after[0].key if borders.after else None
        self._edges = ports.edge_values(gap, borders, number)
        self._keys, self._instants = set[str](), list[int]()  # Those of the page before.
        self._uncounted, self._is_past = uncounted, False
        self._overlaps = ""  # The edge to ask from, once pages must overlap.

    def steps(self, repair: Repair) -> Generator[Ask | Wait, Any, tuple[Repair, str, float]]:
        """Returns the repair after the walk, why it is not whole ("" if it is), and the address's back-off."""
        ports, field = self._ports, self._ports.field
        begin = address = pages.numbered(field, field.address_for(ports.stream_id, self._edges, ports.secrets), 0)
        # If the profile names another address since, the walk begins there, so no former host gets the credentials.
        if repair.at and repair.of == field.mark:
            # The edges may have changed since, and with them the first page's address.
            begin, address = repair.begin or begin, repair.at
        else:
            repair = replace(_begin_anew(repair), of=field.mark, begin=self._recordable(begin))
        patience = PATIENT_TIMES
        while address:
            if not ports.deps.has_time:
                return repair, UNFINISHED, 0
            if repair.pages >= field.pages and not repair.is_read:
                return repair, f"there are more than {field.pages} pages", 0
            answer = yield from self._fetch(address)
            retry_s = answer.retry_after_s or 0
            if answer.problem and retry_s and retry_s <= PATIENT_S and patience:
                patience -= 1
                yield Wait(retry_s)
                if not (yield Ask(ports.renew_turn)):
                    raise TakenOver
                continue
            if pages.is_end(field, repair.pages, answer) and not repair.is_read:
                repair, address = self._following(repair, "", begin)
                continue
            if answer.problem:
                # The next try continues with this page, or begins anew if the page's cursor may be invalid by now.
                at = "" if answer.status in CURSOR_LOST else self._recordable(address)
                return replace(repair, at=at), answer.problem, retry_s
            try:
                read = pages.read(field, address, 0 if repair.is_read else repair.pages, answer, ports.deps.now_ms())
                if repair.is_read:
                    # The address forgets its oldest items first: with the walk's first one, no later page lacks any.
                    has_begin = any(event.key in (self._before, repair.first) for event in read.events)
                    return repair if has_begin else replace(repair, way=NO_ORDER), "", 0
                if problem := (yield from self._foreign_page(repair, read)):
                    raise BadPage(problem)
                instants = [at_ms for at_ms in read.times if at_ms is not None]
                following = read.next and (self._overlapping(instants) or read.next)
                if hole := self._hole(repair, read, begin, address, following):
                    if hole == pages.INSTANT and not self._overlaps and repair.way != NO_ORDER:
                        self._overlaps = proof.edge_of_begin(self._instants, instants)
                        if (overlapping := self._overlapping(self._instants)) not in ("", begin):
                            address = overlapping
                            continue
                    # The rest comes by the address's own cursors.
                    self._overlaps, repair, following = "", replace(repair, way=NO_ORDER), read.next
                self._instants = instants
                repair, address = yield from self._take(repair, read._replace(next=following), begin, address)
                if not (address or read.next) and repair.way == NO_ORDER and pages.has_more_items(field, answer):
                    raise BadPage("the answer says that it is a part, and its items have no order")
            except (BadPage, Unstorable) as problem:
                return replace(repair, at=""), str(problem), 0
        return repair, "", 0

    def _foreign_page(self, repair: Repair, read: Page) -> Generator[Ask, Any, str]:
        """Returns why no item of the page would be known although it is stored, as a phrase; "" if that is not so."""
        keys, borders = {event.key for event in read.events}, self._borders
        if proof.has_foreign_keys(borders.keys, keys):
            return "the address names its items in another form than the stream, so none would be known"
        is_by_hash = self._ports.field.key == "hash" and not repair.pages
        if not (is_by_hash and keys and borders.before and borders.after):
            return ""
        # The items before the gap or after it are stored already.
        is_known = bool((yield Ask(lambda: self._ports.known_keys(keys, borders.since_ms(self._gap)))))
        return "" if is_known else "the address spells its items otherwise than the stream, so no hash would be known"

    def _fetch(self, address: str) -> Generator[Ask | Wait, Any, Fetched]:
        ports, field = self._ports, self._ports.field
        if wait_s := ports.deps.pace.reserve_request(ports.deps.now_ms(), field.pace_s):
            yield Wait(wait_s)
        try:
            wanted = pages.page_request(ports.profile, field, address, ports.secrets)
        except ProfileError as problem:
            return Fetched(problem=str(problem))
        answer: Fetched = yield Ask(lambda: ports.deps.fetch(wanted))
        if not answer.problem:
            ports.deps.pace.put_off(ports.deps.now_ms(), answer.retry_after_s or 0)
        return answer

    def _following(self, repair: Repair, address: str, begin: str) -> tuple[Repair, str]:
        """Returns the repair after a page, and the address of the next one; "" if the walk is over.

        After pages towards the present that have shown both edges, the next one is the first page again.
        """
        if not address and repair.way == UP and repair.saw_before and repair.saw_after:
            repair, address = replace(repair, is_read=True), begin
        return replace(repair, at=self._recordable(address)), address

    def _take(self, repair: Repair, read: Page, begin: str, address: str) -> Generator[Ask, Any, tuple[Repair, str]]:
        """Stores what the page brings and saves that it was read; returns as `_following`."""
        earlier, (repair, (first, last)) = repair, self._mark(repair, [event.key for event in read.events], read.times)
        known = self._borders.keys
        is_by_time = repair.way != NO_ORDER and not proof.are_numbers([event.key for event in read.events])
        later_ms = proof.later_ms(self._ports.field, self._gap, self._borders, self._ports.deps.now_ms(), is_by_time)
        keep, events = self._ports.field.keep, read.events
        wanted = [
            at
            for at in range(first, last)
            if events[at].key not in known
            and (read.times[at] or 0) <= later_ms
            and (not keep or is_kept(keep, events[at].name, events[at].data))
        ]
        if wanted:
            events = [read.events[at] for at in wanted]
            if self._ports.profile.key == "id":
                events = [event._replace(id=event.key) for event in events]
            since_ms = self._borders.since_ms(self._gap)
            new = known_now = 0
            for place in range(0, len(events), AT_ONCE):
                if place and not (yield Ask(self._ports.renew_turn)):
                    raise TakenOver
                written: Written = yield Ask(partial(self._ports.store, events[place : place + AT_ONCE], since_ms))
                new += written.stored + written.dead_lettered
                known_now += written.duplicates
            if known_now and (time := self._uncounted) is not None:
                new += yield Ask(lambda: self._ports.count_repaired({event.key for event in events} - self._keys, time))
            times = [at_ms for at in wanted if (at_ms := read.times[at]) is not None]
            repair = replace(
                repair,
                stored=repair.stored + new,
                first_ms=min([*times, *([] if repair.first_ms is None else [repair.first_ms])], default=None),
                last_ms=max([*times, *([] if repair.last_ms is None else [repair.last_ms])], default=None),
            )
        keys = {event.key for event in read.events}
        if not repair.pages and read.events:
            repair = replace(repair, first=read.events[0].key)
        # A page without new items would be the next page for ever, so it ends the walk.
        has_passed = proof.has_passed_edge(self._ports.field.edges, earlier, repair, keys)
        self._is_past |= proof.has_passed_edge((), earlier, repair, keys) or (first > 0 and last < len(read.events))
        is_over = read.next in ("", address) or bool(keys and keys <= self._keys) or has_passed
        self._keys = keys
        now_ms = self._ports.deps.now_ms()
        repair = replace(repair, pages=repair.pages + 1, items=len(keys), next_ms=now_ms, lost_ms=0, refused=0)
        repair, address = self._following(repair, "" if is_over else read.next, begin)
        # If the record cannot name the next page, a killed walk begins again and counts from its last record on.
        is_saved, saved = bool(repair.at) or not address, replace(repair, lost_ms=now_ms)
        if not (yield Ask(lambda: self._ports.save(self._gap, saved) if is_saved else self._ports.renew_turn())):
            raise TakenOver
        return replace(repair, stamp=repair.stamp + is_saved), address

    def _recordable(self, address: str) -> str:
        """Returns the address for the gap's record; "" if it holds a secret, so the next try begins anew."""
        return "" if any(value in address for value in self._ports.secrets.values()) else address

    def _mark(self, repair: Repair, keys: Sequence[str], times: list[int | None]) -> tuple[Repair, tuple[int, int]]:
        """Returns the repair with the edges that the page shows, and the range of its items that may be missing."""
        fresh = [at for at, key in enumerate(keys) if key not in self._keys]
        before = keys.index(self._before) if self._before in keys else None
        after = keys.index(self._after) if self._after in keys else None
        seen = replace(
            proof.with_order(repair, proof.places([keys[at] for at in fresh], [times[at] for at in fresh])),
            saw_before=repair.saw_before or before is not None,
            saw_after=repair.saw_after or after is not None,
        )
        if before is None or after is None or seen.way == NO_ORDER:
            return seen, (0, len(keys))
        first, last = sorted((before, after))
        if not proof.are_numbers(keys) or None not in times:
            # Items of an edge's own time may be on either side of it.
            first, last = times.index(times[first]), len(times) - 1 - times[::-1].index(times[last])
        return seen, (first, last + 1)

    def _hole(self, repair: Repair, read: Page, begin: str, address: str, following: str) -> str:
        """Returns how a page that leads to `following` was requested, if events may be missing before it; else ""."""
        field, keys = self._ports.field, [event.key for event in read.events]
        way_to = pages.request_kind(field, begin, address, repair, self._edges, self._keys)
        way_to = pages.INSTANT if self._overlaps else way_to
        is_by_cursor = field.next is not None and not field.next.number
        # A cursor that leads back to its own page may not name all items. In an order, the last page may come again.
        is_same = is_by_cursor and not repair.way and set(keys) == self._keys != set()
        # If an instant has more items than a page holds, the page leads to itself.
        is_stuck = following == address and way_to == pages.INSTANT
        if is_same or (is_stuck and not self._keys.issuperset(keys)):
            return way_to or pages.SAME
        # Other items may share an edge's time and be on the page after the edge's, whatever their numbers.
        by_number = proof.are_numbers([repair.first])
        is_past = not repair.saw_after or self._is_past or (by_number and way_to != pages.INSTANT)
        if repair.saw_before == repair.saw_after and is_past:
            return ""
        # The page after an instant's last item may be empty although other items share the instant.
        is_next = way_to == pages.COUNT or (bool(keys) and not by_number)
        page = proof.places(keys, read.times)
        continues = not self._keys.isdisjoint(keys) or (is_next and proof.is_continuous(repair, page))
        return "" if continues and not (is_stuck and self._overlaps) else way_to

    def _overlapping(self, instants: list[int]) -> str:
        """Returns the address that begins before the last instant of a page; "" if the address has no such edge.

        A cursor may leave out items of that instant. The address has all of them if it begins before the instant.
        """
        field, edge = self._ports.field, self._overlaps
        if not instants or edge not in field.edges:
            return ""
        at_ms = max(instants) - field.time.step_ms if edge == "from" else min(instants) + field.time.step_ms
        edges = self._edges | {edge: field.time.instant_text(at_ms)}
        return field.address_for(self._ports.stream_id, edges, self._ports.secrets)

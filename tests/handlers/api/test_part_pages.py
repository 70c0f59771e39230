"""Pages of a stream that is read in parts: each event once, in its part's order, wherever a walk is interrupted."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from handlers.api import event_pages, queries
from handlers.api.queries import PageRequest
from handlers.api.stream_pages import merge_pages
from handlers.profile.addresses import MOST_PARTS, part_ids, tag_of
from handlers.store.event_items import Entry, StoredEvent
from streamkeeper.following import LATE_MS, Following
from tests.examples import examples
from tests.handlers.api_requests import read_all_pages

PARTS = part_ids("prices", "abcdefgh")
Page = dict[str, Any]


class Upstreams:
    """The entries of each part, each there from some instant on; an entry without an event has expired since."""

    def __init__(self, came: list[tuple[int, int, int, bool]], parts: int, late_ms: int = 0) -> None:
        """Make entries from `came`: the part, the wait since the last, the delay of the write, whether expired."""
        self.ids, self.now_ms = PARTS[:parts], 1_000_000_000_000
        self.entries: dict[str, list[tuple[int, Entry]]] = {one: [] for one in self.ids}
        there: dict[str, int] = dict.fromkeys(self.ids, 0)
        for number, (part, wait_ms, delay_ms, has_expired) in enumerate(came):
            self.now_ms += wait_ms
            part_id = self.ids[part % parts]
            # Unless events are late, a part stores them in the order of arrival.
            there[part_id] = max(0 if late_ms else there[part_id], self.now_ms + delay_ms)
            place = f"{self.now_ms:015d}/{1:012d}/{number:012d}"
            event = StoredEvent(f"k{number}", str(number), None, None, self.now_ms, 1, place)
            self.entries[part_id].append((there[part_id], Entry(place, None if has_expired else event)))
        self.end_ms = max([self.now_ms, *there.values()])

    def page(self, after: str, limit: int, at_ms: int) -> Page:
        """Return the page that the API answers at this instant."""

        def read(part_id: str, request: PageRequest) -> Page:
            there = sorted((one for when, one in self.entries[part_id] if when <= at_ms), key=lambda one: one.position)
            left = (one for one in there if one.position > request.after)
            return event_pages.page(part_id, left, request.limit, lambda: False)

        assert not after or event_pages.LISTING.place.fullmatch(after)
        return merge_pages(
            "prices", self.ids, PageRequest(after, limit), "events", read, lambda one: str(one["received_at"])
        )

    @property
    def wanted(self) -> dict[str, list[str]]:
        """Return the keys of all events that have not expired, by part."""
        return {
            part: [one.event.key for _, one in entries if one.event is not None]
            for part, entries in self.entries.items()
        }


CAME = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3_000), st.integers(0, 20_000), st.booleans()), max_size=40)


@pytest.mark.cpu(6)
@settings(max_examples=examples(400))
@given(CAME, st.integers(2, 8), st.lists(st.integers(1, 9), min_size=1), st.data())
def test_a_walk_has_each_event_once_in_its_parts_order(
    came: list[tuple[int, int, int, bool]], parts: int, limits: list[int], data: st.DataObject
) -> None:
    """A walk has each event once in its part's order, with any pages, late writes, and restarts after any event."""
    upstreams = Upstreams(came, parts)
    taken: list[Page] = []
    after, at_ms, turn = "", 1_000_000_000_000, 0
    while True:
        page = upstreams.page(after, limit := limits[turn % len(limits)], at_ms)
        events, turn = page["events"], turn + 1
        assert len(events) <= limit
        if events and data.draw(st.booleans()):
            # The walk was interrupted, and continues after the last event that it kept.
            kept = data.draw(st.integers(1, len(events)))
            taken, after = taken + events[:kept], events[kept - 1]["position"]
            continue
        assert page["next"] != after
        taken, after = taken + events, page["next"] or (events[-1]["position"] if events else after)
        if page["next"] is None:
            if at_ms > upstreams.end_ms:
                break
            at_ms += data.draw(st.integers(1, 30_000))
    keys = {part: [one["key"] for one in taken if one["stream"] == part] for part in upstreams.ids}
    assert keys == upstreams.wanted


@settings(max_examples=examples(200))
@given(CAME, st.integers(2, 8), st.integers(1, 9))
@example([(0, 1, 0, True), (0, 1, 0, False), (1, 1, 0, False)], 2, 2)
def test_stored_events_of_all_parts_come_in_order_of_arrival(
    came: list[tuple[int, int, int, bool]], parts: int, limit: int
) -> None:
    """Events that are all stored come in order of arrival across parts and pages, even past pages of expired events."""
    upstreams = Upstreams([(part, wait_ms, 0, has_expired) for part, wait_ms, _, has_expired in came], parts)
    pages = read_all_pages(lambda place: upstreams.page(place.get("after", ""), limit, upstreams.end_ms), "events")
    received = [one["received_at"] for one in pages]
    assert received == sorted(received)
    assert len(received) == sum(not has_expired for *_, has_expired in came)


@pytest.mark.cpu(14)
@settings(max_examples=examples(200))
@given(CAME, st.integers(2, 8), st.lists(st.integers(1, 4_000), min_size=1), st.integers(1, 9), st.data())
def test_a_follower_has_each_event_though_a_part_stores_it_late(
    came: list[tuple[int, int, int, bool]], parts: int, waits: list[int], limit: int, data: st.DataObject
) -> None:
    """A follower has each event once even if a part stores it up to 15 s late, also if it resumes from a place."""
    upstreams = Upstreams([(part, wait, late % LATE_MS, False) for part, wait, late, _ in came], parts, late_ms=LATE_MS)
    following, kept, at_ms, turn = Following(), list[str](), 1_000_000_000_000, 0
    before: set[str] = set()
    while at_ms < upstreams.end_ms + 3 * LATE_MS:
        page = upstreams.page(following.after(at_ms), limit, at_ms)
        place = queries.read_places(following.place)
        kept += [one["key"] for one in following.take(page, at_ms)]
        later = queries.read_places(following.place)
        assert all(later.get(part, "") >= place[part] for part in place)
        if following.is_behind:
            continue
        if data.draw(st.integers(0, 9)) == 0:
            assert len(kept) == len(set(kept))
            before, kept, following = before | set(kept), [], Following(following.resume(following.place))
        at_ms, turn = at_ms + waits[turn % len(waits)] + 500, turn + 1
    assert len(kept) == len(set(kept))
    assert before | set(kept) == {key for keys in upstreams.wanted.values() for key in keys}


def test_an_answer_has_room_for_the_largest_events_of_each_part() -> None:
    """Large events that do not fit into an answer come on a later page; a part that was not read keeps its place."""
    big = "x" * 2_500_000

    def entry(part: str, number: int) -> Entry:
        place = f"{number:015d}/{1:012d}/{number:012d}"
        return Entry(place, StoredEvent(f"{part}{number}", big, None, None, number, 1, place))

    came = {part: [entry(part, number) for number in (1, 2)] for part in PARTS[:3]}

    def read(part_id: str, request: PageRequest) -> Page:
        left = [one for one in came[part_id] if one.position > request.after]
        return event_pages.page(part_id, left, request.limit, lambda: False)

    keys: list[str] = []
    after: str | None = ""
    while after is not None:
        page = merge_pages(
            "prices", PARTS[:3], PageRequest(after, 8), "events", read, lambda one: str(one["received_at"])
        )
        assert 1 <= len(page["events"]) <= 2
        keys += [one["key"] for one in page["events"]]
        after = page["next"]
    assert sorted(keys) == sorted(f"{part}{n}" for part in PARTS[:3] for n in (1, 2))


def test_a_place_has_each_part_by_its_tag() -> None:
    """A position names each part by its tag, first the event's own part, and has room for the most parts."""
    places = {tag_of(f"prices:{n}"): f"{n:015d}/{1:012d}/{n:012d}" for n in range(MOST_PARTS)}
    first = tag_of("prices:3")
    place = queries.places_text(places, first)
    assert queries.read_places(place) == places
    assert place.startswith(f"{queries.PARTS}{first}")
    assert event_pages.LISTING.place.fullmatch(place)
    assert (queries.places_text({}), queries.read_places("")) == ("", {})

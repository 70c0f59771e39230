"""The pages of a repair address: their order, their end, the next page, and an interrupted walk."""

import json
import random
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from handlers.connection.gap_record import DOWN, FAILED, NO_ORDER, PARTLY, REPAIRED, UP, Repair
from handlers.profile.addresses import with_query
from handlers.profile.parse import parse
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.repair.gap_ports import TURN_MS
from handlers.repair.pages import Fetched
from handlers.repair.proof import has_passed_edge, is_continuous, places, with_order
from local.simulation.virtual_rest import RestWays, VirtualRest
from tests.handlers.context import Killed
from tests.handlers.repair.rigs import MISSED, REPAIR, STREAM, Rig, body, repaired_events


@pytest.mark.parametrize("limit", [2, 3, 100])
@pytest.mark.parametrize("address", ["after={after}&before={before}", "after={after}", "before={before}"])
def test_an_address_without_an_order_hides_nothing(address: str, limit: int) -> None:
    """At an unordered address all pages are read and stored; only a single page can prove the gap closed."""
    ways = RestWays(limit=limit, is_inclusive=True, is_shuffled=True)
    rig = Rig(ways, address=f"https://rest.example/events?{address}")
    rig.run(left_ms=1_000)
    assert sorted(repaired_events(rig)) == MISSED
    assert rig.repaired.state == (REPAIRED if limit == 100 else PARTLY)


@pytest.mark.parametrize(
    ("status", "headers", "said", "state"),
    [
        (206, {}, {}, PARTLY),
        (206, {"content-range": "0-9/10"}, {}, REPAIRED),
        (200, {"content-range": "0-9/*"}, {}, REPAIRED),
        (200, {"content-range": "items 0-9/11"}, {}, PARTLY),
        (200, {"link": '<?page=2>; rel="next"'}, {}, PARTLY),
        (200, {"x-total-count": "7", "content-length": "900"}, {"total": 7, "next": None, "has_more": False}, REPAIRED),
        (200, {"x-total-count": "8"}, {}, PARTLY),
        (200, {"x-next-page": "2"}, {}, PARTLY),
        (200, {}, {"has_more": True}, PARTLY),
        (200, {}, {"paging": {"nextPageToken": "x"}}, PARTLY),
        (200, {}, {"@odata.nextLink": "https://rest.example/2"}, PARTLY),
        (200, {}, {"meta": {"totalCount": 8}}, PARTLY),
    ],
)
@pytest.mark.parametrize("is_shuffled", [True, False])
def test_a_partial_answer_without_an_order_proves_nothing(
    status: int, headers: dict[str, str], said: dict[str, Any], state: str, is_shuffled: bool
) -> None:
    """Without an order a partial answer may lack any item; in order it has all items between the edges."""
    rig = Rig(RestWays(limit=100, is_inclusive=True, is_shuffled=is_shuffled), next=None)
    fetch = rig.rest.fetch

    def answers(request: UpstreamRequest) -> Fetched:
        answer = fetch(request)
        text = json.dumps(json.loads(answer.body) | said)
        return replace(answer, status=status, headers=headers, body=text.encode())

    rig.rest.fetch = answers  # type: ignore[method-assign]
    rig.run(left_ms=1_000)
    assert rig.repaired.state == (state if is_shuffled else REPAIRED)


class Numbered(VirtualRest):
    """An address of numbered pages of three; after the last page, or after page `ends_after`, it answers 404.

    Its links count pages, or items if it `skips`.
    """

    ends_after, begins, skips = 1000, 1, False
    gone: tuple[int, ...] = ()

    def fetch(self, request: UpstreamRequest) -> Fetched:
        self.addresses.append(request.address)
        asked = {name: int(values[0]) for name, values in parse_qs(urlsplit(request.address).query).items()}
        skipped = asked.get("skip", 3 * (asked.get("page", self.begins) - self.begins))
        number = skipped // 3 + 1
        numbers = range(asked["after"], asked["before"] + 1)
        left = [one for one in numbers if one not in self.gone][skipped:]
        page, rest = left[:3], left[3:]
        if not page or number > self.ends_after:
            return Fetched(404, problem="answered 404")
        count = ("skip", skipped + 3) if self.skips else ("page", number + 1)
        following = with_query(request.address, count[0], str(count[1])) if rest else ""
        events = f'{{"events":[{",".join(map(body, page))}],"next":"{following}"}}'
        return Fetched(200, {"link": f"<{following}>; rel=next"}, events.encode())


@pytest.mark.parametrize(
    ("following", "ends_after", "state", "asked"),
    [
        ({"number": "page"}, 1000, REPAIRED, 6), ({"number": "page"}, 1, PARTLY, 5),
        ({"number": "skip", "step": 3}, 1000, REPAIRED, 6), ({"number": "skip", "step": 3}, 1, PARTLY, 7),
    ],
)  # fmt: skip
def test_numbered_pages_may_end_with_a_404(following: dict[str, Any], ends_after: int, state: str, asked: int) -> None:
    """A 404 after the first page ends the walk, which proves the pages read; on the first page it is a refusal.

    Events that a killed function has stored of the first page are counted once, even if the second page has them too.
    """
    rig = Rig(next=following)
    rest = rig.rest = Numbered(RestWays(), lambda: rig.now, rig.emitted_ms, body)
    rest.ends_after, rig.dies_after = ends_after, 9
    with pytest.raises(Killed):
        rig.run()
    rig.dies_after, rig.now = None, rig.now + TURN_MS
    rig.run(left_ms=1_000)
    assert (rig.repaired.state, len(rest.addresses)) == (state, asked)
    rest.ends_after = 0
    if state == PARTLY:
        rig.now = rig.repaired.next_ms
        rig.run()
        assert (rig.repaired.state, rig.repaired.reason) == (PARTLY, "answered 404")
    else:
        assert (repaired_events(rig), rig.repaired.stored) == (MISSED, len(MISSED))


@pytest.mark.parametrize(
    ("following", "begins", "state", "asked"),
    [({"number": "page"}, 0, PARTLY, 6), ({"number": "skip", "first": 1, "step": 3}, 1, REPAIRED, 8),
     ({"number": "skip", "step": 5}, 1, PARTLY, 2)],
)  # fmt: skip
def test_a_profile_that_counts_pages_differently_skips_no_event(
    following: dict[str, Any], begins: int, state: str, asked: int
) -> None:
    """If profile and address count pages differently, a hole between pages proves nothing.

    The first page is requested by its number too, and a page with fewer items than a step is the last.
    """
    rig = Rig(next=following)
    rest = rig.rest = Numbered(RestWays(), lambda: rig.now, rig.emitted_ms, body)
    rest.begins = begins
    rig.run(left_ms=1_000)
    assert set(MISSED) <= {number for number, _ in rig.stored()} or rig.repaired.state == PARTLY
    assert (rig.repaired.state, len(rest.addresses)) == (state, asked)


@pytest.mark.parametrize("following", [{"number": "page"}, {"link": "next"}, {"cursor": "$.next"}])
@pytest.mark.parametrize("page", [1, 2])
def test_an_item_that_is_deleted_between_two_counted_pages_hides_no_other(page: int, following: dict[str, Any]) -> None:
    """A deleted item moves the next page's first item to the page already read: that item comes with a later walk."""
    rig = Rig(next=following, pace_s=0, missed=range(10, 20), events=30)
    rest = rig.rest = Numbered(RestWays(), lambda: rig.now, rig.emitted_ms, body)
    fetch, deleted = rest.fetch, [3 * page + 7, 3 * page + 8]

    def deletes(request: UpstreamRequest) -> Fetched:
        answer = fetch(request)
        if deleted and (request.address.partition("page=")[2] or "1") == str(page):
            rest.gone += (deleted.pop(0),)
        return answer

    rest.fetch = deletes  # type: ignore[method-assign]
    rig.run(left_ms=1_000)
    assert rig.repaired.state == PARTLY
    rig.now = rig.repaired.next_ms
    rig.run(left_ms=1_000)
    assert (sorted(repaired_events(rig)), rig.repaired.state) == (list(range(10, 20)), REPAIRED)


@pytest.mark.parametrize("skips", [False, True])
def test_an_item_that_is_deleted_after_a_kill_hides_no_other(skips: bool) -> None:
    """The function after a kill knows how the page before was counted, and sees the hole after it."""
    rig = Rig(next={"link": "next"}, missed=range(10, 20), events=30)
    rest = rig.rest = Numbered(RestWays(), lambda: rig.now, rig.emitted_ms, body)
    rest.skips, rig.dies_after = skips, 10
    with pytest.raises(Killed):
        rig.run()
    assert rig.repaired.pages == 1
    rest.gone, rig.dies_after, rig.now = (11,), None, rig.now + TURN_MS + rig.pace_ms
    rig.run()
    assert (rig.repaired.state, sorted(repaired_events(rig))) == (REPAIRED, list(range(10, 20)))


def test_an_offset_that_is_also_a_key_hides_no_item() -> None:
    """If item 4 is deleted, `skip=3` leads to 7, which looks like the page after item 3; no item is missed."""
    rig = Rig(next={"link": "next"}, missed=range(4, 10))
    rest = rig.rest = Numbered(RestWays(), lambda: rig.now, rig.emitted_ms, body)
    rest.skips, fetch = True, rest.fetch

    def deletes(request: UpstreamRequest) -> Fetched:
        answer, rest.gone = fetch(request), (4,)
        return answer

    rest.fetch = deletes  # type: ignore[method-assign]
    rig.run()
    assert (rig.repaired.state, sorted(repaired_events(rig))) == (REPAIRED, list(range(4, 10)))


@pytest.mark.parametrize(
    ("page", "by_number", "by_time"),
    [([12, 13], True, False), ([11, 12], True, False), ([13, 14], False, False), ([10, 12], True, True),
     ([8, 7], True, False), ([7, 6], False, False), ([9, 8], True, False), ([], True, True)],
)  # fmt: skip
def test_a_page_continues_another_without_a_hole(page: list[int], by_number: bool, by_time: bool) -> None:
    """A page continues the page before, 9 to 11, if no item between can be missing; several may share a time."""
    repair = Repair(low=9, high=11)
    assert is_continuous(repair, places([str(one) for one in page], [None] * len(page))) == by_number
    assert is_continuous(repair, places([f"key {one}" for one in page], page)) == by_time


FOREIGN = "the address names its items in another form than the stream, so none would be known"


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        ('{"id":%d.0}', FOREIGN), ('{"id":"0%d"}', FOREIGN), ('{"id":"n%d"}', FOREIGN),
        ('{"number":%d}', "no item has the key that the profile names"),
        ("%d]", "the answer is not JSON with a list at $.events"),
        (f"%d{',1' * 100_000}", "the page has more values than a function can hold"),
        (f'{{"id":%d,"of":[1{",1" * 200_000}]}}', "the page has more values than a function can hold"),
    ],
)  # fmt: skip
def test_items_without_the_streams_keys_are_not_stored(one: str, reason: str) -> None:
    """Items whose keys are absent or in another form are not stored, because each event would come twice.

    A page that is not JSON, or has too many values, is not read.
    """
    rig = Rig()
    rest = rig.rest = VirtualRest(RestWays(), lambda: rig.now, rig.emitted_ms, lambda number_: one % number_)
    rig.run(left_ms=1_000)
    assert (rig.repaired.state, rig.repaired.stored, rig.repaired.reason) == (FAILED, 0, reason)
    assert len(rest.addresses) == 1


def replace_in_answers(rest: VirtualRest, old: bytes, new: bytes) -> None:
    """Puts another text into the body of each answer."""
    fetch = rest.fetch

    def changed(request: UpstreamRequest) -> Fetched:
        answer = fetch(request)
        return replace(answer, body=answer.body.replace(old, new))

    rest.fetch = changed  # type: ignore[method-assign]


@pytest.mark.parametrize("last", ["false", "0", "null", '""'])
def test_an_empty_cursor_ends_the_walk(last: str) -> None:
    """A cursor of false, 0, null or "" means that there is no next page."""
    rig, rest = linked("", next_={"cursor": "$.next", "query": "page"})
    replace_in_answers(rest, b'""', last.encode())
    rig.run(left_ms=1_000)
    assert {urlsplit(one).query.partition("page=")[1] for one in rest.addresses} == {""}


def test_an_empty_list_may_be_null() -> None:
    """An empty list may be null, as Go writes it; the second walk shows both edges, so the gap is repaired."""
    rig = Rig(missed=range(10, 10))
    replace_in_answers(rig.rest, b"[]", b"null")
    rig.run(left_ms=1_000)
    assert (rig.repaired.state, rig.repaired.stored) == (REPAIRED, 0)


class Linked(VirtualRest):
    """An address of two pages, where `following` is the first page's next; `dead` cursors are always refused."""

    following, bom = "", b""
    dead: tuple[str, ...] = ()

    def fetch(self, request: UpstreamRequest) -> Fetched:
        self.addresses.append(request.address)
        page = parse_qs(urlsplit(request.address).query).get("page", [""])[0]
        if page in self.dead:
            return Fetched(410 if len(self.addresses) > 2 else 500, problem="refused")
        numbers, following = (range(12, 16), "") if page else (range(9, 12), self.following)
        events = f'{{"events":[{",".join(map(body, numbers))}],"next":"{following}"}}'
        return Fetched(200, {}, self.bom + events.encode())


def linked(following: str, *dead: str, next_: dict[str, str], bom: bytes = b"") -> tuple[Rig, Linked]:
    """Return a rig with such an address."""
    rig = Rig(next=next_)
    rest = Linked(RestWays(), lambda: rig.now, rig.emitted_ms, body)
    rig.rest, rest.following, rest.dead, rest.bom = rest, following, dead, bom
    return rig, rest


@pytest.mark.parametrize(
    ("following", "reason"),
    [
        ("/events?page=2", ""),
        ("https://rest.example:443/events?page=2", ""),
        ("https://other.example/", "the next page is at another host"),
        ("http://rest.example/", "the next page is at another host"),
        ("file:///etc/passwd", "the next page is at another host"),
        ("https://a:b@rest.example/", "the next page has no valid address"),
        ("https://[rest.example/", "the next page has no valid address"),
        ("https://rest.example:99999/", "the next page has no valid address"),
        ("/" + "x" * 9000, "the next page has a longer address than a record can hold"),
    ],
)
def test_the_next_page_is_at_the_same_origin(following: str, reason: str) -> None:
    """A next page at another origin, or with an invalid address, fails the repair; the reason does not quote it."""
    rig, _ = linked(following, next_={"cursor": "$.next"}, bom=b"\xef\xbb\xbf")
    assert rig.run(left_ms=1_000).status == "done"
    assert (rig.repaired.state, rig.repaired.reason) == (FAILED if reason else REPAIRED, reason)


def test_a_cursor_that_has_expired_is_replaced_by_a_new_one() -> None:
    """After a failure a walk continues at its page; if the address refuses that page, the walk begins anew."""
    rig, rest = linked("old", "old", next_={"cursor": "$.next", "query": "page"})
    rig.run(left_ms=1_000)
    rest.following = "new"
    for _ in range(2):
        rig.now = rig.repaired.next_ms
        rig.run(left_ms=1_000)
    assert rig.repaired.state == REPAIRED
    assert [parse_qs(urlsplit(one).query).get("page") for one in rest.addresses] == [
        None, ["old"], ["old"], None, ["new"], None,
    ]  # fmt: skip


@pytest.mark.parametrize("address", ["https://new.example/events", "https://rest.example/all"])
def test_a_walk_does_not_continue_at_a_former_profiles_address(address: str) -> None:
    """After the profile's address changed, a walk begins anew there: credentials and pages belong to that address.

    A former address may have requested a part of the events.
    """
    rig, rest = linked("old", "old", next_={"cursor": "$.next", "query": "page"})
    rig.run(left_ms=1_000)
    rest.dead = ()
    changed = {"address": f"{address}?after={{after}}", "next": {"cursor": "$.next", "query": "page"}}
    rig.profile = parse("s", {**STREAM, "repair": REPAIR | changed}, {})
    rig.now = rig.repaired.next_ms
    rig.run(left_ms=1_000)
    assert [one.partition("?")[0] for one in rest.addresses[2:]] == [address] * 3
    assert rig.repaired.state == REPAIRED


@pytest.mark.parametrize("limit", [3, 5])
@pytest.mark.parametrize("is_inclusive", [False, True])
@pytest.mark.parametrize("most", [7, 9])
@pytest.mark.parametrize(("coat", "name"), [("%d", "k%d"), ("v1:%d", "k%d"), ("", "k%d"), ("%d", "%d")])
def test_items_of_one_instant_hide_none(limit: int, is_inclusive: bool, most: int, coat: str, name: str) -> None:
    """If pages end by time and items share an instant, only overlapping pages prove the gap closed.

    An address that begins at `from` overlaps if a page has more than one instant; the third address ignores `from`. An
    empty page does not show in which direction to overlap. On a page, numbers may be in order by chance.
    """
    rig = Rig(named=lambda one: name % one, time="$.at", address="https://rest.example/events?from={from}")
    at_s = {one: rig.at(12 if 12 <= one <= 15 else one) // 1000 for one in (9, 10, 11, 12, 15, 13, 14, 16, 17)[:most]}

    def fetch(request: UpstreamRequest) -> Fetched:
        begin, _, page = request.address.partition("from=")[2].partition("&page=")
        after, begin_ms = int(page.removeprefix("v1%3A") or 0), int(begin) if coat else 0
        left = [one for one in at_s if at_s[one] > after or (is_inclusive and at_s[one] == after)]
        left = [one for one in left if at_s[one] * 1000 > begin_ms]
        items = [{"id": name % one, "at": at_s[one] * 1000} for one in left[:limit]]
        following = (coat or "%d") % at_s[left[limit - 1]] if left[limit:] else None
        return Fetched(200, {}, json.dumps({"events": items, "next": following}).encode())

    rig.rest.fetch = fetch  # type: ignore[method-assign]
    rig.run(left_ms=1_000)
    is_shown = limit == 5 and (is_inclusive or (coat and most == 9)) and name == "k%d"
    assert rig.repaired.state == (REPAIRED if is_shown else PARTLY)
    came = [number for number, is_repaired in rig.stored() if is_repaired]
    assert rig.repaired.state == PARTLY or sorted(map(str, came)) == [f"k{one}" for one in MISSED]


@pytest.mark.parametrize(("edge", "asked"), [("after", 6), ("from", 8)])
def test_an_address_without_an_end_is_read_as_far_as_the_edge(edge: str, asked: int) -> None:
    """An address without a far edge is read only up to the edge; then the first page is read once more.

    The address may begin at a key, or at an instant (here before all events).
    """
    rig = Rig(RestWays(limit=3), address=f"https://rest.example/events?{edge}={{{edge}}}", events=400)
    rig.run()
    assert (rig.repaired.state, repaired_events(rig)) == (REPAIRED, MISSED)
    assert len(rig.rest.asked) == asked


SEEN = Repair(way=UP, saw_after=True, low=5, high=9)
PASSED = replace(SEEN, low=9, high=10)


@pytest.mark.parametrize(
    ("bounds", "earlier", "repair", "keys", "is_over"),
    [
        ("after", replace(SEEN, saw_after=False), SEEN, "12", True), ("after", SEEN, PASSED, "ab", True),
        ("from", replace(SEEN, saw_after=False), SEEN, "ab", False), ("from", SEEN, PASSED, "ab", True),
        ("from", SEEN, replace(SEEN, low=9), "ab", False), ("from to", SEEN, PASSED, "12", False),
        ("to", SEEN, PASSED, "12", False), ("from", *2 * [replace(SEEN, way=NO_ORDER)], "12", False),
        ("to", *(Repair(way=DOWN, saw_before=True, low=low) for low in (9, 8)), "ab", True),
        ("to", *(Repair(way=DOWN, saw_before=True, low=low) for low in (9, 9)), "ab", False),
    ],
)  # fmt: skip
def test_only_a_page_beyond_an_edges_time_has_passed_it(
    bounds: str, earlier: Repair, repair: Repair, keys: str, is_over: bool
) -> None:
    """By time, a walk has passed an edge only with a later time, because other items may share the edge's time."""
    assert has_passed_edge(bounds.split(), earlier, repair, list(keys)) is is_over


def test_a_refused_walk_continues_at_its_page() -> None:
    """Two walks of 16 pages or more end in 77 s at an address that fails nine times, and no page is read twice.

    The second read of the first page is resumed too; the back-off counts the failures at one page.
    """
    rig, draws = Rig(RestWays(limit=2), missed=range(10, 42), events=60), random.Random(1)
    fetch, begun_ms = rig.rest.fetch, rig.now
    refusal = Fetched(503, problem="answered 503")

    def fails(request: UpstreamRequest) -> Fetched:
        return refusal if draws.random() < 0.15 else fetch(request)

    rig.rest.fetch = fails  # type: ignore[method-assign]
    rig.run()
    while rig.repaired.state != REPAIRED:
        rig.now = rig.repaired.next_ms
        rig.run()
    assert (repaired_events(rig), rig.now - begun_ms) == (list(range(10, 42)), 77_102)
    first = [one for one in rig.rest.addresses if "page=" not in one]
    assert len(rig.rest.addresses) - len(set(rig.rest.addresses)) == len(first) - len(set(first)) == 1


def test_an_address_that_forgets_during_the_walk_proves_nothing() -> None:
    """If an item becomes too old during the walk, the edge before the gap is gone too, and only a part is repaired."""
    rig = Rig(RestWays(limit=3, keeps_ms=11_200, is_inclusive=True), pace_s=4)
    rig.run(left_ms=4_500)
    assert rig.repaired.state == PARTLY
    assert [number for number, is_repaired in rig.stored() if is_repaired] == [10, 11, 13, 14]


@pytest.mark.parametrize(
    ("pages", "way"),
    [
        ([[9, 10], [11]], UP), ([[11, 9], [8, 7]], DOWN), ([[11]], 0), ([[9, 10], [10, 11]], UP),
        ([[11, 10, 9, 11], [13, 12]], UP), ([[9, 10], [8]], DOWN), ([[9, 12], [10, 13]], NO_ORDER),
        ([[9, 11, 10]], NO_ORDER), ([[9], [10], [8]], NO_ORDER), ([[9, 9], [9, 10]], UP),
    ],
)  # fmt: skip
def test_an_order_is_that_of_the_pages(pages: list[list[int]], way: int) -> None:
    """The order of an address, by number or time, follows from its pages; a page may be reversed or repeat an item."""
    by_time = by_number = Repair()
    for page in pages:
        by_number = with_order(by_number, places([str(one) for one in page], [None] * len(page)))
        by_time = with_order(by_time, places([f"key {one}" for one in page], page))
    assert (by_number.way, by_time.way) == (way, way)


def test_the_edge_may_be_on_a_later_page() -> None:
    """An address by time is requested from some seconds before the gap; after the walk its first page is read again.

    The same holds if another function continues the walk, with at most one repeated request.
    """
    for count in (None, *range(26)):
        rig = Rig(RestWays(limit=4), address="https://rest.example/events?from={from}&to={to}")
        rig.dies_after = count
        with nullcontext() if count is None else pytest.raises(Killed):
            rig.run()
        rig.dies_after, rig.now = None, rig.now + TURN_MS + rig.pace_ms
        rig.run()
        assert (rig.repaired.state, repaired_events(rig)) == (REPAIRED, MISSED)
        assert len(rig.rest.asked) in (6, 7)


@pytest.mark.parametrize("page", range(6))
def test_a_limit_that_an_answer_uses_up_is_obeyed(page: int) -> None:
    """The next request waits until a used-up limit is renewed, in this function or a later one; the walk continues."""
    rig = Rig(RestWays(limit=3))
    fetch, used_up_ms = rig.rest.fetch, list[int]()

    def limits(request: UpstreamRequest) -> Fetched:
        is_last = len(rig.rest.asked) == page
        used_up_ms.extend([rig.now] * is_last)
        return replace(fetch(request), retry_after_s=400.0 if is_last else None)

    rig.rest.fetch = limits  # type: ignore[method-assign]
    rig.run(left_ms=60_000)
    assert max(rig.rest.asked) == used_up_ms[0]
    rig.now = used_up_ms[0] + 399_000
    assert rig.run(left_ms=60_000).status == "busy"
    rig.now += 2_000
    rig.run(left_ms=60_000)
    assert (rig.repaired.state, repaired_events(rig)) == (REPAIRED, MISSED)

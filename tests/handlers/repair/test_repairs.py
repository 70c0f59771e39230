"""The function that repairs gaps, at an address that pages, lags, refuses and lies: its stored events and reports."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from handlers.connection.gap_record import DELIVERED, FAILED, LOST, PARTLY, REPAIRED, Gap, Repair
from handlers.connection.inputs import Layout
from handlers.framing.events import hash_key
from handlers.framing.frames import Frame
from handlers.profile.parse import parse
from handlers.profile.secret_references import Reference
from handlers.repair import gap_edges, gap_ports
from handlers.repair.gap_ports import TURN_MS
from handlers.repair.pages import Fetched
from handlers.segments import known_keys
from handlers.store.ledger_records import gap_item
from local.simulation.virtual_rest import RestWays
from tests.examples import one_in
from tests.handlers.context import Killed
from tests.handlers.repair.rigs import MISSED, REPAIR, STREAM, Rig, body, item, repaired_events

STORES = ("items", "log")


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("is_inclusive", [False, True])
@pytest.mark.parametrize("limit", [2, 5, 100])
def test_missed_events_are_stored_once_and_marked(store: str, is_inclusive: bool, limit: int) -> None:
    """Missed events are stored once, after the later ones, in items or a log, with any pages, and are counted."""
    rig = Rig(RestWays(limit=limit, is_inclusive=is_inclusive), store=store)
    assert rig.run().status == "done"
    assert repaired_events(rig) == MISSED
    assert [number for number, _ in rig.stored()][-5:] == MISSED
    assert (rig.repaired.state, rig.repaired.stored, rig.repaired.reason) == (REPAIRED, 5, "")
    assert rig.repaired.span == (rig.gap.from_ms, rig.gap.to_ms)


@pytest.mark.parametrize(
    ("is_inclusive", "asked"), [(False, ["after=9&before=15", "after=8&before=16"]), (True, ["after=9&before=15"])]
)
def test_an_address_that_leaves_out_the_edges_is_requested_beyond_them(is_inclusive: bool, asked: list[str]) -> None:
    """The first request is between the keys at the edges; if the answer lacks them, the next goes beyond them."""
    rig = Rig(RestWays(limit=100, is_inclusive=is_inclusive))
    rig.run()
    assert [address.partition("?")[2] for address in rig.rest.addresses] == asked


@pytest.mark.parametrize("missed", [range(10, 15), range(10, 10)], ids=["events are missing", "nothing happened"])
@pytest.mark.parametrize("lie", ["is empty", "forgets the edges", "is a page for people"])
def test_an_answer_without_an_overlap_proves_nothing(lie: str, missed: range) -> None:
    """Events of an answer without both edges are stored, but the gap is repaired only once the address shows them."""
    rig = Rig(RestWays(limit=100, lie=lie, lies_ms=10**9), missed=missed)
    rig.run(left_ms=1_000)
    repair = rig.repaired
    assert repair.state == (PARTLY if repair.stored else FAILED)
    assert repair.reason
    assert repair.next_ms > rig.now
    rig.change_ways(lie="")
    rig.now = repair.next_ms
    rig.run(request=False)
    assert rig.repaired.state == REPAIRED
    assert sorted(repaired_events(rig)) == list(missed)


def test_an_address_that_lags_is_asked_until_it_has_the_event_after_the_gap() -> None:
    """An address that lags is requested again at growing intervals until it has the event after the gap."""
    rig = Rig(RestWays(lag_ms=20_000, limit=100))
    rig.run()
    assert rig.repaired.state == REPAIRED
    assert rig.repaired.tries > 2
    assert repaired_events(rig) == MISSED
    pauses = [later - earlier for earlier, later in zip(rig.rest.asked, rig.rest.asked[1:], strict=False)]
    rests = [pause for pause in pauses if pause > 1_000]
    assert rests == sorted(rests)
    assert rests[-1] > 1.9 * rests[0]


def test_an_address_that_has_not_come_so_far_yet_repairs_a_part() -> None:
    """If the address lacks the event after the gap, events between may be missing, and only a part is repaired."""
    rig = Rig(RestWays(lag_ms=10_000, limit=100), time="$.at")
    rig.run(left_ms=1_000)
    repair = rig.repaired
    assert (repair.state, repair.stored) == (PARTLY, 1)
    assert repair.reason == "the address does not have the first event after the gap"
    assert (repair.open_from_ms, repair.open_to_ms) == (rig.at(10), None)


def test_no_request_is_sent_before_after_s_is_over() -> None:
    """The first request comes `after_s` after the gap, because the address lags behind the stream."""
    rig = Rig(RestWays(limit=100), after_s="1m")
    rig.now = rig.gap.to_ms + 40_000
    rig.run()
    assert rig.rest.asked[0] >= rig.gap.to_ms + 60_000
    assert rig.repaired.state == REPAIRED


def test_the_pace_is_kept_between_pages() -> None:
    """Two requests are at least `pace_s` apart."""
    rig = Rig(RestWays(limit=2), pace_s=1.5)
    rig.run()
    assert len(rig.rest.asked) > 3
    assert all(later - earlier >= 1500 for earlier, later in zip(rig.rest.asked, rig.rest.asked[1:], strict=False))


def test_retry_after_is_obeyed_by_all_streams_of_the_profile() -> None:
    """A long Retry-After ends the turn, and no function gets the next turn before it is over."""
    rig = Rig(RestWays(refuses=100, seed=3))
    while not item(rig.tables, "s", "repairing") or rig.repaired.rest_until_ms <= rig.now:
        rig.now += TURN_MS
        rig.run()
    until_ms = int(item(rig.tables, "s", "repairing")["until_ms"]["N"])
    assert until_ms == rig.repaired.rest_until_ms
    assert rig.run().status == "busy"
    rig.change_ways(refuses=0)
    rig.now = max(until_ms, rig.repaired.next_ms)
    assert (rig.run().status, rig.repaired.state) == ("done", REPAIRED)


@pytest.mark.parametrize(
    ("store", "limit", "is_refused"), one_in(3, itertools.product(STORES, [2, 100], [False, True]))
)
def test_a_kill_at_any_place_loses_nothing_and_stores_nothing_twice(store: str, limit: int, is_refused: bool) -> None:
    """After a kill at any request, the next function continues at the first unread page and counts all stored events.

    This holds even if a function between the two was refused.
    """
    count, longest = 0, 0
    while True:
        rig = Rig(RestWays(limit=limit), store=store)
        rig.dies_after = count
        try:
            rig.run()
            break
        except Killed:
            asked = len(rig.rest.asked)
        rig.dies_after, rig.now = None, rig.now + TURN_MS + rig.pace_ms
        if is_refused:
            rig.change_ways(refuses=100)
            rig.run(left_ms=1_000)
            rig.change_ways(refuses=0)
            rig.now += 100_000
        assert rig.run(request=not item(rig.tables, "s", "repair")).status == "done"
        assert (rig.repaired.state, rig.repaired.stored) == (REPAIRED, len(MISSED))
        assert repaired_events(rig) == MISSED
        longest = max(longest, asked)
        count += 1
    whole = len(rig.rest.asked)
    assert count > 8
    assert longest == whole


@pytest.mark.parametrize(("cause", "state"), [("over_budget", REPAIRED), ("ids_restarted", PARTLY)])
def test_events_left_out_on_purpose_are_fetched_only_on_request(cause: str, state: str) -> None:
    """Events that a budget left out, or with restarted ids, which are ambiguous, are fetched only on request."""
    rig = Rig(RestWays(limit=100))
    rig.store.ledger._table.put(gap_item("s", replace(rig.gap, cause=cause)))
    rig.run()
    assert rig.rest.asked == []
    (gap,) = rig.records.newest_gaps("s", 1)
    rig.store.ledger.save_repair("s", gap, gap_edges.repair_again(gap, rig.now))
    rig.run(left_ms=1_000)
    assert (rig.repaired.state, repaired_events(rig)) == (state, MISSED)


@pytest.mark.parametrize("seed", range(3))
def test_gaps_that_touch_count_each_event_once(seed: int) -> None:
    """Of two gaps between the same events, each event counts in one, even if one walk was refused."""
    rig = Rig(RestWays(limit=2, refuses=30, seed=seed), missed=range(10, 20), events=30)
    notice = Gap(2, rig.gap.from_ms, rig.gap.to_ms - 1, "announced_by_upstream", LOST, 1)
    rig.store.ledger._table.put(gap_item("s", notice))
    repairs = list[Repair]()
    while REPAIRED not in {one.state for one in repairs}:
        rig.run()
        rig.now += 30_000
        repairs = [gap.repair for gap in rig.records.newest_gaps("s", 9) if gap.repair is not None]
    assert (sum(one.stored for one in repairs), repaired_events(rig)) == (10, list(range(10, 20)))


def test_a_walk_of_minutes_stores_nothing_twice_in_a_log() -> None:
    """The second walk of a slow repair brings stored and later events again, and stores none of them twice."""
    rig = Rig(RestWays(limit=4), store="log", address="https://rest.example/events?after={after}", pace_s=60)
    rig.run()
    assert (rig.repaired.state, rig.repaired.stored, repaired_events(rig)) == (REPAIRED, len(MISSED), MISSED)


def test_a_log_with_too_many_keys_since_the_gap_takes_no_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a log has more keys since the gap than the function can hold, no items are stored, as they may be known."""
    monkeypatch.setattr(known_keys, "MOST_BARE_KEYS", 17)
    rig = Rig(RestWays(limit=2), store="log")
    rig.run(left_ms=1_000)
    assert (rig.repaired.state, rig.repaired.stored) == (PARTLY, 2)
    assert rig.repaired.reason.endswith("events came since the gap: too many to compare their keys")


@pytest.mark.parametrize("second", [10, 14, 16])
def test_a_walk_that_begins_anew_counts_each_event_once(second: int) -> None:
    """If the next page's address has a secret, it is not recorded, and a killed walk begins anew."""
    rig = Rig(RestWays(limit=2))
    rig.secrets = {Reference("secret", "token"): "page="}
    for after in (15, second):
        rig.dies_after, rig.now = after, rig.now + TURN_MS + rig.pace_ms
        with pytest.raises(Killed):
            rig.run()
    rig.dies_after, rig.now = None, rig.now + TURN_MS + rig.pace_ms
    rig.run()
    assert (rig.repaired.state, rig.repaired.stored, repaired_events(rig)) == (REPAIRED, len(MISSED), MISSED)


def test_a_secret_that_no_header_can_carry_is_named() -> None:
    """A secret that a header cannot carry is named in the gap's reason, and the next try reads it again."""
    rig = Rig(headers={"X-Key": "${secret:key}"})
    rig.secrets = {Reference("secret", "key"): "k\n"}
    rig.run(left_ms=1_000)
    assert (rig.repaired.state, rig.rest.addresses) == (FAILED, [])
    assert rig.repaired.reason == "the secret in headers.X-Key contains characters that a header cannot carry"


def test_an_address_that_reaches_less_far_repairs_a_part() -> None:
    """If the address does not reach back far enough, the record names the open part; an alert follows the last try."""
    rig = Rig(RestWays(limit=100, keeps_ms=8_500), reach_s=60, time="$.at")
    rig.run(left_ms=1_000)
    repair = rig.repaired
    assert (repair.state, repair.stored) == (PARTLY, 3)
    assert repair.reason == "the address does not go back to the last event before the gap"
    assert (repair.open_from_ms, repair.open_to_ms) == (None, rig.at(12))
    assert (repair.first_ms, repair.last_ms) == (rig.at(12), rig.at(14))
    assert not rig.alerts
    while not rig.repaired.is_over:
        rig.now = max(rig.now, rig.repaired.next_ms)
        rig.run(request=False, left_ms=1_000)
    assert (rig.repaired.state, len(rig.alerts)) == (PARTLY, 1)
    assert rig.now <= rig.gap.to_ms + 60_000
    # A repair on request keeps the counts, even if the address has fewer events by now.
    tried = gap_edges.repair_again(rig.records.newest_gaps("s", 1)[0], rig.now)
    assert (tried.stored, tried.first_ms, tried.last_ms, tried.next_ms) == (3, rig.at(12), rig.at(14), rig.now)


@pytest.mark.parametrize(
    ("ways", "reason"),
    [
        (RestWays(limit=100), "the edges are left out"),
        (RestWays(limit=2, is_inclusive=True, is_shuffled=True), "the edges are left out"),
        (RestWays(limit=100, is_inclusive=True), ""),
    ],
    ids=["neither edge", "pages without an order", "both edges"],
)
def test_a_profile_may_name_why_no_overlap_is_possible(ways: RestWays, reason: str) -> None:
    """If the profile says why no overlap is possible, one walk to the end repairs the gap; the reason is recorded only
    if the walk itself proves nothing.
    """
    rig = Rig(ways, unproved="the edges are left out")
    rig.run(left_ms=1_000)
    assert (rig.repaired.state, rig.repaired.reason, rig.repaired.tries) == (REPAIRED, reason, 1)


def test_pages_that_go_round_are_bounded() -> None:
    """A walk whose pages repeat ends after `pages` pages, and the gap is not repaired."""
    rig = Rig(RestWays(limit=2, lie="goes round", lies_ms=10**9), pages=4)
    rig.run(left_ms=1_000)
    assert rig.repaired.state in (PARTLY, FAILED)
    assert len(rig.rest.asked) <= 4


def test_a_page_that_is_its_own_next_one_proves_nothing() -> None:
    """A page that is its own next page proves nothing, because the address may have ignored the cursor."""
    rig = Rig(
        RestWays(limit=2, is_inclusive=True, is_shuffled=True, lie="goes round", lies_ms=10**9), missed=range(7, 11)
    )
    rig.run(left_ms=1_000)
    assert (rig.repaired.state, rig.repaired.stored) == (FAILED, 0)


def test_the_last_page_of_an_order_may_come_again() -> None:
    """An ordered address that repeats its last page for ever ends the walk, and the gap is repaired."""
    rig, pages = Rig(RestWays(limit=2, is_inclusive=True)), list[Fetched]()
    fetch = rig.rest.fetch

    def again(request: Any) -> Fetched:
        pages.append(pages[-1] if "again" in request.address else fetch(request))
        return replace(pages[-1], body=pages[-1].body.replace(b'"next":null', b'"next":"again%d"' % len(pages)))

    rig.rest.fetch = again  # type: ignore[method-assign]
    rig.run()
    assert rig.repaired.state == REPAIRED
    assert repaired_events(rig) == MISSED


def test_a_short_refusal_is_waited_for_three_times() -> None:
    """A walk waits for a short refusal three times; then it ends, and the gap is tried again later."""
    rig, asked = Rig(), list[int]()

    def refuses(request: Any) -> Fetched:
        assert len(asked) < 9, request.address
        asked.append(rig.now)
        return Fetched(429, problem="the address answered 429", retry_after_s=2.0)

    rig.rest.fetch = refuses  # type: ignore[method-assign]
    rig.run(left_ms=1_000)
    assert (len(asked), rig.repaired.state, rig.repaired.reason) == (4, FAILED, "the address answered 429")
    assert asked[-1] - asked[0] >= 6_000


def test_an_event_whose_key_is_its_id_has_it_too() -> None:
    """An event by repair has its key as its id if the stream's events have, because readers expect one."""
    rig = Rig(RestWays(limit=100))
    rig.profile = parse("s", {"address": "https://s.example", "framing": "sse", "repair": REPAIR}, {})
    rig.run()
    entries = rig.reader.entries("s", rig.records.layout("s") or Layout(), rig.now, "", 100)
    events = [entry.event for entry in entries if entry.event is not None]
    assert [event.id for event in events if event.is_repaired] == [str(number) for number in MISSED]


@pytest.mark.parametrize(
    ("keep", "name", "stored"),
    [
        ({"path": "$.id", "is": [11, 13]}, {}, [11, 13]), ({"name": "11"}, {"name": "$.id"}, [11]),
        ({"name": ["11", "12"], "path": "$.id", "is": [12, 13]}, {"name": "$.id"}, [12]),
        ({"name": "12", "path": "$.id", "is": [12, 13]}, {}, [12, 13]), ({"name": "11"}, {}, MISSED),
    ],
)  # fmt: skip
def test_a_repair_stores_only_items_that_the_profile_keeps(keep: Any, name: dict[str, Any], stored: list[int]) -> None:
    """A repair applies `keep` to an item's content, and to its name if `repair` says where that is."""
    rig = Rig(RestWays(limit=100))
    rig.profile = parse("s", {**STREAM, "framing": "sse", "keep": keep, "repair": REPAIR | name}, {})
    rig.run()
    assert rig.repaired.state == REPAIRED
    assert [number for number, is_repaired in rig.stored() if is_repaired] == stored


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    ("name", "state", "reason", "stored"),
    [
        (None, REPAIRED, "", MISSED),
        ("trade", FAILED, "the address spells its items otherwise than the stream, so no hash would be known", []),
    ],
)
def test_items_whose_hashes_differ_from_the_streams_are_not_stored(
    store: str, name: str | None, state: str, reason: str, stored: list[int]
) -> None:
    """If items hash differently from the stream's events, as without their names, none is stored."""
    rig = Rig(RestWays(limit=100), store=store, named=lambda number: hash_key(Frame(body(number), name=name)))
    repair = {"address": "https://rest.example/events?from={from}&to={to}", "items": "$.events"}
    rig.profile = parse("s", STREAM | {"key": "hash", "store": store, "repair": repair}, {})
    rig.run(left_ms=1_000)
    assert (rig.repaired.state, rig.repaired.reason) == (state, reason)
    assert [number for number, is_repaired in rig.stored() if is_repaired] == stored


def test_a_dry_run_knows_every_event_of_a_log_since_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run compares with all events of a log since the gap, so none that the address repeats counts as missing."""
    monkeypatch.setattr(gap_ports, "MOST_READ", 10)
    rig = Rig(RestWays(limit=4), store="log", events=40, address="https://rest.example/events?after={after}")
    rig.run(is_dry=True)
    assert [repair.stored for _, _, repair in rig.done] == [len(MISSED)]


def test_a_gap_that_was_delivered_later_is_not_requested() -> None:
    """A gap that the ledger has closed meanwhile causes no request."""
    rig = Rig()
    rig.tables.put_item(TableName="control", Item=gap_item("s", replace(rig.gap, state=DELIVERED)))
    rig.run()
    assert rig.rest.asked == []


@pytest.mark.parametrize(("live", "before"), [(15, 16), (18, 18)])
def test_an_announced_loss_is_repaired_as_well(live: int, before: int) -> None:
    """An announced loss is repaired between the events around it, with an event of the notice's instant before it.

    A notice within a backlog has no time of its own, so the events after it in the backlog are no edges.
    """
    rig = Rig(RestWays(limit=100), live=live)
    rig.tables.put_item(TableName="control", Item=gap_item("s", replace(rig.gap, state=DELIVERED)))
    rig.gap = Gap(2, rig.at(9), rig.at(15), "announced_by_upstream", LOST, 1, 5)
    rig.store.ledger._table.put(gap_item("s", rig.gap))
    rig.run()
    (gap,) = [gap for gap in rig.records.newest_gaps("s", 9) if gap.number == 1]
    assert gap.repair is not None
    assert gap.repair.state == REPAIRED
    assert rig.rest.addresses[0].partition("?")[2] == f"after=9&before={before}"
    assert repaired_events(rig) == MISSED


def test_an_address_by_time_is_requested_around_the_gap() -> None:
    """The request is from the event before the gap to the event after it, in the profile's unit, if times are known."""
    address = "https://rest.example/events?from={from}&to={to}"
    rig = Rig(RestWays(limit=100), address=address, time="$.at", time_unit="ms")
    rig.run()
    assert rig.rest.addresses[0].partition("?")[2] == f"from={rig.at(9) - 1}&to={rig.at(15) + 1}"
    assert rig.repaired.state == REPAIRED

"""When a function repairs: one at a time for a profile's streams, and requests until their gaps are settled."""

from dataclasses import replace
from typing import Any

import pytest

from handlers.connection.gap_record import LOST, OPEN, REPAIRED, Gap
from handlers.errors import StoreUnavailable
from handlers.repair import gap_edges, walking
from handlers.repair.function import NO_PROFILE_KEPT_MS, UNREADABLE_REST_MS
from handlers.repair.gap_ports import MOST_S, TURN_MS
from handlers.repair.pages import Fetched
from handlers.repair.work import DONE_KEPT_DAYS, MOST_STARTED, SETTLED_MS, start_due
from handlers.store.ledger_records import gap_item
from handlers.store.typed_values import DAY_S, item_key, number_value
from local.simulation.virtual_rest import RestWays
from tests.handlers.repair.rigs import MISSED, Rig, item, repaired_events


def test_one_function_at_a_time_asks_an_upstream() -> None:
    """A second function finds the turn taken and makes no request."""
    rig = Rig()
    rig.work.take_turn("s", "another", rig.now, rig.now + 1_000)
    assert (rig.run().status, rig.rest.asked) == ("busy", [])
    rig.now += 1_000
    assert rig.run().status == "done"


def watch_turns(
    monkeypatch: pytest.MonkeyPatch, rig: Rig, of: Any, name: str, takes_ms: int = 0, only: str = ""
) -> list[int]:
    """Return how long the turn lasts at each call, which takes `takes_ms`; `only` limits it to reads of a log."""
    left_ms, call = list[int](), getattr(of, name)

    def slow(*what: Any, **asked: Any) -> Any:
        if not only or (only in asked and "Limit" not in asked):
            rig.now += takes_ms
            left_ms.append(int(item(rig.tables, "s", "repairing")["until_ms"]["N"]) - rig.now)
        return call(*what, **asked)

    monkeypatch.setattr(of, name, slow)
    return left_ms


@pytest.mark.parametrize("is_dry", [False, True], ids=["repairs", "a dry run"])
@pytest.mark.parametrize("fields", [{"pace_s": 60}, {"pace_s": 20}, {"after_s": 55}], ids=str)
def test_the_turn_lasts_until_each_request(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], *, is_dry: bool
) -> None:
    """A turn outlasts the pace between two pages, and the wait for a request that is due soon."""
    rig = Rig(RestWays(limit=1), **fields)
    left_ms = watch_turns(monkeypatch, rig, rig.rest, "fetch")
    rig.work.request("s", rig.now, rig.now + 25_000)
    assert rig.run(request=False, is_dry=is_dry).status == "done"
    assert len(left_ms) > 5
    assert min(left_ms) > MOST_S * 1000


@pytest.mark.parametrize("store", ["items", "log"])
def test_the_turn_lasts_while_much_is_stored_or_read(monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    """A turn is extended during the writes of a large page and the reads of a long log."""
    monkeypatch.setattr(walking, "AT_ONCE", 1)
    rig = Rig(RestWays(limit=100), store=store)
    rig.connected(3, range(20, 24))
    rig.tables.most_items = int(store == "log")
    of, name, only = (rig.store, "write", "") if store == "items" else (rig.tables, "query", "ProjectionExpression")
    left_ms = watch_turns(monkeypatch, rig, of, name, TURN_MS - 1_000, only)
    rig.run()
    assert (rig.repaired.state, rig.repaired.stored) == (REPAIRED, len(MISSED))
    assert len(left_ms) > 2
    assert min(left_ms) > 0


def test_a_function_does_not_wait_for_a_request_that_it_has_no_time_for() -> None:
    """A function that has no time for the next page ends at once; the next function continues at that page."""
    rig = Rig(RestWays(limit=2), pace_s=60)
    begun_ms = rig.now
    rig.run(left_ms=59_000)
    assert rig.now - begun_ms < 1_000
    rig.now += 60_000
    rig.run(request=False)
    assert (rig.rest.addresses.count(rig.rest.addresses[0]), rig.repaired.state) == (1, REPAIRED)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_function_that_finds_another_result_stores_nothing(is_lost: bool) -> None:
    """A function that was frozen ends if another has the turn, and begins anew if none has."""
    rig = Rig(RestWays(limit=100))
    fetch = rig.rest.fetch

    def slow(request: Any) -> Any:
        if not rig.rest.asked:
            rig.store.ledger.save_repair("s", rig.gap, replace(rig.repaired, reason="another"))
        rig.now += 2 * TURN_MS * is_lost
        assert rig.work.take_turn("s", "another", rig.now, rig.now + 1_000) == is_lost
        return fetch(request)

    rig.rest.fetch = slow  # type: ignore[method-assign]
    assert rig.run().status == ("busy" if is_lost else "done")
    assert (rig.repaired.reason, rig.repaired.state) == (("another", OPEN) if is_lost else ("", REPAIRED))


def test_a_profile_whose_turn_is_taken_is_not_started() -> None:
    """The watch starts the profiles that may send requests, however many others back off."""
    rig = Rig()
    for number_ in range(MOST_STARTED):
        rig.work.request(f"p{number_}:a", rig.now, rig.now - 1)
        rig.work.take_turn(f"p{number_}", "", rig.now, rig.now + 1_000)
    rig.work.request("s", rig.now, rig.now)
    assert start_due(rig.work, rig.now, lambda _: True) == ["s"]
    assert len(start_due(rig.work, rig.now + 1_000, lambda _: True)) == MOST_STARTED


def test_a_request_that_is_done_is_no_longer_listed() -> None:
    """A finished request stays for a minute, because its gap may still be written; a later request is listed again."""
    rig = Rig()
    rig.run()
    (left,) = rig.work.requests_of("s")
    assert left.due_ms == left.asked_ms + SETTLED_MS
    rig.now = left.due_ms
    rig.run(request=False)
    assert rig.work.requests_of() == []
    assert int(item(rig.tables, "s", "repair")["expires_at"]["N"]) == rig.now // 1000 + DONE_KEPT_DAYS * DAY_S
    rig.work.request("s", rig.now, rig.now)
    assert [one.stream_id for one in rig.work.requests_of("s")] == ["s"]
    assert rig.work.requests_of("other") == []


def test_a_request_stays_while_the_profile_is_wrong() -> None:
    """A request stays while its profile is invalid; once the profile is gone for a week, the request ends."""
    rig = Rig(RestWays(limit=100))
    rig.profile_of = lambda _stream: None
    rig.work.request("s", rig.now - SETTLED_MS, rig.now)
    rig.run(request=False)
    left = rig.work.requests_of()
    assert len(left) == 1
    rig.profile_of, rig.now = lambda _stream: rig.profile, left[0].due_ms
    rig.run(request=False)
    assert rig.repaired.state == REPAIRED
    rig.profile_of, rig.now = lambda _stream: None, rig.now + NO_PROFILE_KEPT_MS
    rig.run(request=False)
    assert rig.work.requests_of() == []


def test_the_requests_of_a_profile_are_not_read_again_for_each_of_its_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an upstream drops all streams of a profile at once, the profile's requests are read few times."""
    rig, read = Rig(), list[str]()
    batch = rig.tables.batch_get_item

    def counts(**asked: Any) -> Any:
        read.extend(asked["RequestItems"])
        return batch(**asked)

    monkeypatch.setattr(rig.tables, "batch_get_item", counts)
    for number_ in range(20):
        rig.work.request(f"s:{number_}", rig.now - SETTLED_MS, rig.now)
    rig.run(request=False)
    assert rig.work.requests_of() == []
    assert len(read) < 20


def test_a_request_that_was_repeated_meanwhile_stays() -> None:
    """Finishing a request that was read does not end a newer request."""
    rig = Rig()
    rig.work.request("s", rig.now - SETTLED_MS, rig.now)
    (read,) = rig.work.requests_of()
    rig.work.request("s", rig.now, rig.now)
    rig.work.finish_request(read, rig.now, None)
    assert [one.asks for one in rig.work.requests_of()] == [2]


def test_a_stream_with_unreadable_records_delays_no_other_repair() -> None:
    """A stream whose records have a newer layout is retried in a minute; the profile's other streams are repaired."""
    rig = Rig(RestWays(limit=100))
    later = item_key("s:later", "lease") | {"layout": number_value(99), "partitions": number_value(1)}
    rig.tables.put_item(TableName="control", Item=later)
    rig.work.request("s:later", rig.now, rig.now - 1)
    with pytest.raises(StoreUnavailable, match="the control record has layout 99"):
        rig.run()
    assert (rig.repaired.state, repaired_events(rig)) == (REPAIRED, MISSED)
    left = next(one for one in rig.work.requests_of("s") if one.stream_id == "s:later")
    assert rig.now < left.due_ms <= rig.now + UNREADABLE_REST_MS


def test_a_dry_run_obeys_a_refusal() -> None:
    """A refused dry run tries no further gap, holds the turn until the back-off is over, and stores nothing."""
    rig = Rig(RestWays(limit=100))
    rig.tables.put_item(TableName="control", Item=gap_item("s", Gap(2, rig.at(16), rig.at(17), "loss", LOST, 1)))
    stored, fetch = rig.stored(), rig.rest.fetch
    refusal = Fetched(429, problem="answered 429", retry_after_s=400.0)
    rig.rest.fetch = lambda request: fetch(request) and refusal  # type: ignore[method-assign]
    rig.run(is_dry=True)
    assert len(rig.rest.asked) == 1
    rig.now += 399_000
    assert rig.run().status == "busy"
    assert (rig.stored(), [gap.repair for gap in rig.records.newest_gaps("s", 9)]) == (stored, [None, None])


def test_many_gaps_are_all_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps within the address's reach are repaired, however many newer gaps there are."""
    monkeypatch.setattr(gap_edges, "MOST_GAPS", 3)
    rig = Rig(RestWays(limit=100, is_inclusive=True), events=30)
    for place in range(1, 5):
        loss = Gap(2, rig.at(15 + place), rig.at(15 + place), "loss", LOST, place)
        rig.tables.put_item(TableName="control", Item=gap_item("s", loss))
    rig.run()
    assert gap_edges.incomplete_gaps(rig.records.newest_gaps("s", 9)) == []
    assert repaired_events(rig) == MISSED

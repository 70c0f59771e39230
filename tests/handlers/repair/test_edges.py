"""Which stored events count as the edges of a gap, so that a walk that shows both proves its repair."""

import json
from dataclasses import replace

import pytest

from handlers.connection.effects import Progress
from handlers.connection.epochs import Epoch
from handlers.connection.gap_record import DELIVERED, FAILED, LOST, OPEN, PARTLY, REPAIRED, Gap
from handlers.framing.events import StreamEvent, hash_key
from handlers.framing.frames import Frame
from handlers.repair.pages import Fetched
from handlers.repair.proof import NO_EVENT_AFTER, NO_EVENT_BEFORE, RESTARTED
from handlers.store import control_record
from handlers.store.ledger_records import connection_item, connection_key, gap_item
from handlers.store.typed_values import item_key
from local.simulation.virtual_rest import RestWays
from tests.handlers.repair.rigs import MISSED, Rig, body, item, repaired_events


def test_an_event_of_the_backlog_is_no_edge() -> None:
    """Events that came while the connection caught up belong to the gap, so the edge is the first event after them."""
    rig = Rig(RestWays(limit=100), live=18)
    rig.run()
    assert [address.partition("?")[2] for address in rig.rest.addresses] == ["after=9&before=18", "after=8&before=19"]
    assert (rig.repaired.state, repaired_events(rig)) == (REPAIRED, MISSED)
    behind = Rig(RestWays(limit=100), live=30)
    behind.run(left_ms=1_000)
    assert (behind.repaired.state, behind.repaired.reason, behind.rest.addresses) == (OPEN, NO_EVENT_AFTER, [])


def test_items_of_an_edges_own_time_are_on_either_side_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items of one second have no order, so items with an edge's time may be missing too, and are stored."""
    rig = Rig(named=lambda one: f"k{one}", time="$.at")
    seconds = zip((7, 12, 15, 10, 9, 14, 11, 13, 16), (1, 2, 2, 2, 2, 2, 2, 2, 3), strict=True)
    items = ",".join(f'{{"id":"k{one}","at":{at}}}' for one, at in seconds)
    monkeypatch.setattr(rig.rest, "fetch", lambda _: Fetched(200, {}, f'{{"events":[{items}]}}'.encode()))
    rig.run()
    assert (rig.repaired.state, rig.repaired.stored) == (REPAIRED, len(MISSED))


@pytest.mark.parametrize(
    ("since", "seen", "state"), [(15, 19, PARTLY), (7, 8, REPAIRED), (7, 12, PARTLY), (16, 18, REPAIRED)]
)
def test_ids_that_started_over_prove_nothing(since: int, seen: int, state: str) -> None:
    """If the ids started over within the gap, both edges prove nothing, because most new ids were dropped as known."""
    rig = Rig(RestWays(is_inclusive=True))
    epoch = {"epoch": control_record.epoch_value(Epoch(0, rig.at(since), rig.at(seen)))}
    rig.tables.put_item(TableName="control", Item=item(rig.tables, "s", "lease") | epoch)
    rig.run(left_ms=1_000)
    assert (rig.repaired.state, repaired_events(rig)) == (state, MISSED)
    assert rig.repaired.reason == ("" if state == REPAIRED else RESTARTED)


def test_a_gap_without_an_event_before_it_cannot_be_repaired() -> None:
    """Without an event before the gap there is no key to request from; the repair fails with that reason."""
    rig = Rig(missed=range(5))
    rig.gap = replace(rig.gap, from_ms=rig.at(-1))
    rig.run(left_ms=1_000)
    assert (rig.repaired.state, rig.repaired.reason) == (FAILED, NO_EVENT_BEFORE)
    assert rig.rest.asked == []


def test_a_gap_without_an_event_after_it_waits_for_one() -> None:
    """Until the connection after the gap brings an event, the gap stays open, which is no failure."""
    rig = Rig(RestWays(limit=100), missed=range(10, 15), events=15)
    rig.now += 5_000
    rig.run(left_ms=1_000)
    assert (rig.repaired.state, rig.repaired.reason) == (OPEN, NO_EVENT_AFTER)
    rig.emitted_ms.extend(rig.at(number) for number in (15, 16))
    rig.connected(2, range(15, 17))
    rig.now = rig.repaired.next_ms
    rig.run(request=False)
    assert rig.repaired.state == REPAIRED
    assert repaired_events(rig) == MISSED


@pytest.mark.parametrize("unproved", ["", "a reason"])
@pytest.mark.parametrize(
    ("events", "now_s", "name", "last"),
    [(15, 24, "%d", 14), (20, 24, "k%d", 20), (20, 84, "k%d", 23), (20, 24, "%d", 23)],
)
def test_what_the_stream_may_still_bring_is_not_stored(
    monkeypatch: pytest.MonkeyPatch, events: int, now_s: int, name: str, last: int, unproved: str
) -> None:
    """An address without an end has what is about to come. In an order of numbers, a time shows no place."""
    address = "https://rest.example/events?from={from}"
    rig = Rig(events=events, named=name.__mod__, time="$.at", unproved=unproved, address=address)
    items = [{"id": name % one, "at": rig.at(one)} for one in range(11, 24)]
    monkeypatch.setattr(rig.rest, "fetch", lambda _: Fetched(200, {}, json.dumps({"events": items}).encode()))
    rig.now = rig.at(now_s)
    rig.run(left_ms=1_000)
    came = [int(str(number).removeprefix("k")) for number, is_repaired in rig.stored() if is_repaired]
    assert came == [one for one in range(11, 24 if unproved else last + 1) if one not in range(15, events)]


def test_an_event_of_an_older_connection_is_no_edge() -> None:
    """Events that a frozen function stores after the gap's end belong before the gap, so they are no edge."""
    rig = Rig(RestWays(limit=100), before=range(9))
    rig.store.write("s", 1, 90, [StreamEvent("9", body(9), None, None, None, rig.at(15))])
    rig.run()
    assert rig.repaired.state == REPAIRED
    assert repaired_events(rig) == MISSED


@pytest.mark.parametrize(
    ("ended_by", "before_ms", "state"),
    [("ended_by_upstream", 2, REPAIRED), ("ended_by_upstream", 1_001, OPEN), ("reset", 2, OPEN)],
)
def test_the_events_with_which_a_long_poll_ends_are_edges(ended_by: str, before_ms: int, state: str) -> None:
    """They are handled a moment after the end came. After a standstill, or a break, they may have come earlier."""
    rig = Rig(RestWays(limit=100, is_inclusive=True), events=16)
    over_ms = rig.at(15) - before_ms
    progress = Progress(
        2, over_ms, opened_ms=over_ms, seen_ms=over_ms, live_ms=over_ms, closed_ms=over_ms, ended_by=ended_by
    )
    record = connection_item(progress, lane="A", execution="e", request_id="r2")
    rig.tables.put_item(TableName="control", Item=item_key("s", connection_key(2)) | record)
    rig.now += 5_000
    rig.run(left_ms=3_000)
    assert (rig.repaired.state, rig.repaired.reason) == (state, "" if state == REPAIRED else NO_EVENT_AFTER)


def test_a_notice_without_a_key_is_no_edge() -> None:
    """A notice is stored by its hash, which no address has, so it is no edge."""
    rig = Rig(RestWays(limit=100), address="https://rest.example/events?from={from}&to={to}")
    for fence, at_ms in ((1, rig.gap.from_ms), (2, rig.gap.to_ms - 1)):
        notice = Frame(f'{{"type":"status","of":{fence}}}', name="status")
        rig.store.write("s", fence, 90, [StreamEvent(hash_key(notice), notice.data, None, "status", None, at_ms)])
    rig.gap = replace(rig.gap, to_ms=rig.gap.to_ms - 1)
    rig.tables.put_item(TableName="control", Item=gap_item("s", rig.gap))
    rig.run(left_ms=1_000)
    assert (rig.repaired.state, rig.repaired.stored) == (REPAIRED, len(MISSED))


def test_an_event_with_a_late_clock_is_no_edge_before_the_gap() -> None:
    """An event of the next connection came after the gap, even if its function's clock was late."""
    rig = Rig(RestWays(limit=100))
    rig.store.write("s", 2, 90, [StreamEvent("99", body(99), None, None, None, rig.gap.from_ms)])
    rig.run()
    assert rig.rest.addresses[0].partition("?")[2] == "after=9&before=15"


def test_each_try_that_proves_nothing_begins_earlier_and_ends_later() -> None:
    """Each try without proof begins earlier and ends later, as the edges may be in the gap if clocks differ."""
    rig = Rig(RestWays(limit=100, lie="is empty", lies_ms=10**9))
    for _ in range(2):
        rig.run(request=not rig.rest.asked, left_ms=1_000)
        rig.now = rig.repaired.next_ms
    asked = [address.partition("?")[2] for address in rig.rest.addresses]
    literal = "after=9&before=15"
    assert asked == [literal, "after=8&before=16", literal, "after=6&before=18"]


def test_the_event_before_an_announced_loss_may_be_of_the_same_connection() -> None:
    """The edge before an announced loss may be of the same connection, which was connected all the time."""
    rig = Rig(RestWays(limit=100), events=30)
    rig.tables.put_item(TableName="control", Item=gap_item("s", replace(rig.gap, state=DELIVERED)))
    rig.store.ledger._table.put(gap_item("s", Gap(2, rig.at(20), rig.at(21), "announced_by_upstream", LOST, 1, 5)))
    rig.run()
    assert rig.rest.addresses[0].partition("?")[2] == "after=20&before=22"

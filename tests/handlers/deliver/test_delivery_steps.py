"""Each sink of each stream delivers from its own place on, independent of other sinks and of when its bell rings."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from handlers.api.sinks import Sinks
from handlers.deliver.arrivals import MOST_ENDS
from handlers.deliver.bells import ANSWERED_MS, Bell, Bells, Place
from handlers.deliver.contract import Message, Order, Refusal
from handlers.deliver.delivery_records import SinkRecord, with_taken
from handlers.deliver.delivery_steps import MEASURED
from handlers.deliver.sending import rest_ms
from handlers.deliver.sink_commands import lag
from handlers.deliver.table_records import decode_image, group_by_stream
from handlers.errors import StoreUnavailable
from handlers.profile.deliver_field import Target
from handlers.store.control_table import Table
from handlers.store.event_items import dead_letter_mark
from local.simulation.tables import MemoryDynamoDB
from local.simulation.virtual_delivery import DELIVERY
from tests.handlers.aws import Client, CountingClient, send_twice
from tests.handlers.context import Killed
from tests.handlers.deliver.records import NOW_MS, event, item_record, record, segment_record
from tests.handlers.deliver.stage import AWAY, OTHER, PLACE, TAKE, TARGET, Stage, of

MINUTE_MS = 60_000

# --- reading ----------------------------------------------------------------------------------------------------------


def test_an_item_and_a_segment_are_noted_with_their_events() -> None:
    """Records are noted in order of position, without removed items, a log's anchor, and stand-ins of dead letters."""
    item, log = item_record("demo:a#b", event("7"), 2), segment_record("demo", [event("1"), event("2")], 4)
    earlier = item_record("demo:a#b", event("6", at_ms=NOW_MS - 1), 1)
    gone = {**earlier, "eventName": "REMOVE"}
    anchor = record({"PK": {"S": "demo#log"}, "SK": {"S": "anchor"}, "number": {"N": "3"}}, 3)
    buried = record(dead_letter_mark({"PK": {"S": "x"}, "SK": {"S": "1"}, "position": {"S": "1"}}, "TooLarge"), 5)
    found = group_by_stream([item, log, earlier, gone, anchor, buried])
    assert {one: [(entry.key, entry.events) for entry in of.entries] for one, of in found.items()} == {
        "demo:a#b": [("6", 1), ("7", 1)],
        "demo": [("segment#000000000004", 2)],
    }


def test_a_sandbox_remembers_the_ends_of_a_bounded_number_of_streams() -> None:
    """A sandbox meets all streams of its stage; a forgotten stream continues with the current time as its number."""
    arrivals = Stage().delivery.arrivals
    for n in range(-MOST_ENDS, MOST_ENDS, 500):
        arrivals.note({f"s{one % 7_000}": ((), f"{one}") for one in range(n, n + 500)}, NOW_MS)
    assert len(arrivals._ends) <= MOST_ENDS
    assert arrivals.note({"s0": ((), "last")}, NOW_MS)["s0"].number == NOW_MS + 1


def test_a_delivered_event_is_the_json_that_get_shows() -> None:
    """A delivered event is the API's JSON with its stream; bytes are Base64, and a segment keeps its order."""
    stage = Stage(order="request")
    stage.come("demo:a#b", event("7", "body", name="tick"))
    log = segment_record("demo", [event("1", b"\0"), event("2", "x" * 300)], 4)
    stage.client.put_item(TableName="events", Item=decode_image(log["dynamodb"]["NewImage"]))
    stage.virtual.schedule(NOW_MS, lambda: stage.virtual.delivery.note([log]))
    stage.run()
    first, *several = [json.loads(one.text) for _, one in stage.taken]
    position = f"{NOW_MS:015d}/000000000001/000000000001"
    stored = {"stream": "demo:a#b", "position": position, "received_at": "2023-11-14T22:13:20.000Z"}
    assert first == stored | {"id": "7", "name": "tick", "key": "7", "data": "body"}
    assert [(one["key"], one["position"]) for one in several] == [
        ("1", "000000000000004/000000000001/000000000000"),
        ("2", "000000000000004/000000000001/000000000001"),
    ]
    assert (several[0]["data_base64"], several[1]["data"]) == ("AA==", "x" * 300)


# --- nothing is skipped, whenever it becomes visible ------------------------------------------------------------------


def test_an_event_noted_at_any_moment_of_a_worker_is_rung_for() -> None:
    """An event that is noted before any request of a worker, or after the last, is delivered without a sweep.

    The noting call rings only if the bell has ended; the worker that ends a bell reads the arrivals once more.
    """
    at, most = 1, 2
    while at <= most:
        stage, count = Stage(), 0
        stage.come("a", event("1"))
        late = stage.stored("a", event("2", at_ms=NOW_MS + 1))
        noting = stage.virtual.delivery.note

        def note(*_: object) -> None:
            """Makes a note before the request with the number `at`."""
            nonlocal count
            count += 1
            if count == at:  # noqa: B023
                noting(late)  # noqa: B023

        stage.run(0.001)
        for part in (stage.virtual.delivery.bells, stage.virtual.delivery.records):
            part._table._dynamodb = CountingClient(stage.client, note)
        stage.virtual.delivery.arrivals._table = stage.virtual.delivery.bells._table
        stage.run(9)
        most = max(most, count)
        assert stage.keys() in (["1", "2"], ["1"] if count < at else ["1", "2"]), (at, stage.keys())
        at += 1
    assert most > 5


@pytest.mark.parametrize("at", range(4))
def test_two_workers_at_once_repeat_and_overtake_nothing_new(at: int) -> None:
    """If a bell is answered twice, first deliveries keep the order, and one of the two workers gives way."""
    stage = Stage()
    bells: list[Bell] = []

    def answer(_target: Target, _batch: Sequence[Message]) -> Mapping[int, Refusal]:
        if len(stage.batches) == at + 1 and bells:
            stage.virtual.delivery.answer(bells.pop())
        return TAKE

    stage.answer = answer
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(5)))
    calling = stage.virtual.delivery.ports.call

    def call(out: Sequence[Bell]) -> None:
        bells.extend(out)
        calling(out)

    object.__setattr__(stage.virtual.delivery.ports, "call", call)
    stage.run(120)
    assert list(dict.fromkeys(stage.keys())) == ["0", "1", "2", "3", "4"]
    assert stage.is_over


def test_a_lost_bell_is_rung_by_the_next_sweep() -> None:
    """A lost call does no harm: the next sweep rings its bell; if nothing waits, no bell is out."""
    stage = Stage()
    stage.virtual.loses = lambda: stage.clock.now_ms < NOW_MS + 1000
    stage.come("a", event("1"))
    stage.run(50)
    assert stage.keys() == []
    stage.run(MINUTE_MS / 1000 + ANSWERED_MS / 1000)
    assert (stage.keys(), stage.is_over) == (["1"], True)
    assert list(stage.virtual.delivery.bells.read_all()) == []


@pytest.mark.parametrize("code", ["ThrottlingError", "InternalServerError"])
def test_a_table_that_is_busy_for_a_moment_fails_no_call(code: str) -> None:
    """A failed call's records would come again in halves as other arrivals, and each event would be sent twice."""
    left_out: Iterator[int] = itertools.chain([2, 1, 3, 1], itertools.repeat(0))

    def busy(call: Callable[..., Any], Statements: list[Any]) -> Any:
        taken = Statements[: max(0, len(Statements) - next(left_out))]
        answers = call(Statements=taken)["Responses"] if taken else []
        return {"Responses": [*answers, *[{"Error": {"Code": code}}] * (len(Statements) - len(taken))]}

    stage = Stage(client=Client(MemoryDynamoDB("events", DELIVERY), "batch_execute_statement", busy))
    with suppress(StoreUnavailable):
        stage.delivery.note([one for stream in "abc" for one in stage.stored(stream, event(stream))])
    assert 0 < stage.clock.now_ms - NOW_MS < 1_000
    stage.run(1)
    assert (sorted(stage.keys()), next(left_out)) == (["a", "b", "c"], 0)
    left_out = itertools.repeat(3)
    with pytest.raises(StoreUnavailable):
        stage.delivery.note(stage.stored("d", event("d")))


@pytest.mark.parametrize("end", [StoreUnavailable, Killed])
def test_a_worker_that_does_not_read_whether_more_came_rings_for_it(end: type[BaseException]) -> None:
    """A worker that ended its bell and could not read whether more came rings again, as the noting call did not.

    Lambda repeats a killed call.
    """
    stage = Stage(request_ms=250)  # too slow for sending at once
    delivery, ends, stage.virtual.loses = stage.delivery, stage.delivery.bells.end, lambda: True
    delivery.note(stage.stored("a", event("1")))
    late = stage.stored("a", event("2", at_ms=NOW_MS + 1))

    def ended(bell: Bell) -> None:
        object.__setattr__(delivery.bells, "end", ends)
        delivery.note(late)
        ends(bell)
        delivery.arrivals._table._dynamodb = CountingClient(stage.client, refuses)

    def refuses(*_: object) -> None:
        delivery.arrivals._table._dynamodb = stage.client
        raise end

    bell = delivery.bells.find(PLACE)
    assert bell is not None
    object.__setattr__(delivery.bells, "end", ended)
    answering = replace(delivery, ports=replace(delivery.ports, left_ms=lambda: 60_000))
    with suppress(StoreUnavailable, Killed):
        answering.answer(bell)
    if end is Killed:
        stage.clock.now_ms += MINUTE_MS
        assert list(delivery.bells.read_all()) == []
        answering.answer(bell)
    stage.virtual.loses = lambda: False
    stage.run(130)
    assert (sorted({*stage.keys()}), stage.is_over) == (["1", "2"], True)


def test_an_interrupted_sweep_rings_for_what_it_read() -> None:
    """If many sinks are away, a sweep may not finish; it has rung the bells that it read, and later ones the others."""
    stage, requests, called = Stage(), itertools.count(), list[Bell]()

    def act(*_: object) -> None:
        if next(requests) == 250:
            raise Killed

    bells = Bells(Table(CountingClient(stage.client, act), DELIVERY))
    stage.delivery.bells.ring([Bell(Place(f"s{n}", TARGET.label), NOW_MS, 0) for n in range(300)])
    with pytest.raises(Killed):
        replace(stage.delivery, bells=bells, ports=replace(stage.delivery.ports, call=called.extend)).sweep()
    assert len(called) == 200


def test_a_sweep_measures_the_sinks_that_have_waited_for_longest() -> None:
    """A sink that is away may have its bell behind hundreds that gather batches, so the longest waits are measured.

    A sink without a record, or with a wrong profile, counts from the first event that rang for it.
    """
    stage = Stage()
    bells = stage.delivery.bells
    bells.ring([Bell(Place(f"s{n}", TARGET.label), NOW_MS + n, 0) for n in range(MEASURED + 50)])
    *_, last = bells.read_all()
    bells.end(last)
    (earliest,) = bells.ring([last._replace(until_ms=NOW_MS - 1)])
    assert bells.hold(earliest, NOW_MS + 300_000)
    stage.delivery.records.save(
        last.place, SinkRecord(TARGET.label, replay_from_ms=7, replay_until_ms=9, is_backfill=True)
    )
    behind = stage.delivery.sweep()
    assert (len(behind), behind[:2]) == (MEASURED, [(0, 7), (0, NOW_MS - ANSWERED_MS)])


@pytest.mark.parametrize("operation", ["put_item", "update_item", "delete_item", "batch_execute_statement"])
def test_a_worker_whose_answers_are_lost_goes_on(operation: str) -> None:
    """A repeated request that is refused because of the first does not count as another worker."""
    stage = Stage(request_ms=3_000)
    stage.virtual._table._dynamodb = Client(stage.client, operation, send_twice)
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(20)))
    stage.run(150)
    assert (stage.keys(), stage.is_over) == ([str(n) for n in range(20)], True)
    assert max(ms for ms, _, _ in stage.virtual.worked) - NOW_MS <= 20 * 3_000 + 70_000


# --- no sink harms another --------------------------------------------------------------------------------------------


def test_an_item_that_a_cheap_read_does_not_show_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-price read of DynamoDB may return an older item, or none, so it is repeated as a consistent read."""
    stage = Stage()
    real, marked = stage.client.batch_get_item, {"dead_letter": {"S": "put back since"}}

    def older(RequestItems: dict[str, Any]) -> Any:
        answer = real(RequestItems=RequestItems)
        if not RequestItems["events"]["ConsistentRead"]:
            items = answer["Responses"]["events"]
            answer["Responses"]["events"] = [one | marked for one in items if one["SK"]["S"] == "2"]
        return answer

    monkeypatch.setattr(stage.client, "batch_get_item", older)
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in (1, 2, 3)))
    stage.run()
    assert (stage.keys(), stage.is_over) == (["1", "2", "3"], True)


@pytest.mark.parametrize("refusal", [AWAY, Refusal("no", is_final=True)])
def test_one_sink_that_fails_or_hangs_delays_no_other(refusal: Refusal) -> None:
    """A failing sink delays neither other streams at the same sink nor other sinks of the same stream."""
    stage = Stage(TARGET, OTHER)

    def answer(target: Target, batch: Sequence[Message]) -> Mapping[int, Refusal]:
        if target is TARGET and batch[0].stream_id == "a":
            stage.clock.now_ms += 8_000
            return {0: refusal}
        assert stage.clock.now_ms - batch[0].received_at_ms < 1_000
        return TAKE

    stage.answer = answer
    for n in range(40):
        stage.come("ab"[n % 2], event(str(n), at_ms=NOW_MS + 500 * n), at_ms=NOW_MS + 500 * n)
    stage.run(60)
    assert len(stage.taken) == 60
    assert stage.keys(OTHER.label) == [str(n) for n in range(40)]


@pytest.mark.parametrize(
    ("order", "takes", "requests", "keys"),
    [("message", "+", 20, 200), ("message", "+++-", 250, 600), ("request", "+-", 50, 700)],
)
def test_a_sink_that_was_away_reads_events_in_few_requests(order: Order, takes: str, requests: int, keys: int) -> None:
    """Events that arrived singly are read together; if a sink refuses some requests, few events are read again."""
    reads = list[int]()

    def before(name: str, asked: dict[str, Any]) -> None:
        reads.extend([len(asked["RequestItems"]["events"]["Keys"])] if name == "batch_get_item" else [])

    stage = Stage(order=order, client=CountingClient(MemoryDynamoDB("events", DELIVERY), before))
    stage.answer = lambda _target, _batch: {0: AWAY}
    for n in range(200):
        stage.come("a", event(str(n)), at_ms=NOW_MS + 100 * n)
    stage.run(60)
    answers = itertools.cycle(takes)
    stage.answer = lambda _target, batch: TAKE if next(answers) == "+" else dict.fromkeys(range(len(batch)), AWAY)
    reads.clear()
    stage.run(600)
    assert stage.keys(TARGET.label) == [str(n) for n in range(200)]
    assert (len(reads) <= requests, sum(reads) <= keys) == (True, True), (len(reads), sum(reads))


def test_each_sink_has_its_own_back_off() -> None:
    """The back-off is 1, 2, 4 and 8 s within a call; then one to five minutes, which the sweep keeps.

    From then on one event is tried, because each try pays for what it reads.
    """
    assert [rest_ms(n) // 1000 for n in range(1, 10)] == [1, 2, 4, 8, 60, 120, 240, 300, 300]
    stage = Stage()
    stage.answer = lambda _target, _batch: {0: AWAY}
    stage.come("a", event("1"), event("2"))
    stage.run(3600)
    assert 15 <= len(stage.batches) <= 20
    # Both events fail in the first try.
    assert (of(stage).waits, of(stage).failed, stage.letters) == ("away", len(stage.batches) + 1, [])
    stage.answer = lambda _target, _batch: TAKE
    stage.run(361)
    assert (stage.keys(), of(stage).waits, of(stage).failures, stage.is_over) == (["1", "2"], "", 0, True)


# --- sending at once to a quick sink ----------------------------------------------------------------------------------


def warmed(*targets: Target) -> Stage:
    """Return a stage whose workers have measured their sinks' speed: stream "a" has delivered an event."""
    stage = Stage(*targets)
    stage.come("a", event("0"))
    stage.run(1)
    return stage


@pytest.mark.parametrize("refusal", [AWAY, Refusal("no", is_final=True), "hangs"])
def test_an_event_refused_at_once_is_rung_for_and_keeps_its_place(refusal: Refusal | str) -> None:
    """A worker takes over where the noting call was refused; while events wait, later ones are not sent at once."""
    stage = warmed(TARGET, OTHER)
    stage.come("a", event("1", at_ms=NOW_MS + 1))
    stage.run(1)
    begun_ms = stage.clock.now_ms

    def answer(target: Target, batch: Sequence[Message]) -> Mapping[int, Refusal]:
        if target is OTHER:
            assert stage.clock.now_ms - batch[0].received_at_ms < 1_000
        if target is OTHER or batch[0].key != "2" or stage.clock.now_ms > begun_ms + 20_000:
            return TAKE
        stage.clock.now_ms += 8_000 if refusal == "hangs" else 0
        return {0: AWAY if isinstance(refusal, str) else refusal}

    stage.answer = answer
    for n in (2, 3, 4):
        stage.come("a", event(str(n), at_ms=begun_ms + 300 * n), at_ms=begun_ms + 300 * n)
    stage.run(300)
    assert stage.is_over
    assert stage.keys(OTHER.label) == ["0", "1", "2", "3", "4"]
    is_poison = isinstance(refusal, Refusal) and refusal.is_final
    assert stage.keys() == ["0", "1", *([] if is_poison else ["2"]), "3", "4"]
    came = with_taken(of(stage), stage.virtual.delivery.arrivals.last_arrival("a"))
    assert (len(stage.letters), came.delivered) == ((1, 4) if is_poison else (0, 5))


@pytest.mark.parametrize(("poison", "large"), [(None, ""), (Refusal("no", is_final=True), ""), (None, "x" * 10**6)])
def test_events_sent_at_once_with_a_refused_one_are_sent_once(poison: Refusal | None, large: str) -> None:
    """A worker continues after the accepted events; count and lag are those of the rest.

    Before, events behind poison were sent twice.
    """
    stage, refusals = warmed(), [AWAY]
    stage.answer = lambda _target, batch: (
        {0: poison or refusals.pop()} if batch[0].key == "3" and (poison or refusals) else TAKE
    )
    at_ms = stage.clock.now_ms
    records = stage.stored("a", *(event(str(n), large if n == 3 else "x", at_ms=at_ms + n) for n in (1, 2, 3, 4)))
    stage.virtual.delivery.note(records)
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage)) == (2, at_ms + 3)
    stage.run(60)
    taken = ["0", "1", "2", *([] if poison or large else ["3"]), "4"]
    assert (stage.keys(), of(stage).delivered, stage.is_over) == (taken, len(taken), True)


def test_waiting_and_former_sinks_do_not_delay_a_quick_sink() -> None:
    """A quick sink gets events at once beside a waiting sink and records of 30 former sinks; the API shows it."""
    bucket = Target("s3", "lake", wait_ms=60_000)
    stage = warmed(bucket, OTHER, TARGET)
    stage.run(120)
    stage.targets = (bucket, TARGET)
    for n in range(30):
        stage.delivery.records.save(Place("a", f"webhook:{n}"), SinkRecord(f"webhook:{n}"))
    for n in (1, 2):
        stage.come("a", event(str(n), at_ms=stage.clock.now_ms))
        stage.run(1)
    end = stage.virtual.delivery.arrivals.last_arrival("a")
    assert end is not None
    assert end.taken == {TARGET.label: 3}
    ((shown, behind),) = Sinks(stage.client, DELIVERY, "events").read_all("a", [TARGET.label])
    assert (shown.delivered, behind) == (3, (0, 0))
    stage.run(120)
    assert stage.keys(bucket.label) == ["0", "1", "2"]
    assert stage.is_over


def test_an_event_noted_by_another_call_meanwhile_is_not_skipped() -> None:
    """An event that another shard notes between a sending and its noting is still delivered."""
    stage = warmed()
    other = stage.stored("a", event("1", at_ms=NOW_MS + 1))

    def answer(_target: Target, batch: Sequence[Message]) -> Mapping[int, Refusal]:
        if batch[0].key == "2" and other:
            brought = group_by_stream([other.pop()])["a"]
            stage.virtual.restart()
            stage.virtual.delivery.arrivals.note({"a": brought[:2]}, stage.clock.now_ms)
        return TAKE

    stage.answer = answer
    stage.come("a", event("2", at_ms=NOW_MS + 2))
    stage.run(200)
    assert stage.is_over
    assert list(dict.fromkeys(stage.keys())) == ["0", "2", "1"]


def test_a_record_that_only_arrivals_have_moved_is_written_each_hour() -> None:
    """A sink's record is written each hour, so it has the sink's place even when arrivals expire."""
    stage = warmed()
    for n in range(1, 10):
        stage.come("a", event(str(n), at_ms=stage.clock.now_ms))
        stage.run(600)
    end = stage.virtual.delivery.arrivals.last_arrival("a")
    assert end is not None
    assert (of(stage).delivered, of(stage).number) == (8, end.number - 2)

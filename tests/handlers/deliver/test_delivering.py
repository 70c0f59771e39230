"""Each sink of each stream comes from its own place to the end, whatever the others do and whenever it is rung for."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.deliver.arrivals import KEEP_DAYS
from handlers.deliver.bells import ANSWERED_MS, Bell, Place
from handlers.deliver.contract import Message, Order, Promises, Refusal
from handlers.deliver.delivery_records import SinkRecord
from handlers.deliver.operating import Command, lag
from handlers.deliver.table_records import by_stream
from handlers.deliver.worker import rest_ms
from handlers.profile.deliver_field import Target
from handlers.store.event_items import mark
from tests.handlers.deliver.records import NOW_MS, event, item_record, record, segment_record
from tests.handlers.deliver.stage import AWAY, TAKE, TARGET, Killed, Stage

PLACE = Place("a", TARGET.label)
OTHER = Target("kinesis", "other")
MINUTE_MS = 60_000


def of(stage: Stage, place: Place = PLACE) -> SinkRecord:
    """The record of a place, which is there."""
    found = stage.virtual.delivery.records.read(place)
    assert found is not None
    return found


def asked(stage: Stage, name: str, **more: Any) -> SinkRecord:
    """Has a command carried out, and the sink rung for."""
    delivery = stage.virtual.delivery
    arguments = delivery.records, delivery.arrivals, delivery.feed.page, stage.clock.now_ms
    done = Command(name, **more).carried_out(PLACE, *arguments)
    assert done is not None
    if name != "pause":
        delivery.force(PLACE, done.number)
    return done


# --- what is read -----------------------------------------------------------------------------------------------------


def test_an_item_and_a_segment_are_noted_with_their_events() -> None:
    """In the order of the positions; not what was removed, the anchor of a log, or what stands for a dead letter."""
    item, log = item_record("demo:a#b", event("7"), 2), segment_record("demo", [event("1"), event("2")], 4)
    earlier = item_record("demo:a#b", event("6", at_ms=NOW_MS - 1), 1)
    gone = {**earlier, "eventName": "REMOVE"}
    anchor = record({"PK": {"S": "demo#log"}, "SK": {"S": "anchor"}, "number": {"N": "3"}}, 3)
    buried = record(mark({"PK": {"S": "x"}, "SK": {"S": "1"}, "position": {"S": "1"}}, "TooLarge"), 5)
    found = by_stream([item, log, earlier, gone, anchor, buried])
    assert {one: [(entry.key, entry.events) for entry in entries] for one, (entries, _) in found.items()} == {
        "demo:a#b": [("6", 1), ("7", 1)],
        "demo": [("segment#000000000004", 2)],
    }


def test_an_event_becomes_what_get_shows() -> None:
    """Its JSON, with the stream; bytes as Base64, and a whole segment in its order."""
    stage = Stage(order="request")
    stage.come("demo:a#b", event("7", "body", name="tick"))
    log = segment_record("demo", [event("1", b"\0"), event("2", "x" * 300)], 4)
    stage.client.put_item(TableName="events", Item=_plain(log["dynamodb"]["NewImage"]))
    stage.virtual.at(NOW_MS, lambda: stage.virtual.delivery.note([log]))
    stage.run()
    first, *several = [json.loads(one.text) for _, one in stage.taken]
    assert first == {
        "stream": "demo:a#b",
        "position": f"{NOW_MS:015d}/000000000001/000000000001",
        "received_at": "2023-11-14T22:13:20.000Z",
        "id": "7",
        "name": "tick",
        "key": "7",
        "data": "body",
    }
    assert [(one["key"], one["position"]) for one in several] == [
        ("1", "000000000000004/000000000001/000000000000"),
        ("2", "000000000000004/000000000001/000000000001"),
    ]
    assert (several[0]["data_base64"], several[1]["data"]) == ("AA==", "x" * 300)


def _plain(image: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {kind: base64.b64decode(one) if kind == "B" else one}
        for name, value in image.items()
        for kind, one in value.items()
    }


# --- nothing is skipped, whenever it becomes visible ------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), min_size=1, max_size=12),
    st.lists(st.integers(0, 60), max_size=3),
    st.randoms(use_true_random=False),
)
def test_what_is_stored_late_and_out_of_order_is_delivered_in_the_order_it_was_seen(
    events: list[tuple[int, int]], deaths: list[int], random: Any
) -> None:
    """Two connections write at once, one long after it received; Lambda brings it in any batches, and functions die.

    Every event is taken; the first time that each is, is in the order in which the batches were brought.
    """
    stage = Stage(most=3)
    made = [event(str(n), at_ms=NOW_MS - 60_000 * back) for n, (back, _) in enumerate(events)]
    records = [stage.stored("a", one, fence=fence)[0] for one, (_, fence) in zip(made, events, strict=True)]
    requests, dying = [0], set(deaths)

    def counted(method: Any) -> Any:
        def request(**parameters: Any) -> Any:
            answer = method(**parameters)
            requests[0] += 1
            if requests[0] in dying:
                raise Killed
            return answer

        return request

    for name in ("put_item", "update_item", "delete_item", "batch_execute_statement"):
        setattr(stage.client, name, counted(getattr(stage.client, name)))
    brought: list[str] = []
    at = 0
    while at < len(records):
        size = random.randrange(1, 5)
        _bring(stage, records[at : at + size], NOW_MS + 100 * at)
        brought += [found.key for found in by_stream(records[at : at + size])["a"][0]]
        at += size
    stage.run(600)
    assert stage.is_over
    assert list(dict.fromkeys(stage.keys())) == brought


def _bring(stage: Stage, records: Sequence[dict[str, Any]], at_ms: int) -> None:
    """Has Lambda bring records, again where the function dies."""

    def bring() -> None:
        try:
            stage.virtual.delivery.note(records)
        except Killed:
            stage.virtual.restart()
            bring()

    stage.virtual.at(at_ms, bring)


def test_what_is_noted_at_any_moment_of_a_worker_is_rung_for() -> None:
    """Before each of its requests to the tables, and behind the last: it is delivered at once, and no sweep needed.

    Whoever notes finds the bell out, and rings none, or finds it ended, and rings; whoever ends it looks once more.
    """
    at, most = 1, 2
    while at <= most:
        stage, count = Stage(), 0
        stage.come("a", event("1"))
        late = stage.stored("a", event("2", at_ms=NOW_MS + 1))
        noting = stage.virtual.delivery.note

        class Client:
            """Notes before the request of the number `at`."""

            def __getattr__(self, name: str) -> Any:
                method = getattr(stage.client, name)  # noqa: B023

                def request(**parameters: Any) -> Any:
                    nonlocal count
                    count += 1
                    if count == at:  # noqa: B023
                        noting(late)  # noqa: B023
                    return method(**parameters)

                return request

        stage.run(0.001)
        for part in (stage.virtual.delivery.bells, stage.virtual.delivery.records):
            part._table._dynamodb = Client()
        stage.virtual.delivery.arrivals._table = stage.virtual.delivery.bells._table
        stage.run(9)
        most = max(most, count)
        assert stage.keys() in (["1", "2"], ["1"] if count < at else ["1", "2"]), (at, stage.keys())
        at += 1
    assert most > 5


@pytest.mark.parametrize("at", range(4))
def test_two_workers_at_once_repeat_and_overtake_nothing_new(at: int) -> None:
    """A bell that is answered twice: what each event is first taken in is the order, and one of the two gives way."""
    stage = Stage()
    bells: list[Bell] = []

    def answer(_target: Target, _batch: Sequence[Message]) -> Mapping[int, Refusal]:
        if len(stage.batches) == at + 1 and bells:
            stage.virtual.delivery.answer(bells.pop())
        return TAKE

    stage.answer = answer
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(5)))
    calling = stage.virtual.delivery.ports.call
    bells_of: list[Any] = []

    def call(out: Sequence[Bell]) -> None:
        bells_of.extend(out)
        bells.extend(out)
        calling(out)

    object.__setattr__(stage.virtual.delivery.ports, "call", call)
    stage.run(120)
    assert list(dict.fromkeys(stage.keys())) == ["0", "1", "2", "3", "4"]
    assert stage.is_over


def test_a_lost_bell_is_rung_by_the_next_sweep() -> None:
    """Whatever became of the call; where nothing waits, a sweep finds no bell."""
    stage = Stage()
    stage.virtual.loses = lambda: stage.clock.now_ms < NOW_MS + 1000
    stage.come("a", event("1"))
    stage.run(50)
    assert stage.keys() == []
    stage.run(MINUTE_MS / 1000 + ANSWERED_MS / 1000)
    assert (stage.keys(), stage.is_over) == (["1"], True)
    assert list(stage.virtual.delivery.bells.out()) == []


# --- no sink harms another --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [AWAY, Refusal("no", is_final=True)])
def test_one_sink_that_fails_or_hangs_delays_no_other(refusal: Refusal) -> None:
    """Neither another stream at the same sink, nor another sink of the same stream."""
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


def test_each_sink_has_its_own_back_off() -> None:
    """1, 2, 4 and 8 s within a call; then a minute and more, which the sweep keeps, and five minutes at most."""
    assert [rest_ms(n) // 1000 for n in range(1, 10)] == [1, 2, 4, 8, 60, 120, 240, 300, 300]
    stage = Stage()
    stage.answer = lambda _target, _batch: {0: AWAY}
    stage.come("a", event("1"))
    stage.run(3600)
    assert 15 <= len(stage.batches) <= 20
    assert (of(stage).waits, of(stage).failed, stage.letters) == ("away", len(stage.batches), [])
    stage.answer = lambda _target, _batch: TAKE
    stage.run(361)
    assert (stage.keys(), of(stage).waits, stage.is_over) == (["1"], "", True)


# --- what a sink promises ---------------------------------------------------------------------------------------------

refusals = st.sampled_from(["taken", "taken", "waits", "poison"])


@given(
    st.integers(1, 12),
    st.lists(refusals, max_size=30),
    st.sampled_from(["request", "message", "none"]),
    st.integers(1, 4),
)
def test_every_event_is_taken_or_buried_and_in_order(count: int, answers: list[str], order: Order, most: int) -> None:
    """However a sink refuses, each event ends at the sink or in the queue, in order where the sink keeps one."""
    stage, left = Stage(order=order, most=most), list(answers)

    def answer(_target: Target, batch: Sequence[Message]) -> Mapping[int, Refusal]:
        refused = {}
        for at in range(len(batch)):
            what = left.pop() if left else "taken"
            if what != "taken":
                refused[at] = Refusal(what, what == "poison")
        # What keeps an order takes a request whole or not at all.
        return (
            dict.fromkeys(range(len(batch)), next(iter(refused.values())))
            if refused and order == "request"
            else refused
        )

    stage.answer = answer
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(count)))
    stage.run(7200)
    buried = {letter.key for letter in stage.letters}
    assert set(stage.keys()) | buried == {str(n) for n in range(count)}
    assert not set(stage.keys()) & buried
    assert stage.is_over
    if order != "none":
        assert stage.keys() == sorted(stage.keys(), key=int)


def test_a_message_that_is_too_large_is_buried() -> None:
    """It goes to the dead-letter queue without being sent, and the stream goes on."""
    stage = Stage()
    stage.come("a", event("1", "x" * 500), event("2", at_ms=NOW_MS + 1))
    stage.run()
    (letter,) = stage.letters
    assert (letter.stream_id, letter.key, letter.label) == ("a", "1", TARGET.label)
    assert letter.reason.startswith("too large for the sink: ")
    assert (stage.keys(), of(stage).dead_lettered) == (["2"], 1)


def test_of_a_batch_that_is_refused_for_good_the_poison_alone_is_buried() -> None:
    """A sink that names no message is asked about each by itself."""
    stage = Stage(order="none")
    final = Refusal("Malformed", is_final=True)
    stage.answer = lambda _target, batch: (
        dict.fromkeys(range(len(batch)), final) if "1" in {one.key for one in batch} else TAKE
    )
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(3)))
    stage.run()
    assert stage.batches == [["0", "1", "2"], ["0"], ["1"], ["2"]]
    assert ([one.key for one in stage.letters], stage.keys()) == (["1"], ["0", "2"])


def test_without_an_order_one_that_waits_stops_nothing_and_nothing_is_sent_twice() -> None:
    """What stands behind it is taken once; what was buried beside it is not buried again."""
    stage = Stage(order="none")
    answers = {"0": [AWAY] * 3, "1": [Refusal("no", is_final=True)] * 3}
    stage.answer = lambda _target, batch: {
        at: answers[one.key].pop() for at, one in enumerate(batch) if answers.get(one.key)
    }
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(3)))
    stage.run(20)
    assert (stage.keys(), [one.key for one in stage.letters]) == (["2", "0"], ["1"])


def test_without_the_order_a_request_holds_several_of_a_stream() -> None:
    """`unordered = true` is for throughput; with the order a request that may be refused in part has one event."""
    for target, batches in ((TARGET, [["0"], ["1"], ["2"]]), (replace(TARGET, in_order=False), [["0", "1", "2"]])):
        stage = Stage(target)
        stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(3)))
        stage.run()
        assert stage.batches == batches


def test_without_an_order_each_of_a_refused_batch_is_tried() -> None:
    """The sink refuses the batch for good; asked about each, it takes what stands behind the one that waits."""
    stage = Stage(order="none")
    final = Refusal("Malformed", is_final=True)
    stage.answer = lambda _target, batch: (
        dict.fromkeys(range(3), final) if len(batch) > 1 else {"0": {0: AWAY}, "1": {0: final}}.get(batch[0].key, TAKE)
    )
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(3)))
    stage.run(0.1)
    assert stage.batches[:4] == [["0", "1", "2"], ["0"], ["1"], ["2"]]
    assert (stage.keys(), [one.key for one in stage.letters]) == (["2"], ["1"])


def test_an_event_that_cannot_be_buried_waits() -> None:
    """Nothing is passed before the sink or the queue has it."""
    stage = Stage()
    stage.is_queue_open = False
    stage.come("a", event("1", "x" * 500), event("2", at_ms=NOW_MS + 1))
    stage.run(20)
    assert (stage.letters, of(stage).waits) == ([], "the dead-letter queue does not take it")
    stage.is_queue_open = True
    stage.run(600)
    assert ([one.key for one in stage.letters], list(dict.fromkeys(stage.keys())), stage.is_over) == (
        ["1"],
        ["2"],
        True,
    )


@pytest.mark.parametrize(
    "damage",
    [{"received_at_ms": {"S": "x"}}, {"encoding": {"S": "text+gzip"}, "data": {"B": b"?"}}, {"layout": {"N": "9"}}],
)
def test_an_event_that_cannot_be_read_is_buried(damage: dict[str, Any]) -> None:
    """An item that a newer release wrote, say, holds up nothing."""
    stage = Stage()
    one, two = stage.stored("a", event("1"), event("2", at_ms=NOW_MS + 1))
    key = {name: {"S": text} for name, text in (("PK", "a"), ("SK", "1"))}
    item = stage.client.get_item(TableName="events", Key=key)["Item"] | damage
    stage.client.put_item(TableName="events", Item=item)
    stage.virtual.at(NOW_MS, lambda: stage.virtual.delivery.note([one, two]))
    stage.run()
    assert ([letter.key for letter in stage.letters], stage.keys()) == (["1"], ["2"])


def test_what_surrounds_a_message_counts() -> None:
    """In the size of one, and of a request: both are the sink's limits to the byte."""
    stage = Stage(order="none")
    stage.come("a", event("0"))
    stage.run()
    size = stage.taken[0][1].size_bytes
    for most_bytes, most_message_bytes, batches, letters in (
        (2 * (size + 20), size + 20, [["0", "1"], ["2"]], 0),
        (2 * (size + 20) - 1, size + 20, [["0"], ["1"], ["2"]], 0),
        (1000, size + 19, [], 3),
    ):
        stage = Stage()
        stage.promises = Promises("none", 10, most_bytes, most_message_bytes, around_bytes=20)
        stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(3)))
        stage.run()
        assert (stage.batches, len(stage.letters)) == (batches, letters)


def test_a_profile_that_is_wrong_loses_nothing() -> None:
    """What came meanwhile is noted, and each sink begins with it when somebody has mended the profile."""
    stage = Stage(TARGET, OTHER)
    stage.problem = "deliver: no such sink"
    stage.come("a", event("1"))
    stage.come("a", event("2", at_ms=NOW_MS + 1))
    stage.run(30)
    stage.problem = ""
    stage.run(120)
    assert (stage.keys(), stage.keys(OTHER.label), stage.is_over) == (["1", "2"], ["1", "2"], True)


def test_a_stream_whose_profile_delivers_nothing_is_not_noted() -> None:
    """Nothing of it is read, written or sent."""
    stage = Stage()
    stage.targets = ()
    stage.come("a", event("1"))
    stage.run()
    assert (stage.taken, stage.virtual.delivery.arrivals.end("a")) == ([], None)


def test_a_request_that_is_not_full_waits_for_more() -> None:
    """`wait_s` of a profile: what comes within it goes together; a full request goes at once."""
    stage = Stage(replace(TARGET, wait_ms=1_000), order="request", most=3)
    stage.come("a", event("0"))
    stage.come("a", event("1"), at_ms=NOW_MS + 6)
    stage.run(2)
    assert stage.batches == [["0", "1"]]
    assert NOW_MS + 1_000 <= stage.virtual.worked[0][0] < NOW_MS + 1_200
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(2, 5)))
    stage.run(0.2)
    assert stage.batches[1:] == [["2", "3", "4"]]


# --- what a person asks -----------------------------------------------------------------------------------------------


def test_a_sink_that_is_paused_gets_nothing_and_goes_on_from_there() -> None:
    """Its lag says what waits, and for how long."""
    stage = Stage()
    stage.come("a", event("1"))
    stage.run()
    assert asked(stage, "pause").is_paused
    stage.come("a", event("2", at_ms=stage.clock.now_ms), event("3", at_ms=stage.clock.now_ms + 5))
    stage.run(300)
    assert (stage.keys(), stage.is_over) == (["1"], True)
    behind = lag(stage.virtual.delivery.arrivals, "a", of(stage))
    assert (behind.events, stage.clock.now_ms - behind.oldest_ms) == (2, 300_000)
    asked(stage, "resume")
    stage.run(1)
    assert stage.keys() == ["1", "2", "3"]
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage)) == (0, 0)


def test_what_is_in_the_way_is_skipped_alone_or_with_all_behind_it() -> None:
    """One event, or all: what comes later is delivered."""
    stage = Stage()
    stage.answer = lambda _target, batch: {0: AWAY} if int(batch[0].key) < 5 else TAKE
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(5)))
    stage.run(40)
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage)).events == 5
    assert asked(stage, "skip").skipped == 1
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage)).events == 4
    assert asked(stage, "skip", is_all=True).skipped == 5
    stage.come("a", event("5", at_ms=stage.clock.now_ms))
    stage.run(40)
    assert (stage.keys(), stage.is_over) == (["5"], True)


@pytest.mark.parametrize("layout", [(1, "index"), (3, "index"), (1, "none")])
def test_a_replay_sends_again_what_came_since_an_instant(layout: Any) -> None:
    """In the stream's order, each marked, though the arrivals are long gone; then it goes on where it was."""
    stage = Stage(layout=layout)
    stage.come("a", *(event(str(n), at_ms=NOW_MS + 1000 * n) for n in range(8)), at_ms=NOW_MS + 9_000)
    stage.run(20)
    asked(stage, "replay", from_ms=NOW_MS + 4_000)
    stage.run(120)
    assert (stage.keys()[:8], stage.keys()[8:]) == ([str(n) for n in range(8)], ["4", "5", "6", "7"])
    assert [json.loads(one.text).get("replayed", False) for _, one in stage.taken] == [False] * 8 + [True] * 4
    stage.come("a", event("8", at_ms=stage.clock.now_ms))
    stage.run(10)
    assert stage.keys()[12:] == ["8"]
    assert (of(stage).is_replaying, stage.is_over) == (False, True)


@pytest.mark.parametrize(
    ("from_ms", "keys"), [(None, ["3"]), (NOW_MS + 1_000, ["1", "2", "3"]), (0, ["0", "1", "2", "3"])]
)
def test_a_new_sink_begins_now_or_with_what_its_profile_says(from_ms: int | None, keys: list[str]) -> None:
    """`from` of a profile is an instant, or the start; what is read so is no repetition, and not marked."""
    stage = Stage()
    stage.come("a", *(event(str(n), at_ms=NOW_MS + 1000 * n) for n in range(3)), at_ms=NOW_MS + 3_000)
    stage.run(20)
    stage.targets = (TARGET, replace(OTHER, from_ms=from_ms))
    stage.come("a", event("3", at_ms=stage.clock.now_ms))
    stage.run(150)
    assert list(dict.fromkeys(stage.keys(OTHER.label))) == keys
    assert not [one for _, one in stage.taken if "replayed" in one.text]
    assert (stage.keys(), stage.is_over) == (["0", "1", "2", "3"], True)


def test_what_an_expired_arrival_had_is_read_from_the_events() -> None:
    """A sink that was away for longer than arrivals are kept gets what came since it last took something."""
    stage = Stage()
    stage.come("a", event("0"))
    stage.run()
    asked(stage, "pause")
    for n in range(1, 4):
        stage.come("a", event(str(n), at_ms=stage.clock.now_ms + n), at_ms=stage.clock.now_ms + n)
    stage.run(1)
    for arrival in stage.virtual.delivery.arrivals.since("a", 0, 10):
        key = {"PK": {"S": "a"}, "SK": {"S": f"arrival#{arrival.number:015d}"}}
        stage.client.delete_item(TableName="delivery", Key=key)
    stage.virtual.restart()
    stage.clock.now_ms += KEEP_DAYS * 86_400_000
    asked(stage, "resume")
    stage.come("a", event("4", at_ms=stage.clock.now_ms))
    stage.run(120)
    assert list(dict.fromkeys(stage.keys())) == ["0", "1", "2", "3", "4"]
    assert stage.is_over

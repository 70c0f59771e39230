"""A sink keeps its promises: its order, its limits to the byte, and what it refuses for good."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.deliver.bells import Place
from handlers.deliver.contract import Message, Order, Promises, Refusal, Tools
from handlers.deliver.operating import Command
from handlers.deliver.sending import LONGEST_REST_MS
from handlers.deliver.sinks import s3
from handlers.errors import StoreUnavailable
from handlers.profile.deliver_field import Target
from tests.handlers.deliver.records import NOW_MS, event
from tests.handlers.deliver.stage import AWAY, OTHER, PLACE, TAKE, TARGET, Stage, asked, of

refusals = st.sampled_from(["taken", "taken", "waits", "poison"])


@given(
    st.integers(1, 12),
    st.lists(refusals, max_size=30),
    st.sampled_from(["request", "message", "none"]),
    st.integers(1, 4),
)
def test_every_event_is_taken_or_buried_and_in_order(count: int, answers: list[str], order: Order, most: int) -> None:
    """However a sink refuses, each event ends at the sink or in the queue, in order if the sink keeps one."""
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


@pytest.mark.parametrize(("first", "taken"), [(None, ["0", "2"]), (AWAY, ["2"])], ids=["taken", "waits"])
def test_of_a_batch_that_is_refused_for_good_the_poison_alone_is_buried(
    first: Refusal | None, taken: list[str]
) -> None:
    """A sink that names no message is asked about each half, down to a single one, even if one before it waits."""
    stage = Stage(order="none")
    final = Refusal("Malformed", is_final=True)
    stage.answer = lambda _target, batch: (
        dict.fromkeys(range(len(batch)), final) if "1" in {one.key for one in batch}
        else {0: first} if first and batch[0].key == "0" else TAKE
    )  # fmt: skip
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(3)))
    stage.run(0.1)
    assert stage.batches[:5] == [["0", "1", "2"], ["0"], ["1", "2"], ["1"], ["2"]]
    assert ([one.key for one in stage.letters], stage.keys()) == (["1"], taken)


def test_without_an_order_one_that_waits_stops_nothing_and_nothing_is_sent_twice() -> None:
    """Events after it are sent once; one that was buried beside it is not buried again."""
    stage = Stage(order="none")
    answers = {"0": [AWAY] * 3, "1": [Refusal("no", is_final=True)] * 3}
    stage.answer = lambda _target, batch: {
        at: answers[one.key].pop() for at, one in enumerate(batch) if answers.get(one.key)
    }
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(3)))
    stage.run(20)
    assert (stage.keys(), [one.key for one in stage.letters]) == (["2", "0"], ["1"])
    stage, again = Stage(replace(TARGET, in_order=False), most=1), [AWAY] * 6
    stage.answer = lambda _target, batch: {0: again.pop()} if batch[0].key == "0" and again else TAKE
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(30)))
    stage.run(40)
    assert stage.keys() == [str(n) for n in (*range(1, 30), 0)]


@pytest.mark.parametrize(("most", "takes"), [(500, 64), (500, 1), (10, 4)])
def test_a_sink_without_an_order_that_refuses_large_requests_gets_smaller_ones(most: int, takes: int) -> None:
    """It took one event a try, some 29 of 200 in an hour, because it was asked for all after each success."""
    stage = Stage(order="none", most=most)
    stage.answer = lambda _, batch: dict.fromkeys(range(len(batch)), AWAY) if len(batch) > takes else TAKE
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(200)))
    stage.run(600)
    assert (sorted(map(int, stage.keys())), stage.is_over) == ([*range(200)], True)


def test_without_the_order_a_request_holds_several_of_a_stream() -> None:
    """`unordered = true` gives throughput; with the order, a request that may be refused in part has one event."""
    for target, batches in ((TARGET, [["0"], ["1"], ["2"]]), (replace(TARGET, in_order=False), [["0", "1", "2"]])):
        stage = Stage(target)
        stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(3)))
        stage.run()
        assert stage.batches == batches


def test_an_event_that_cannot_be_buried_waits() -> None:
    """It is too large for the sink: the place moves on only once the queue has it."""
    stage = Stage()
    stage.is_queue_open = False
    stage.come("a", event("1", "x" * 500), event("2", at_ms=NOW_MS + 1))
    stage.run(20)
    assert (stage.letters, of(stage).waits) == ([], "the dead-letter queue does not take it")
    stage.is_queue_open = True
    stage.run(600)
    (letter,) = stage.letters
    assert (letter.stream_id, letter.key, letter.label) == ("a", "1", TARGET.label)
    assert letter.reason.startswith("too large for the sink: ")
    assert (list(dict.fromkeys(stage.keys())), of(stage).dead_lettered, stage.is_over) == (["2"], 1, True)


@pytest.mark.parametrize(
    "damage",
    [{"received_at_ms": {"S": "x"}}, {"encoding": {"S": "text+gzip"}, "data": {"B": b"?"}}, {"layout": {"N": "9"}}],
)
@pytest.mark.parametrize("is_queue_open", [True, False], ids=["", "skipped"])
def test_an_event_that_cannot_be_read_is_buried(damage: dict[str, Any], *, is_queue_open: bool) -> None:
    """An item that a newer release wrote, for example, does not stop the stream.

    If the dead-letter queue does not take it, a skip passes over it, and not over the next event.
    """
    stage = Stage()
    stage.is_queue_open = is_queue_open
    one, two = stage.stored("a", event("1"), event("2", at_ms=NOW_MS + 1))
    key = {name: {"S": text} for name, text in (("PK", "a"), ("SK", "1"))}
    item = stage.client.get_item(TableName="events", Key=key)["Item"] | damage
    stage.client.put_item(TableName="events", Item=item)
    stage.virtual.at(NOW_MS, lambda: stage.virtual.delivery.note([one, two]))
    stage.run()
    assert is_queue_open or asked(stage, "skip").skipped == 1
    stage.run()
    assert ([letter.key for letter in stage.letters], stage.keys()) == (["1"] * is_queue_open, ["2"])


def test_what_surrounds_a_message_counts() -> None:
    """It counts for the size of a message and of a request, whose limits hold to the byte."""
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


def test_a_request_to_a_bucket_is_one_object() -> None:
    """The time of a request is bounded: a replay of a thousand hours would else be one, and never end in time."""
    service = Mock(put_object=Mock(return_value={"ETag": "e"}))
    stage = Stage(Target("s3", "lake"))
    stage.promises = s3.PROMISES
    stage.answer = lambda target, batch: s3.send(batch, target, Tools(lambda _: service, str, lambda: 0))
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n * 1_800_000) for n in range(5)))
    stage.run()
    assert stage.batches == [["0", "1"], ["2", "3"], ["4"]]
    puts = [one.kwargs["Key"][:15] for one in service.put_object.call_args_list]
    assert puts == ["a/2023/11/14/22", "a/2023/11/14/23", "a/2023/11/15/00"]


@pytest.mark.parametrize("is_quick", [False, True], ids=["a worker is refused", "the noting call is refused"])
@pytest.mark.parametrize(("asked_ms", "rest_ms"), [(7_000, 7_000), (90_000, 90_000), (10**9, LONGEST_REST_MS)])
def test_a_sink_is_left_alone_for_as_long_as_it_asks(asked_ms: int, rest_ms: int, *, is_quick: bool) -> None:
    """It gets no request for so long, or for five minutes if it asks for more; then it gets everything."""
    stage, asked_at = Stage(), list[int]()
    if is_quick:
        stage.come("a", event("0"))
        stage.run(1)

    def answer(_target: Target, _batch: Sequence[Message]) -> Mapping[int, Refusal]:
        asked_at.append(stage.clock.now_ms)
        return {0: Refusal("answered 429", rest_ms=asked_ms)} if len(asked_at) == 1 else TAKE

    stage.answer = answer
    begun_ms = stage.clock.now_ms
    stage.come("a", *(event(str(n), at_ms=begun_ms + n) for n in (1, 2)), at_ms=begun_ms)
    stage.run(rest_ms / 1000 + 70)
    assert rest_ms <= asked_at[1] - asked_at[0] < rest_ms + 61_000
    assert (stage.keys()[is_quick:], stage.is_over) == (["1", "2"], True)


@pytest.mark.parametrize(("later_s", "is_long"), [([], False), ([0.1, 150], False), ([30, 150], False), ([], True)])
def test_a_profile_that_is_wrong_loses_nothing(later_s: list[float], *, is_long: bool) -> None:
    """Events are noted meanwhile; each sink begins with them after the correction, even if a later one rings first.

    It does so even if the arrivals have expired and nothing more comes, and gets nothing that is older; nor does a
    person's replay from later on change that.
    """
    stage = Stage(TARGET, OTHER, request_ms=300)
    stage.stored("a", event("older", at_ms=NOW_MS - 86_400_000))
    stage.come("a", event("0"))
    if is_long:  # it rings for the sinks, whose calls find the profile wrong
        stage.run(0.001)
    stage.problem = ValueError("deliver: no such sink")
    stage.come("a", event("1", at_ms=NOW_MS + 1))
    stage.run(59.9)
    assert stage.delivery.carry_out(Command("pause"), PLACE) == "the profile of a is wrong: deliver: no such sink"
    if is_long:
        stage.expire()
    stage.problem = None
    if is_long:
        asked(stage, "replay", from_ms=stage.clock.now_ms)
    for n, after_s in enumerate(later_s, 2):
        stage.come("a", event(str(n), at_ms=stage.clock.now_ms))
        stage.run(after_s)
    stage.run(120)
    assert stage.keys() == stage.keys(OTHER.label) == [str(n) for n in range(2 + len(later_s))]
    assert stage.is_over


def test_a_profile_that_cannot_be_read_keeps_no_call_from_noting() -> None:
    """A call's records are those of many streams, and S3 may not answer for one of their profiles."""
    stage = Stage()
    stage.problem = StoreUnavailable("AWS did not answer GetObject")
    with suppress(StoreUnavailable):
        stage.delivery.note(stage.stored("a", event("1")))
    stage.problem = None
    stage.run(1)
    assert (stage.keys(), stage.is_over) == (["1"], True)


def test_a_call_that_knows_an_older_profile_reads_it_anew_before_it_misses_a_sink() -> None:
    """Otherwise it ends a new sink's bell, so that events are not sent, or begins the sink without its `from`."""
    stage, new = Stage(TARGET, replace(OTHER, from_ms=NOW_MS - 60_000)), Place("a", OTHER.label)
    delivery, known = stage.delivery, list[Sequence[Target]]([(TARGET,)])
    ports = replace(delivery.ports, targets=lambda _: known[-1], left_ms=lambda: 60_000)
    old = replace(delivery, ports=replace(ports, reread=lambda _: known.append((*stage.targets,))))
    delivery.note(stage.stored("a", event("0")))
    bell = delivery.bells.at(new)
    assert bell is not None
    old.answer(bell)
    assert dict.fromkeys(stage.keys(OTHER.label)) == {"0": None}
    del known[1:]
    stage.stored("b", event("1"))
    assert old.carry_out(Command("resume"), Place("b", OTHER.label)) == ""
    assert of(stage, Place("b", OTHER.label)).is_replaying


def test_a_stream_whose_profile_delivers_nothing_is_not_noted() -> None:
    """Nothing of it is read, written or sent."""
    stage = Stage()
    stage.targets = ()
    stage.come("a", event("1"))
    stage.run()
    assert (stage.taken, stage.virtual.delivery.arrivals.end("a")) == ([], None)


def test_a_request_that_is_not_full_waits_for_more() -> None:
    """Events within a profile's `wait_s` go together; a full request goes at once."""
    stage = Stage(replace(TARGET, wait_ms=1_000), order="request", most=3)
    stage.come("a", event("0"))
    stage.come("a", event("1"), at_ms=NOW_MS + 6)
    stage.run(2)
    assert stage.batches == [["0", "1"]]
    assert NOW_MS + 1_000 <= stage.virtual.worked[0][0] < NOW_MS + 1_200
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(2, 5)))
    stage.run(0.2)
    assert stage.batches[1:] == [["2", "3", "4"]]
    asked(stage, "pause")
    stage.come("a", *(event(str(n)) for n in range(5, 8)))
    asked(stage, "resume")
    stage.run(0.2)
    assert stage.batches[2:] == [["5", "6", "7"]]

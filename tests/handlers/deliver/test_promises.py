"""A sink keeps its promises: its order, its limits to the byte, and its final refusals."""

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
from handlers.deliver.sending import LONGEST_REST_MS
from handlers.deliver.sink_commands import Command
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
def test_every_event_is_accepted_or_a_dead_letter(count: int, answers: list[str], order: Order, most: int) -> None:
    """With any refusals, each event is accepted by the sink or a dead letter, in order if the sink keeps one."""
    stage, left = Stage(order=order, most=most), list(answers)

    def answer(_target: Target, batch: Sequence[Message]) -> Mapping[int, Refusal]:
        refused = {}
        for at in range(len(batch)):
            what = left.pop() if left else "taken"
            if what != "taken":
                refused[at] = Refusal(what, what == "poison")
        # A sink with order by request accepts a request whole or not at all.
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
def test_only_the_poison_of_a_batch_refused_for_good_is_a_dead_letter(first: Refusal | None, taken: list[str]) -> None:
    """If a sink refuses a batch for good without naming a message, each half is sent, down to a single message."""
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


def test_without_an_order_a_waiting_event_delays_no_other() -> None:
    """Without an order, events after a waiting one are sent once, and a dead letter beside it is written once."""
    stage = Stage(order="none")
    answers = {"0": [AWAY] * 3, "1": [Refusal("no", is_final=True)] * 3}
    stage.answer = lambda _target, batch: {
        at: answers[one.key].pop() for at, one in enumerate(batch) if answers.get(one.key)
    }
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(3)))
    stage.run(20)
    assert (stage.keys(), [one.key for one in stage.letters]) == (["2", "0"], ["1"])
    stage, again, sent_ms = Stage(replace(TARGET, in_order=False), most=1), [AWAY] * 4, dict[str, int]()

    def answer(_target: Target, batch: Sequence[Message]) -> Mapping[int, Refusal]:
        sent_ms.setdefault(batch[0].key, stage.clock.now_ms)
        return {0: again.pop()} if batch[0].key == "0" and again else TAKE

    stage.answer = answer
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(30)))
    stage.run(40)
    assert (stage.keys(), sent_ms["29"]) == ([str(n) for n in (*range(1, 30), 0)], NOW_MS + 320)


@pytest.mark.parametrize(("most", "takes"), [(500, 64), (500, 1), (10, 4)])
def test_a_sink_without_an_order_that_refuses_large_requests_gets_smaller_ones(most: int, takes: int) -> None:
    """If a sink refuses large requests, it gets smaller ones. Before, each success was followed by a full request.

    Then only one event a try was accepted, some 29 of 200 in an hour.
    """
    stage = Stage(order="none", most=most)
    stage.answer = lambda _, batch: dict.fromkeys(range(len(batch)), AWAY) if len(batch) > takes else TAKE
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(200)))
    stage.run(600)
    assert (sorted(map(int, stage.keys())), stage.is_over) == ([*range(200)], True)


def test_without_the_order_a_request_holds_several_of_a_stream() -> None:
    """With `unordered = true` a request has several events of a stream; with the order it has one."""
    for target, batches in ((TARGET, [["0"], ["1"], ["2"]]), (replace(TARGET, in_order=False), [["0", "1", "2"]])):
        stage = Stage(target)
        stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(3)))
        stage.run()
        assert stage.batches == batches


def test_an_event_that_the_dead_letter_queue_refuses_waits() -> None:
    """An event too large for the sink holds the place until the dead-letter queue accepts it."""
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
def test_an_event_that_cannot_be_read_is_a_dead_letter(damage: dict[str, Any], *, is_queue_open: bool) -> None:
    """An event that cannot be read, as a newer release's item, is a dead letter and does not stop the stream.

    If the dead-letter queue refuses it, a skip drops only this event.
    """
    stage = Stage()
    stage.is_queue_open = is_queue_open
    one, two = stage.stored("a", event("1"), event("2", at_ms=NOW_MS + 1))
    key = {name: {"S": text} for name, text in (("PK", "a"), ("SK", "1"))}
    item = stage.client.get_item(TableName="events", Key=key)["Item"] | damage
    stage.client.put_item(TableName="events", Item=item)
    stage.virtual.schedule(NOW_MS, lambda: stage.virtual.delivery.note([one, two]))
    stage.run()
    assert is_queue_open or asked(stage, "skip").skipped == 1
    stage.run()
    assert ([letter.key for letter in stage.letters], stage.keys()) == (["1"] * is_queue_open, ["2"])


def test_the_bytes_around_a_message_count() -> None:
    """The bytes around a message count for the limits of a message and of a request, to the byte."""
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
    """Events of one hour make one object and one request, so that no request of a replay takes too long."""
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
def test_a_sink_gets_no_request_for_the_time_it_requests(asked_ms: int, rest_ms: int, *, is_quick: bool) -> None:
    """A sink gets no request for its requested time, at most five minutes; then it gets every event."""
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
def test_an_invalid_profile_loses_no_event(later_s: list[float], *, is_long: bool) -> None:
    """With an invalid profile events are noted; after the correction each sink begins with them, and with none older.

    This holds even if a later event rings first, if the arrivals have expired, and after a replay from a later instant.
    """
    stage = Stage(TARGET, OTHER, request_ms=300)
    stage.stored("a", event("older", at_ms=NOW_MS - 86_400_000))
    stage.come("a", event("0"))
    if is_long:  # the first event rings for the sinks, whose calls find the profile invalid
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
    """A profile that S3 does not return delays only its own stream: the call notes the events all the same."""
    stage = Stage()
    stage.problem = StoreUnavailable("AWS did not answer GetObject")
    with suppress(StoreUnavailable):
        stage.delivery.note(stage.stored("a", event("1")))
    stage.problem = None
    stage.run(1)
    assert (stage.keys(), stage.is_over) == (["1"], True)


def test_a_call_that_knows_an_older_profile_reads_it_anew_before_it_misses_a_sink() -> None:
    """A call that does not know a sink reads the profile again before it ends the bell or ignores the `from`."""
    stage, new = Stage(TARGET, replace(OTHER, from_ms=NOW_MS - 60_000)), Place("a", OTHER.label)
    delivery, known = stage.delivery, list[Sequence[Target]]([(TARGET,)])
    ports = replace(delivery.ports, targets=lambda _: known[-1], left_ms=lambda: 60_000)
    old = replace(delivery, ports=replace(ports, reread=lambda _: known.append((*stage.targets,))))
    delivery.note(stage.stored("a", event("0")))
    bell = delivery.bells.find(new)
    assert bell is not None
    old.answer(bell)
    assert dict.fromkeys(stage.keys(OTHER.label)) == {"0": None}
    del known[1:]
    stage.stored("b", event("1"))
    assert old.carry_out(Command("resume"), Place("b", OTHER.label)) == ""
    assert of(stage, Place("b", OTHER.label)).is_replaying


def test_a_stream_whose_profile_delivers_nothing_is_not_noted() -> None:
    """A stream without sinks causes no arrivals."""
    stage = Stage()
    stage.targets = ()
    stage.come("a", event("1"))
    stage.run()
    assert (stage.taken, stage.virtual.delivery.arrivals.last_arrival("a")) == ([], None)


def test_a_request_that_is_not_full_waits_for_more() -> None:
    """Events within the profile's `wait_s` are sent together; a full request is sent at once."""
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

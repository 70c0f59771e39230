"""What an invocation delivers and reports, for every sequence of refusals."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.deliver.batch import GIVE_UP_MS, Delivered, Letter, Ports, Result, deliver
from handlers.deliver.contract import Message, Order, Promises, Refusal
from handlers.deliver.delivery_records import Place
from handlers.deliver.table_records import messages
from handlers.profile.deliver_field import Target
from handlers.store.event_items import event_item, mark
from tests.handlers.deliver.records import NOW_MS, event, item_record, record, segment_record

TARGET = Target("sqs", "orders.fifo")
TAKE: dict[int, Refusal] = {}


class World:
    """A sink that answers as it is told, a dead-letter queue, and a clock."""

    def __init__(self, order: Order = "message", most: int = 10) -> None:
        self.promises = Promises(order, most, 1000, 400)
        self.delivered = Delivered()
        self.taken: list[Message] = []
        self.batches: list[list[str]] = []
        self.letters: list[Letter] = []
        self.now_ms, self.left_ms = NOW_MS, 100_000
        self.answer: Callable[[Sequence[Message]], Mapping[int, Refusal]] = lambda _: TAKE
        self.is_queue_open = True
        self.buried = 0
        self.targets: Sequence[Target] = (TARGET,)
        self.problem = ""

    def send(self, batch: Sequence[Message]) -> Mapping[int, Refusal]:
        """What the sink answers to a batch."""
        self.batches.append([message.key for message in batch])
        refused = self.answer(batch)
        self.taken += [message for at, message in enumerate(batch) if at not in refused]
        return refused

    def dead_letter(self, letter: Letter) -> bool:
        """Whether the dead-letter queue took it."""
        self.buried += 1
        if self.is_queue_open:
            self.letters.append(letter)
        return self.is_queue_open

    def targets_of(self, _stream_id: str) -> Sequence[Target]:
        """Where events go, unless the profile is wrong."""
        if self.problem:
            raise ValueError(self.problem)
        return self.targets

    def run(self, records: Sequence[dict[str, Any]]) -> Result:
        """One invocation."""
        ports = Ports(
            self.targets_of,
            lambda _: (self.promises, self.send),
            self.dead_letter,
            lambda: self.now_ms,
            lambda: self.left_ms,
        )
        return deliver(records, ports, self.delivered)

    def run_all(self, records: Sequence[dict[str, Any]], most: int = 1000) -> int:
        """Calls again as Lambda does, from the record that was reported; returns how often."""
        left = list(records)
        for count in range(1, most):
            failed_at = self.run(left).failed_at
            if not failed_at:
                return count
            left = [one for one in left if one["dynamodb"]["SequenceNumber"] >= failed_at]
        raise AssertionError("it came to no end")


def test_an_item_and_a_segment_become_what_get_shows() -> None:
    """Each event is its JSON, with the stream; bytes as Base64, in the order of the segment."""
    (message,) = messages(item_record("demo:a#b", event("7", "body", name="tick"), 1), 0)
    assert json.loads(message.text) == {
        "stream": "demo:a#b",
        "position": f"{NOW_MS:015d}/000000000001/000000000001",
        "received_at": "2023-11-14T22:13:20.000Z",
        "id": "7",
        "name": "tick",
        "key": "7",
        "data": "body",
    }
    several = messages(segment_record("demo", [event("1", b"\0"), event("2", "x" * 9000)], 4), 3)
    assert [(one.key, one.position, one.place) for one in several] == [
        ("1", "000000000000004/000000000001/000000000000", 3),
        ("2", "000000000000004/000000000001/000000000001", 3),
    ]
    assert json.loads(several[0].text)["data_base64"] == "AA=="
    assert json.loads(several[1].text)["data"] == "x" * 9000


def test_what_is_no_event_is_not_delivered() -> None:
    """Not what time or a person removed, the anchor of a log, or the mark of an event in the dead-letter queue."""
    item = event_item("demo", 1, 1, event("1"))
    gone = record(item, 1, kind="REMOVE")
    del gone["dynamodb"]["NewImage"]
    anchor = record({"PK": {"S": "demo#log"}, "SK": {"S": "anchor"}, "number": {"N": "3"}}, 2)
    marked = record(mark(item, "TooLarge"), 3)
    assert [messages(one, 0) for one in (gone, anchor, marked)] == [[], [], []]
    assert [one.key for one in messages(record(item, 4, kind="MODIFY"), 0)] == ["1"]


def test_a_stream_whose_profile_delivers_nothing_is_done() -> None:
    """Its records are neither read nor sent, and nothing is counted."""
    world = World()
    world.targets = ()
    assert (world.run([item_record("demo", event("1"), 1)]), world.batches) == (Result(), [])


refusals = st.sampled_from(["taken", "taken", "waits", "poison"])


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=12),
    st.lists(refusals, max_size=30),
    st.sampled_from(["request", "message", "none"]),
    st.integers(1, 4),
)
def test_every_event_is_taken_or_buried_and_in_order(
    plan: list[tuple[str, bool]], answers: list[str], order: Order, most: int
) -> None:
    """However a sink refuses, each event ends at the sink or in the queue, none before an earlier one of its stream.

    Where a sink keeps an order, the first time that each event is taken is in the order of the stream.
    """
    records, keys = [], []
    for number, (stream_id, is_segment) in enumerate(plan, 1):
        events = [event(f"{number}-{part}", at_ms=NOW_MS + number) for part in range(2 if is_segment else 1)]
        keys += [(stream_id, one.key) for one in events]
        made = segment_record(stream_id, events, number) if is_segment else item_record(stream_id, events[0], number)
        records.append(made)
    world, left = World(order, most), list(answers)

    def answer(batch: Sequence[Message]) -> Mapping[int, Refusal]:
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

    world.answer = answer
    world.run_all(records)
    buried = {(letter.stream_id, letter.key) for letter in world.letters}
    taken = [(message.stream_id, message.key) for message in world.taken]
    assert set(taken) | buried == set(keys)
    assert not set(taken) & buried
    assert len(taken) == len(set(taken)), "a warm sandbox repeats nothing"
    if order != "none":
        for stream_id in "abc":
            mine = [message for message in world.taken if message.stream_id == stream_id]
            assert mine == sorted(mine, key=lambda one: one.position)


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=8), st.integers(0, 8))
def test_a_killed_sandbox_repeats_and_loses_nothing(streams: list[str], at: int) -> None:
    """Where nobody remembers what was sent, every event comes again with its key, and none is missing."""
    records = [item_record(one, event(str(n), at_ms=NOW_MS + n), n) for n, one in enumerate(streams, 1)]
    world = World(most=1)
    world.answer = lambda _: {0: Refusal("away")} if len(world.taken) >= at else TAKE
    world.run(records)
    world.delivered = Delivered()
    world.answer = lambda _: TAKE
    assert world.run(records).failed_at == ""
    assert {(one.stream_id, one.key) for one in world.taken} == {(one, str(n)) for n, one in enumerate(streams, 1)}


def test_one_stream_that_waits_holds_up_no_other() -> None:
    """The other stream's events are taken and counted; Lambda is told the first record that waits."""
    world = World()
    world.answer = lambda batch: {at: Refusal("away") for at, one in enumerate(batch) if one.stream_id == "a"}
    made = [item_record("ab"[n % 2], event(str(n), at_ms=NOW_MS + n), n) for n in range(4)]
    world.now_ms = NOW_MS + 60_000
    result = world.run(made)
    assert result.failed_at == made[0]["dynamodb"]["SequenceNumber"]
    assert [one.key for one in world.taken] == ["1", "3"]
    counts = {place: (one.delivered, one.failed, one.lag_ms, one.reason) for place, one in result.counts.items()}
    assert counts == {
        Place("a", "sqs:orders.fifo"): (0, 2, 60_000, "away"),
        Place("b", "sqs:orders.fifo"): (2, 0, 59_997, ""),
    }


def test_a_message_that_is_too_large_is_buried() -> None:
    """It goes to the dead-letter queue without being sent, and the stream goes on."""
    world = World()
    result = world.run([item_record("a", event("1", "x" * 500), 1), item_record("a", event("2", at_ms=NOW_MS + 1), 2)])
    (letter,) = world.letters
    assert (letter.stream_id, letter.key, letter.label) == ("a", "1", "sqs:orders.fifo")
    assert letter.reason.startswith("too large for the sink: ")
    assert (result.failed_at, [one.key for one in world.taken]) == ("", ["2"])


def test_of_a_batch_that_is_refused_for_good_the_poison_alone_is_buried() -> None:
    """A sink that names no message is asked about each by itself."""
    world = World("none")

    def answer(batch: Sequence[Message]) -> Mapping[int, Refusal]:
        is_bad = any(message.key == "1" for message in batch)
        return dict.fromkeys(range(len(batch)), Refusal("Malformed", is_final=True)) if is_bad else TAKE

    world.answer = answer
    world.run([item_record("a", event(str(n), at_ms=NOW_MS + n), n) for n in range(3)])
    assert world.batches == [["0", "1", "2"], ["0"], ["1"], ["2"]]
    assert ([one.key for one in world.letters], [one.key for one in world.taken]) == (["1"], ["0", "2"])


def test_what_the_stream_is_about_to_forget_is_buried() -> None:
    """After 23 hours an event that no sink took is in the dead-letter queue, with its reason; before, it waits.

    DynamoDB forgets a record after 24.
    """
    assert GIVE_UP_MS == 23 * 3_600_000
    world = World()
    world.answer = lambda batch: dict.fromkeys(range(len(batch)), Refusal("away"))
    made = [item_record("a", event("1"), 1)]
    world.now_ms = NOW_MS + GIVE_UP_MS - 1
    assert (world.run(made).failed_at, world.letters) == (made[0]["dynamodb"]["SequenceNumber"], [])
    world.now_ms += 1
    assert world.run(made).failed_at == ""
    assert [letter.reason for letter in world.letters] == ["not delivered in 23 hours: away"]


def test_what_there_was_no_time_for_is_not_buried() -> None:
    """However old it is: no sink has refused it, and the next call begins with it."""
    world = World()
    world.left_ms, world.now_ms = 0, NOW_MS + 2 * GIVE_UP_MS
    made = [item_record("a", event("1"), 1)]
    assert (world.run(made).failed_at, world.letters) == (made[0]["dynamodb"]["SequenceNumber"], [])
    world.left_ms = 100_000
    assert (world.run(made).failed_at, [one.key for one in world.taken]) == ("", ["1"])


def test_what_surrounds_a_message_counts() -> None:
    """In the size of one, and of a request: both are the sink's limits to the byte."""
    made = [item_record("a", event(str(n), at_ms=NOW_MS + n), n) for n in range(3)]
    size = messages(made[0], 0)[0].size_bytes
    for most_bytes, most_message_bytes, batches, letters in (
        (2 * (size + 20), size + 20, [["0", "1"], ["2"]], 0),
        (2 * (size + 20) - 1, size + 20, [["0"], ["1"], ["2"]], 0),
        (1000, size + 19, [], 3),
    ):
        world = World()
        world.promises = Promises("none", 10, most_bytes, most_message_bytes, around_bytes=20)
        world.run(made)
        assert (world.batches, len(world.letters)) == (batches, letters)


def test_events_of_a_wrong_profile_wait() -> None:
    """A person mends it, and nothing was lost by then."""
    world, made = World(), [item_record("a", event("1"), 1)]
    world.problem = "deliver: no such sink"
    assert (world.run(made).failed_at, world.letters) == (made[0]["dynamodb"]["SequenceNumber"], [])
    world.problem = ""
    assert (world.run(made).failed_at, [one.key for one in world.taken]) == ("", ["1"])


def test_a_request_of_one_stream_has_no_other() -> None:
    """Where the sink says so."""
    world = World("request")
    world.promises = replace(world.promises, is_per_stream=True)
    world.run([item_record("ab"[n % 2], event(str(n), at_ms=NOW_MS + n), n) for n in range(4)])
    assert world.batches == [["0", "2"], ["1", "3"]]


def test_without_an_order_one_that_waits_stops_nothing_of_its_batch() -> None:
    """The sink refuses the batch for good; asked about each, it takes what stands behind the one that waits."""
    world = World("none")
    final, away = Refusal("Malformed", is_final=True), Refusal("away")
    world.answer = lambda batch: (
        dict.fromkeys(range(3), final) if len(batch) > 1 else {"0": {0: away}, "1": {0: final}}.get(batch[0].key, TAKE)
    )
    world.run([item_record("a", event(str(n), at_ms=NOW_MS + n), n) for n in range(3)])
    assert ([one.key for one in world.letters], [one.key for one in world.taken]) == (["1"], ["2"])


def test_what_was_buried_beside_one_that_waits_is_not_buried_again() -> None:
    """Lambda sends both again, and the sandbox remembers."""
    world, made = World("none"), [item_record("a", event(str(n), at_ms=NOW_MS + n), n) for n in range(2)]
    world.answer = lambda batch: {at: Refusal("no", is_final=one.key == "1") for at, one in enumerate(batch)}
    for _ in range(2):
        assert world.run(made).failed_at == made[0]["dynamodb"]["SequenceNumber"]
    assert [letter.key for letter in world.letters] == ["1"]


def test_an_event_that_cannot_be_buried_waits() -> None:
    """Nothing is done before the sink or the queue has it; a queue that is away is asked once in a call."""
    world = World()
    world.is_queue_open = False
    made = [item_record("a", event(str(n), "x" * 500, at_ms=NOW_MS + n), n) for n in range(1, 6)]
    result = world.run(made)
    assert (result.failed_at, world.buried) == (made[0]["dynamodb"]["SequenceNumber"], 1)
    assert [count.failed for count in result.counts.values()] == [5]
    world.is_queue_open = True
    assert (world.run(made).failed_at, len(world.letters)) == ("", 5)


@pytest.mark.parametrize(
    "damage", [{"received_at_ms": {"S": "x"}}, {"encoding": {"S": "text+gzip"}}, {"data": {"B": "?"}}]
)
def test_a_record_that_cannot_be_read_is_buried(damage: dict[str, Any]) -> None:
    """An item that a newer release wrote, say, holds up nothing."""
    world, made = World(), item_record("a", event("1"), 1)
    made["dynamodb"]["NewImage"] |= damage
    assert world.run([made]).failed_at == ""
    assert [(letter.key, letter.reason[:26]) for letter in world.letters] == [("1", "the record cannot be read:")]


def test_without_the_order_a_request_holds_several_of_a_stream() -> None:
    """`unordered = true` is for throughput; with the order a request has one event of each stream."""
    made = [item_record("ab"[n // 3], event(str(n), at_ms=NOW_MS + n), n) for n in range(6)]
    world = World()
    world.run(made)
    assert world.batches == [["0", "3"], ["1", "4"], ["2", "5"]]
    world = World()
    world.targets = (Target("sqs", "orders.fifo", in_order=False),)
    world.run(made)
    assert world.batches == [["0", "1", "2", "3", "4", "5"]]


def test_nothing_overtakes_what_waits() -> None:
    """Behind an event that waits none of its stream is sent, though the sink would take it now."""
    world = World(most=1)
    answers = iter([{0: Refusal("away")}])
    world.answer = lambda _: next(answers, TAKE)
    made = [item_record("a", event(str(n), at_ms=NOW_MS + n), n) for n in range(3)]
    assert world.run(made).failed_at == made[0]["dynamodb"]["SequenceNumber"]
    assert world.taken == []
    world.run_all(made)
    assert [one.key for one in world.taken] == ["0", "1", "2"]


def test_each_sink_is_remembered_by_itself() -> None:
    """What one sink took, the other gets later."""
    world = World()
    world.targets = (TARGET, Target("sqs", "other.fifo"))
    answers = iter([TAKE, {0: Refusal("away")}])
    world.answer = lambda _: next(answers, TAKE)
    world.run_all([item_record("a", event("1"), 1)])
    assert [one.key for one in world.taken] == ["1", "1"]


def test_nothing_is_sent_that_may_last_longer_than_the_function() -> None:
    """A sink says how long a request of its may take; what there is no time for comes with the next call."""
    world = World()
    world.left_ms = world.promises.longest_ms - 1
    result = world.run([item_record("demo", event("1"), 1)])
    assert (result.failed_at != "", world.batches) == (True, [])
    world.left_ms += 1
    assert world.run([item_record("demo", event("1"), 1)]).failed_at == ""
    assert world.batches == [["1"]]

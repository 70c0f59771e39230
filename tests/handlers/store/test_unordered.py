"""Streams whose items are in no index (`order = "none"`): writes, reads, and the loss of the order."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.api.answers import Problem
from handlers.api.event_pages import check_place
from handlers.connection.effects import Claim, Write
from handlers.connection.inputs import LOG, Layout, Order, Written
from handlers.framing.events import StreamEvent
from handlers.store.event_items import Entry, StoragePolicy
from handlers.store.event_reader import EventReader, key_of_position, position_of
from handlers.store.stream_records import StreamRecords
from tests.handlers.aws import CONTROL, EVENTS, Aws, Client, Memory, lose_answer, send_twice
from tests.handlers.segments.test_log import STREAM, World
from tests.handlers.store.events import noise

NONE = StoragePolicy(order="none")
NOW_MS = 10**12


def sent(*keys: str, data: str | bytes = "a") -> list[StreamEvent]:
    """Return events with these keys."""
    return [StreamEvent(key, data, key, None, None, NOW_MS) for key in keys]


def read(dynamodb: Any, layout: Layout, after: str = "", limit: int = 1000, now_ms: int = NOW_MS) -> list[Entry]:
    """Return a page, as the control API requests it."""
    reader = EventReader(dynamodb, EVENTS, lambda _key: None)
    return list(reader.entries(STREAM, layout, now_ms, after, limit))


def keys(entries: list[Entry]) -> list[str]:
    return [entry.event.key for entry in entries if entry.event is not None]


def connect(world: World, *keys: str, **fields: Any) -> Written:
    """Let the next connection of a profile claim the stream and write."""
    requests = world.requests(**fields)
    fence = requests.requests_of(Claim())[0]().lease.fence
    written: Written = requests.requests_of(Write(fence, 0, tuple(sent(*keys))))[0]()
    return written


def layout_of(world: World) -> Layout:
    """Return the stream's layout as a reader learns it."""
    layout = StreamRecords(world.tables, "control").layout(STREAM)
    assert layout is not None
    return layout


def all_keys(world: World) -> list[str]:
    """Return the keys of all events, page after page."""
    layout, after = layout_of(world), ""
    found: list[str] = []
    while entries := read(world.tables, layout, after, 2):
        found, after = found + keys(entries), entries[-1].position
    return found


def indexed(world: World) -> set[str]:
    return {key for (_, key), item in world.tables._tables["events"].items() if "position" in item}


# --- what the profile requests ----------------------------------------------------------------------------------------


def test_an_item_without_an_order_is_not_searched_in_the_index() -> None:
    """The lease shows that the order is gone before the first item without an index entry is written."""
    world = World()
    requests = world.requests(order="none")
    requests.requests_of(Claim())[0]()
    assert layout_of(world).order == "none"
    requests.requests_of(Write(1, 0, tuple(sent("a"))))[0]()
    assert all_keys(world) == ["a"]


def test_all_events_stay_readable_when_the_order_is_given_up() -> None:
    """Earlier events stay readable too, and a repeated event finds its item, whichever way that was written."""
    world = World()
    assert connect(world, "c", "a") == Written(2, 0)
    assert (layout_of(world), all_keys(world)) == (Layout(1, "index"), ["c", "a"])
    assert connect(world, "b", "a", order="none") == Written(1, 1)
    assert (layout_of(world), all_keys(world), indexed(world)) == (Layout(1, "none"), ["a", "b", "c"], {"a", "c"})


def test_an_order_that_was_given_up_does_not_come_back() -> None:
    """If a later profile wants the order back, new items get none, because some lack a place; all stay readable."""
    world = World()
    connect(world, "b", order="none")
    assert connect(world, "a", "b", order="index") == Written(1, 1)
    assert (layout_of(world), all_keys(world), indexed(world)) == (Layout(1, "none"), ["a", "b"], set())


def test_keys_of_several_partitions_are_read_as_one() -> None:
    """Keys of several partitions are read in one order."""
    world = World()
    names = [f"{number:03d}" for number in range(60)]
    connect(world, *names, order="none", partitions=7)
    assert (layout_of(world), all_keys(world)) == (Layout(7, "none"), names)


def test_a_log_stays_in_order() -> None:
    """The `order` of a later profile is about items and does not affect a log."""
    world = World()
    connect(world, "b", store="log")
    connect(world, "a", order="none")
    assert (layout_of(world), all_keys(world)) == (Layout(LOG, "index"), ["b", "a"])


def test_a_claim_whose_answer_is_lost_returns_the_new_order(memory: Memory) -> None:
    """If a claim's answer is lost, the record that is read back has its order; a record without one has an index."""
    lost = memory.store(Client(memory.dynamodb, "update_item", lose_answer))
    assert lost.claim(STREAM, execution="", holder="A/1", order="none").record.layout.order == "none"
    later: list[Order] = ["index", "none", "index"]
    claims = [memory.store().claim(STREAM, execution="", holder="A/2", order=order) for order in later]
    assert [claim.record.layout.order for claim in claims] == ["none"] * 3
    memory.put_control("old", "lease", fence={"N": "7"})
    assert StreamRecords(memory.dynamodb, CONTROL).layout("old") == Layout(1, "index")


# --- what is written --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 4])
def test_an_item_without_an_order_takes_one_write_unit(aws: Aws, partitions: int) -> None:
    """An item without an order takes one write unit at 200 bytes and two at 1,500; the index takes one more each.

    For a batch the engine counts neither indexes nor bytes; tests/local/costs does.
    """
    units: list[float] = []

    def metered(call: Any, **request: Any) -> Any:
        answer = call(**request, ReturnConsumedCapacity="INDEXES")
        units.append(answer["ConsumedCapacity"]["CapacityUnits"])
        return answer

    def written(order: Order, *events: StreamEvent) -> float:
        units.clear()
        policy = StoragePolicy(partitions, order=order)
        client = Client(aws.dynamodb, "put_item", metered)
        assert aws.store(client).write(STREAM, 1, 0, events, policy) == Written(len(events), 0)
        return math.fsum(units)

    small, large = "x" * 200, "x" * 1500
    assert [written("none", *sent("a", data=small)), written("none", *sent("b", data=large))] == [1, 2]
    assert [written("index", *sent("c", data=small)), written("index", *sent("d", data=large))] == [2, 3]


@pytest.mark.parametrize(("policy", "place"), [(StoragePolicy(), "position"), (NONE, "arrival")])
def test_an_item_whose_answer_was_lost_counts_as_new(memory: Memory, policy: StoragePolicy, place: str) -> None:
    """A connection recognises its own item by the place, alone or in a batch; another connection's is a duplicate."""
    events = sent("a", "b", "c")
    for operation, few in (("put_item", events[:1]), ("batch_execute_statement", events[1:])):
        twice = memory.store(Client(memory.dynamodb, operation, send_twice))
        assert twice.write(STREAM, 1, 0, few, policy) == Written(len(few), 0)
    item = memory.items(EVENTS, STREAM)["a"]
    assert (item[place], len({"arrival", "position"} & item.keys())) == (f"{NOW_MS:015d}/{1:012d}/{0:012d}", 1)
    assert memory.store().write(STREAM, 2, 0, events, StoragePolicy()) == Written(0, 3)


def test_both_bodies_of_a_key_are_stored(memory: Memory) -> None:
    """`on_conflict` compares items with and without an order."""
    both = StoragePolicy(on_conflict="both", order="none")
    memory.store().write(STREAM, 1, 0, sent("a", data="1"), StoragePolicy())
    assert memory.store().write(STREAM, 2, 0, sent("a", data="2"), both) == Written(1, 0, 0, 1)
    assert memory.store().write(STREAM, 3, 0, sent("a", data="2"), both) == Written(0, 1)


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 4])
def test_every_event_is_read_once_with_any_pages(memory: Memory, partitions: int) -> None:
    """Events are sorted by their keys' bytes, even if an answer ends at a megabyte, and each page is full."""
    policy = StoragePolicy(partitions, order="none")
    names = [f"k{number % 7}/é{number}" for number in range(130)] + ["\U0001f600", "\ue000", "#"]
    memory.store().write(STREAM, 1, 0, sent(*names), policy)
    memory.store().write(STREAM, 2, 0, sent(*(f"large{n}" for n in range(8)), data=noise(200_000)), policy)
    expected = sorted([*names, *(f"large{n}" for n in range(8))], key=str.encode)
    layout = Layout(partitions, "none")
    assert keys(read(memory.dynamodb, layout)) == expected
    assert keys(read(memory.dynamodb, layout, limit=1)) == expected[:1]
    found: list[str] = []
    while entries := read(memory.dynamodb, layout, position_of(found[-1]) if found else "", 60):
        found += keys(entries)
        assert entries[-1].position == position_of(found[-1])
    assert found == expected


def test_an_expired_event_is_not_shown(memory: Memory) -> None:
    """An expired event counts for the page until DynamoDB deletes it, but is not shown."""
    memory.store().write(STREAM, 1, 0, sent("a", "b"), StoragePolicy(keep_days=1, order="none"))
    later = read(memory.dynamodb, Layout(1, "none"), now_ms=NOW_MS + 86_400_000)
    assert later == [Entry(position_of("a"), None), Entry(position_of("b"), None)]


@given(st.text(min_size=1, max_size=40).filter(lambda text: "\x00" not in text))
def test_a_position_belongs_to_one_key(key: str) -> None:
    """Each key has one position, which fits unchanged into a query; no position of an index looks like one."""
    position = position_of(key)
    assert key_of_position(position) == key
    assert position.startswith("key.")
    assert position.removeprefix("key.").replace("-", "").replace("_", "").isalnum()
    check_place(position, "none")
    with pytest.raises(Problem, match="in order of arrival"):
        check_place(position, "index")


@pytest.mark.parametrize("text", ["key.", "key.A", "key.gA", "key.YR", "key.Y+", "YQ", f"{0:015d}/{1:012d}/{1:012d}"])
def test_a_malformed_position_of_a_key_is_refused(text: str) -> None:
    """A position is refused if it is cut off, not UTF-8, encoded differently, or of an order that the stream lacks."""
    with pytest.raises(Problem, match=r"^the position is not that of an event of this stream, which is read by key"):
        check_place(text, "none")

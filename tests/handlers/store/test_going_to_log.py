"""Streams that change to a log once a budget is used up: each event is stored once, and readers see no seam."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.api.answers import to_iso
from handlers.connection.effects import Claim, GoToLog, Heartbeat, Progress, Write
from handlers.connection.inputs import LOG, LONGEST_WAIT_MS, Layout, Written
from handlers.connection.steps import Invocation
from handlers.deliver.table_records import group_by_stream
from handlers.framing.events import StreamEvent
from handlers.redrive.restore import KNOWN, STORED, Events, NotStored
from handlers.run.requests import Requests
from handlers.store.event_items import PROMISED, Entry
from handlers.store.event_reader import SETTLES_MS, newest_ms, place_before_newest
from handlers.store.overflow import Objects
from handlers.store.stream_records import StreamRecords
from streamkeeper.following import Following
from tests.handlers.aws import Client, CountingClient
from tests.handlers.connection.managers import profile
from tests.handlers.context import Killed
from tests.handlers.segments import test_log
from tests.handlers.segments.test_log import NOW_MS, STREAM
from tests.handlers.store.events import noise

ASKED: dict[str, Any] = {"budget": {"events_per_day": 10, "then": "log"}}


class World(test_log.World):
    """A stream, its connections, and its readers' view."""

    def connection(self, dynamodb: Any = None, **fields: Any) -> tuple[Requests, int]:
        """Return a connection that has claimed the stream, and its fencing token."""
        who = Invocation(STREAM, "A", "", f"r{random.random()}", 900_000, 4_000, 1_000, 1_000, 0)
        requests = Requests(profile(**(ASKED | fields)), self.store(dynamodb), who, lambda: self.now_ms)
        return requests, requests.requests_of(Claim())[0]().lease.fence

    def write(self, one: tuple[Requests, int], *numbers: int) -> Written:
        written: Written = one[0].requests_of(Write(one[1], numbers[0], tuple(self.events(*numbers))))[0]()
        return written

    def go(self, one: tuple[Requests, int]) -> None:
        one[0].requests_of(GoToLog(one[1]))[0]()

    def events(self, *numbers: int) -> list[StreamEvent]:
        return test_log.events(*numbers, at_ms=self.now_ms)

    @property
    def layout(self) -> Layout:
        found = StreamRecords(self.tables, "control").layout(STREAM)
        assert found is not None
        return found

    def pages(self, limit: int = 1000, after: str = "") -> list[Entry]:
        """Return all entries, page after page."""
        found: list[Entry] = []
        while page := [*self.reader.entries(STREAM, self.layout, self.now_ms, after, limit)]:
            found, after = found + page, page[-1].position
        return found

    def shown(self, limit: int = 1000, after: str = "") -> list[str]:
        return [entry.event.key for entry in self.pages(limit, after) if entry.event is not None]


def gone(**fields: Any) -> World:
    """Return a stream with events 1 to 4 as items and 5 to 8 in its log, some time after the change."""
    world = World()
    one = world.connection(**fields)
    assert world.write(one, 1, 2, 3, 4) == Written(4, 0)
    world.now_ms += 1_000
    world.go(one)
    assert world.write(one, 3, 4, 5, 6) == Written(2, 2)
    assert world.write(one, 7, 8) == Written(2, 0)
    world.now_ms += SETTLES_MS
    return world


@pytest.mark.parametrize("fields", [{}, {"partitions": 5}])
def test_the_log_knows_earlier_items_and_all_events_are_read_as_one_sequence(fields: dict[str, Any]) -> None:
    """Known items are duplicates in the log and all events are read in order, at once and hours later.

    This holds for any page size and place; the next connection continues the log.
    """
    world = gone(**fields)
    keys = [f"k{n}" for n in range(1, 9)]
    assert world.layout == Layout(LOG, "index", fields.get("partitions", 1), NOW_MS + 1_000)
    for limit in (1, 3, 4, 5, 1000):
        assert world.shown(limit) == keys
    positions = [entry.position for entry in world.pages()]
    assert positions == sorted(positions)
    assert [world.shown(3, one) for one in positions] == [keys[n:] for n in range(1, 9)]
    world.now_ms += 2 * LONGEST_WAIT_MS
    later = world.connection(**fields)
    client = CountingClient(world.tables)
    assert world.write(later, 1, 4, 9) == Written(1, 2)
    assert world.write(world.connection(client, **fields), 2, 9, 10) == Written(1, 2)
    assert "batch_execute_statement" not in client.requests
    assert world.shown() == [*keys, "k9", "k10"]
    place = place_before_newest(world.reader.table, STREAM, world.layout, 2)
    assert world.shown(after=place) == ["k3", "k4", "k5", "k6", "k7", "k8", "k9", "k10"]
    assert newest_ms(world.reader.table, STREAM, world.layout) == world.now_ms
    before = world.reader.entries_before(STREAM, world.layout, world.now_ms, NOW_MS + 1)
    assert [entry.event.key for entry in before if entry.event is not None][-4:] == ["k4", "k3", "k2", "k1"]
    assert world.shown(after=world.reader.place_at(STREAM, world.layout, NOW_MS + 1)) == [*keys[4:], "k9", "k10"]
    late = world.reader.place_at(STREAM, world.layout, world.now_ms)
    assert world.shown(after=late)[-2:] == ["k9", "k10"]
    assert len(world.shown(after=late)) < 6


def test_the_log_is_read_once_the_items_have_settled() -> None:
    """A follower reads the items until they have settled, then continues in the log; it reads nothing twice."""
    world = World()
    one, following, taken = world.connection(), Following(), list[str]()

    def poll() -> None:
        world.now_ms += 1_000
        after = following.after(world.now_ms)
        entries = [*world.reader.entries(STREAM, world.layout, world.now_ms, after, 3)]
        shown = [
            {"position": entry.position, "received_at": to_iso(entry.event.received_at_ms), "key": entry.event.key}
            for entry in entries
            if entry.event is not None
        ]
        page = {"events": shown, "next": entries[-1].position if len(entries) == 3 else None}
        taken.extend(event["key"] for event in following.take(page, world.now_ms))

    world.write(one, 1, 2)
    poll()
    world.go(one)
    begun_ms = world.now_ms
    world.write(one, 3)
    while world.now_ms < begun_ms + SETTLES_MS - 1_000:
        poll()
    assert taken == ["k1", "k2"]
    for _ in range(30):
        poll()
    assert taken == ["k1", "k2", "k3"]


def test_a_connection_that_does_not_know_of_the_change_finds_its_events_promised() -> None:
    """A connection that does not know of the change finds its events promised, changes too, and stores them."""
    world = World()
    old = world.connection()
    world.write(old, 1)

    def killed(call: Callable[..., Any], **request: Any) -> Any:
        if request["Item"]["PK"]["S"].endswith("#log") and request["Item"]["SK"]["S"] != "anchor":
            raise Killed
        return call(**request)

    dying = world.connection(Client(world.tables, "put_item", killed))
    world.go(dying)
    with pytest.raises(Killed):
        world.write(dying, 2, 3)
    assert world.write(old, 1, 2, 3, 4) == Written(3, 1)
    assert world.write(world.connection(), 1, 2, 3, 4) == Written(0, 4)
    world.now_ms += SETTLES_MS
    assert sorted(world.shown()) == ["k1", "k2", "k3", "k4"]
    # Sinks do not send promises, a redrive does not put them back, and counts leave them out.
    items = [item for item in world.tables._tables["events"].values() if PROMISED in item]
    assert {item["SK"]["S"] for item in items} == {"k2", "k3"}
    inserted = [{"eventName": "INSERT", "dynamodb": {"NewImage": one, "SequenceNumber": "1"}} for one in items]
    assert group_by_stream(inserted) == {}


def test_a_heartbeat_learns_that_another_connection_has_changed_to_a_log() -> None:
    """A heartbeat's answer shows that another connection has changed to a log; later events are appended to it."""
    world = World()
    old = world.connection()
    world.write(old, 1)
    progress = Progress(old[1], NOW_MS, opened_ms=NOW_MS)
    world.put_lease(connected=1, expires_at_ms=1)
    assert not old[0].requests_of(Heartbeat(None, progress, NOW_MS))[0]().is_log
    world.go(world.connection())
    assert old[0].requests_of(Heartbeat(None, progress, NOW_MS))[0]().is_log
    assert world.write(old, 1, 2) == Written(1, 1)
    assert max(world.tables._tables["events"]) > ("demo#log", "segment#101000000000000")


def test_items_without_an_order_stay_items() -> None:
    """A stream whose items have no order stays with items."""
    world = World()
    one = world.connection()
    world.put_lease(order="none")
    world.go(one)
    assert world.write(one, 1, 2) == Written(2, 0)
    assert world.layout == Layout(1, "none")


def test_a_redrive_puts_an_event_back_where_its_mark_is() -> None:
    """A redrive puts an event back where its mark is, among the items or in the log."""
    world = World()
    one = world.connection()
    large = [event._replace(data=noise(500_000)) for event in world.events(1, 2)]
    assert one[0].requests_of(Write(one[1], 0, (large[0], *world.events(3))))[0]() == Written(1, 0, 1)
    world.go(one)
    assert one[0].requests_of(Write(one[1], 2, (large[1], *world.events(3, 4))))[0]() == Written(1, 1, 1)
    events = Events(world.tables, "events", Objects(dict, ""))
    assert [events.has_event(STREAM, f"k{n}", world.layout) for n in range(1, 6)] == [False, False, True, True, False]
    assert events.outcome(STREAM, 1, world.events(3)[0], world.layout, dry_run=False) == KNOWN
    assert events.outcome(STREAM, 1, world.events(4)[0], world.layout, dry_run=False) == KNOWN
    for event in world.events(1, 2):
        assert events.outcome(STREAM, 1, event, world.layout, dry_run=False) == STORED
    with pytest.raises(NotStored, match="has no mark of it"):
        events.outcome(STREAM, 1, world.events(5)[0], world.layout, dry_run=False)
    world.now_ms += SETTLES_MS
    assert world.shown() == ["k1", "k3", "k2", "k4"]


@given(st.integers(0, 10**9))
def test_every_event_is_stored_once_while_connections_write_freeze_and_die(seed: int) -> None:
    """Three connections write the same events; each may freeze or die before or after any request.

    One or more of them change to a log at some time. At the end a connection brings all events again.
    """
    draw, world = random.Random(seed), World()
    depth = 0
    places: dict[int, int] = {}
    acknowledged: set[str] = set()

    def act() -> None:
        if not places:
            return
        number = draw.choice(sorted(places))
        one, first = connections[number], places.pop(number)
        numbers = range(first, min(41, first + draw.randint(1, 6)))
        try:
            if draw.random() < 0.1:
                world.go(one)
            written = world.write(one, *numbers)
            acknowledged.update(f"k{n}" for n in numbers)
            assert written.stored + written.duplicates == len(numbers)
            if numbers.stop < 41:
                places[number] = numbers.stop
        except Killed:
            pass

    def around(call: Callable[..., Any], **request: Any) -> Any:
        nonlocal depth
        if depth < 3 and draw.random() < 0.3:
            depth += 1
            act()
            depth -= 1
        if draw.random() < 0.02:
            raise Killed
        answer = call(**request)
        if draw.random() < 0.02:
            raise Killed
        return answer

    class Faulty:
        def __getattr__(self, name: str) -> Any:
            call = getattr(world.tables, name)
            return lambda **request: around(call, **request)

    connections = [world.connection() for _ in range(3)]
    for number, (requests, _) in enumerate(connections):
        places[number] = draw.choice((1, 1, 20))
        requests._store._writer.dynamodb = requests._store._table._dynamodb = requests._store._dynamodb = Faulty()
    while places:
        world.now_ms += draw.choice((10, 1_000, 60_000))
        act()
    last = world.connection()
    world.now_ms += SETTLES_MS
    assert acknowledged <= set(world.shown()), seed
    world.write(last, *range(1, 41))
    world.now_ms += SETTLES_MS
    assert sorted(world.shown(draw.randint(1, 50))) == sorted(f"k{n}" for n in range(1, 41)), seed

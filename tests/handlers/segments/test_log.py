"""A log in memory, appended by one connection or two, and read: what each rule of the protocol is for."""

import json
from typing import Any

from handlers.connection.effects import Claim, Heartbeat, MarkConnected, Progress, Write
from handlers.connection.inputs import Claimed, Resumption, Written
from handlers.connection.lease import Lease
from handlers.connection.steps import Invocation
from handlers.framing.events import StreamEvent
from handlers.run.requests import Requests
from handlers.segments.log_requests import Cursor
from handlers.store.connection_store import Store
from handlers.store.segment_reader import SegmentReader
from handlers.store.segment_writer import SegmentWriter
from local.simulation.tables import MemoryDynamoDB
from tests.handlers.aws import Client, is_sent_twice
from tests.handlers.connection.managers import profile
from tests.handlers.store.events import noise

STREAM = "demo"


class Queue:
    """The messages that were sent to the dead-letter queue."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def send_message(self, *, QueueUrl: str, MessageBody: str) -> None:
        """Take a message, as boto3's client does."""
        assert QueueUrl == "queue"
        self.keys.append(json.loads(MessageBody)["key"])


class World:
    """Tables, a queue, and the store of all connections on them."""

    def __init__(self) -> None:
        self.tables = MemoryDynamoDB("events", "control")
        self.queue = Queue()
        self.now_ms = 1_000

    def store(self, dynamodb: Any = None) -> Store:
        return Store(
            dynamodb or self.tables,
            lambda: self.queue,
            events_table="events",
            control_table="control",
            dead_letter_queue_url="queue",
        )

    def log(self, fence: int, dynamodb: Any = None) -> SegmentWriter:
        store = self.store(dynamodb)
        return store.log(STREAM, fence, lambda: self.now_ms, window_ms=900_000, keep_days=0)

    def requests(self, **fields: Any) -> Requests:
        who = Invocation(STREAM, "A", "", "r1", 900_000, 4_000, 1_000, 1_000, 0)
        return Requests(profile(**fields), self.store(), who, lambda: self.now_ms)

    def keys(self, after: str = "", limit: int = 100) -> list[str]:
        return [one.key for one in self.read(after, limit)]

    def read(self, after: str = "", limit: int = 100) -> list[Any]:
        reader = SegmentReader(self.tables, "events", lambda _key: None)
        entries = reader.entries(STREAM, self.now_ms, after, limit)
        return [event for _, event in entries if event is not None]


def events(*numbers: int, data: str | bytes = "a") -> list[StreamEvent]:
    return [StreamEvent(f"k{n}", data, f"{n}", None, f"{n}", 1_000) for n in numbers]


def test_a_new_connection_knows_more_than_the_last_segment() -> None:
    """An event of the window is dropped, whichever segment holds it."""
    world = World()
    before = world.log(1)
    for number in (1, 2, 3):
        before.write(number, events(number))
    assert world.log(2).write(0, events(1, 2, 3, 4)) == Written(1, 3)


def test_a_writer_reads_what_another_wrote() -> None:
    """It finds its number taken, and drops known events; each event is stored once, in order."""
    world = World()
    older, newer = world.log(1), world.log(2)
    older.write(0, events(1))
    newer.write(0, events(2, 3))
    assert older.write(1, events(3, 4)) == Written(1, 1)
    assert world.keys() == ["k1", "k2", "k3", "k4"]


def test_the_first_append_reads_what_another_wrote_since_it_opened() -> None:
    """The earlier connection does so when it leaves; a read is cheaper than a refused write."""
    world = World()
    older, newer = world.log(1), world.log(2)
    older.write(0, events(1))
    newer.opens()
    older.write(1, events(2))
    puts: list[str] = []
    put_item = world.tables.put_item
    world.tables.put_item = lambda **request: puts.append(request["Item"]["SK"]["S"]) or put_item(**request)  # type: ignore[method-assign, func-returns-value]
    assert newer.write(0, events(2)) == Written(0, 1)
    assert newer.write(1, events(2, 3)) == Written(1, 1)
    assert puts == ["segment#000000000003"]
    assert world.keys() == ["k1", "k2", "k3"]


def test_two_writers_number_their_segments_without_a_hole() -> None:
    """Otherwise one would miss what the other writes."""
    world = World()
    older, newer = world.log(1), world.log(2)
    older.write(0, events(1))
    newer.write(0, events(2))
    assert older.write(1, events(2, 3)) == Written(1, 1)
    assert world.keys() == ["k1", "k2", "k3"]
    assert [one.position[:15] for one in world.read()] == ["000000000000001", "000000000000002", "000000000000003"]


def test_a_segment_that_is_there_twice_by_one_write_counts_as_stored() -> None:
    """The client sent it again, and it met its own."""
    world = World()
    assert world.log(1, Client(world.tables, "put_item", is_sent_twice)).write(0, events(1, 2)) == Written(2, 0)


def test_an_older_connection_carries_a_newer_ones_cursor_on() -> None:
    """The last segment says where to resume, whoever wrote it."""
    world = World()
    older = world.log(1)
    older.write(0, events(1))
    world.log(2).write(0, events(2, 3))
    older.write(1, events(9))
    assert world.log(3).opens() == Cursor(2, 1_000, "3", came_ms=1_000)


def test_a_segment_is_read_whole_and_in_order() -> None:
    """It is read from its first event on, and from any place within it."""
    world = World()
    world.log(1).write(0, events(1, 2, 3))
    assert (world.keys(), world.keys(limit=2)) == (["k1", "k2", "k3"], ["k1", "k2"])
    assert world.keys(after=world.read()[0].position) == ["k2", "k3"]


def test_what_no_segment_holds_is_in_the_queue_before_its_mark() -> None:
    """It has one message for each part."""
    world = World()
    assert world.log(1).write(0, events(1, data=noise(400_000))) == Written(0, 0, 1)
    assert set(world.queue.keys) == {"k1"}
    assert [one.dead_letter is not None for one in world.read()] == [True]


def test_a_stream_stays_in_its_log_whatever_its_profile_says_later() -> None:
    """The first claim fixes it; otherwise an event would miss its duplicate, and no reader would find it."""
    world = World()
    for number, fields in enumerate(({"store": "log"}, {"store": "items"})):
        requests = world.requests(**fields)
        (claim,) = requests.of(Claim())
        assert claim().partitions == 0
        (write,) = requests.of(Write(number + 1, 0, tuple(events(number))))
        assert write() == Written(1, 0)
    assert world.keys() == ["k0", "k1"]


def test_a_stream_stays_with_its_items() -> None:
    """It began before logs existed, or with another profile."""
    world = World()
    for fields in ({"store": "items"}, {"store": "log"}):
        (claim,) = world.requests(**fields).of(Claim())
        assert claim().partitions == 1


def test_the_later_of_two_cursors_is_resumed_from() -> None:
    """It is the log's, or the control table's if the upstream moved on without an event since."""
    world = World()
    requests = world.requests(store="log")
    for request in requests.of(Claim()):
        lease: Lease = request().lease
    assert lease.fence == 1

    def resumed() -> Resumption:
        claimed: Claimed = world.requests(store="log").of(Claim())[0]()
        return claimed.resumption

    assert resumed().cursor is None
    requests.of(Write(1, 0, tuple(events(5))))[0]()
    assert (resumed().cursor, resumed().saved_ms) == ("5", 1_000)
    world.now_ms = 2_000
    progress = Progress(fence=1, claimed_ms=1, opened_ms=2, seen_ms=2)
    for effect in (MarkConnected(1, 9_000, progress), Heartbeat("6", progress, 9_500)):
        requests.of(effect)[0]()
    assert (resumed().cursor, resumed().saved_ms) == ("6", 2_000)
    world.now_ms = 3_000
    requests.of(Write(1, 1, tuple(events(7))))[0]()
    assert (resumed().cursor, resumed().saved_ms) == ("7", 3_000)

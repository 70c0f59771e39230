"""A stream's log in memory, appended by several connections and read back: the reason for each rule of the protocol."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from handlers.connection.effects import Claim, Heartbeat, MarkConnected, Progress, Write
from handlers.connection.inputs import IN_A_LOG, Claimed, Resumption, Written
from handlers.connection.lease import Lease
from handlers.connection.steps import Invocation
from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.framing.oversize import Oversize
from handlers.run.requests import Requests
from handlers.segments.appending import JUMP
from handlers.segments.log_requests import Cursor
from handlers.store.control_table import Table
from handlers.store.event_items import Entry, StoredEvent
from handlers.store.event_reader import EventReader, place_before_newest
from handlers.store.overflow import Objects
from handlers.store.segment_reader import position
from handlers.store.segment_writer import SegmentWriter
from handlers.store.typed_values import item_key
from tests.handlers.aws import BUCKET, Client, CountingClient, Memory, fail_with, lose_answer, send_twice
from tests.handlers.connection.managers import profile
from tests.handlers.store.events import noise

STREAM, LOG_KEY = "demo", "demo#log"
NOW_MS, DAY_MS = 10**12, 86_400_000


class World(Memory):
    """Tables, a queue, a bucket, and the connections of a stream on them."""

    def __init__(self, dynamodb: Any = None) -> None:
        super().__init__(dynamodb)
        self.tables = self.dynamodb
        self.now_ms = NOW_MS

    def log(
        self, fence: int, dynamodb: Any = None, *, bucket: str = "", window_ms: int = 900_000, keep_days: int = 0
    ) -> SegmentWriter:
        store = self.store(dynamodb, bucket)
        return store.log_writer(STREAM, fence, lambda: self.now_ms, window_ms=window_ms, keep_days=keep_days)

    def put_lease(self, **attributes: Any) -> None:
        """Write attributes into the control record, as another writer would."""
        Table(self.tables, "control").set_attributes(item_key(STREAM, "lease"), attributes)

    def requests(self, **fields: Any) -> Requests:
        who = Invocation(STREAM, "A", "", "r1", 900_000, 4_000, 1_000, 1_000, 0)
        return Requests(profile(**fields), self.store(), who, lambda: self.now_ms)

    @property
    def reader(self) -> EventReader:
        return EventReader(self.tables, "events", Objects(lambda: self, BUCKET).get)

    def entries(self, after: str = "", limit: int = 1000, most_bytes: int | None = None) -> list[Entry]:
        return list(self.reader.entries(STREAM, IN_A_LOG, self.now_ms, after, limit, most_bytes))

    def read(self, after: str = "", limit: int = 1000, most_bytes: int | None = None) -> list[StoredEvent]:
        return [entry.event for entry in self.entries(after, limit, most_bytes) if entry.event is not None]

    def keys(self, after: str = "", limit: int = 1000) -> list[str]:
        return [one.key for one in self.read(after, limit)]


def events(*numbers: int, data: str | bytes = "a", at_ms: int = NOW_MS) -> list[StreamEvent]:
    return [StreamEvent(f"k{n}", data, f"{n}", None, f"{n}", at_ms) for n in numbers]


# --- several connections ----------------------------------------------------------------------------------------------


def test_a_connection_knows_the_events_of_the_window_before_it() -> None:
    """An event of the window is dropped, whichever segment holds it; an older event is stored again."""
    world = World()
    writer = world.log(1)
    for number in range(1, 6):
        world.now_ms = NOW_MS + number * 1_000
        writer.write(number, events(number))
    world.now_ms = NOW_MS + 13_000
    assert world.log(2, window_ms=10_000).write(0, events(1, 2, 3, 4, 5)) == Written(2, 3)
    assert world.keys() == ["k1", "k2", "k3", "k4", "k5", "k1", "k2"]


def test_a_writer_reads_the_segments_of_another_writer() -> None:
    """A writer whose number is taken reads that segment and drops known events; no number is left out."""
    world = World()
    older, newer = world.log(1), world.log(2)
    older.write(0, events(1))
    newer.write(0, events(2, 3))
    assert older.write(1, events(3, 4)) == Written(1, 1)
    stored = [(one.key, int(one.position[:15])) for one in world.read()]
    assert stored == [("k1", 1), ("k2", 2), ("k3", 2), ("k4", 3)]


def test_the_first_append_reads_segments_written_since_the_opening() -> None:
    """The first append reads first: the earlier connection appends as it leaves, and a refused write costs more."""
    world = World()
    older, newer = world.log(1), world.log(2)
    older.write(0, events(1))
    newer.read_cursor()
    older.write(1, events(2))
    counted = CountingClient(world.tables)
    newer.table._dynamodb = counted
    assert newer.write(0, events(2)) == Written(0, 1)
    assert newer.write(1, events(2, 3)) == Written(1, 1)
    assert counted.requests.count("put_item") == 1
    assert world.keys() == ["k1", "k2", "k3"]


@pytest.mark.parametrize("way", [lose_answer, send_twice])
def test_a_segment_that_is_sent_twice_counts_as_stored_once(way: Callable[..., Any]) -> None:
    """A client that sends a segment again finds its own; after a lost answer the next connection finds it."""
    world = World()
    assert world.log(1, Client(world.tables, "put_item", send_twice)).write(0, events(1, 2)) == Written(2, 0)
    lost = world.log(2, Client(world.tables, "put_item", way))
    if way is lose_answer:
        with pytest.raises(StoreUnavailable):
            lost.write(0, events(3))
    else:
        assert lost.write(0, events(3)) == Written(1, 0)
    assert world.log(3).write(0, events(3, 4)) == Written(1, 1)
    assert world.keys() == ["k1", "k2", "k3", "k4"]


def test_an_older_connection_keeps_a_newer_connections_cursor() -> None:
    """The last segment has the newest connection's cursor, whichever connection wrote that segment."""
    world = World()
    older = world.log(1)
    older.write(0, events(1))
    world.log(2).write(0, events(2, 3))
    older.write(1, events(9))
    assert world.log(3).read_cursor() == Cursor(2, NOW_MS, "3", came_ms=NOW_MS)


def test_the_log_shows_until_when_its_connections_stored_all_events() -> None:
    """The newest segment shows until when its writer stored all events, and the connection whose cursor it has."""
    world = World()
    for fence, number in ((1, 2), (2, 3), (1, 5)):
        world.log(fence).write(number, events(number, at_ms=NOW_MS + number))
    late = world.log(3)
    cursor = late.read_cursor()
    assert cursor is not None
    assert (late.newest, cursor.fence, cursor.came_ms) == ((1, NOW_MS + 5), 2, NOW_MS + 3)
    world.tables._tables["events"][LOG_KEY, f"segment#{3:012d}"]["data"] = {"B": b"no segment"}
    late.read_cursor()
    assert late.newest == (0, 0)


def test_the_log_does_not_count_events_read_after_a_standstill_as_proof() -> None:
    """Events that a function reads after a standstill may have come long before, so the log keeps the earlier time."""
    world = World()
    world.log(1).write(0, events(1, at_ms=NOW_MS + 9), came_ms=NOW_MS + 2)
    assert (late := world.log(2)).read_cursor() == Cursor(1, NOW_MS, "1", came_ms=NOW_MS + 2)
    assert late.newest == (1, NOW_MS + 2)


@pytest.mark.parametrize("call", ["put_item", "query"])
def test_a_table_that_refuses_is_unavailable(call: str) -> None:
    """If the table refuses a read or a write, the store is unavailable and no event counts as stored."""
    world = World()
    with pytest.raises(StoreUnavailable):
        world.log(1, Client(world.tables, call, fail_with("ThrottlingException"))).write(0, events(1))
    assert world.keys() == []


def test_a_log_that_is_always_taken_is_unavailable() -> None:
    """A writer whose numbers are always taken gives up: the store is unavailable."""

    def taken(_call: Callable[..., Any], **_parameters: Any) -> Any:
        raise ClientError({"Error": {"Code": "ConditionalCheckFailedException"}}, "PutItem")

    world = World()
    with pytest.raises(StoreUnavailable, match="took every number"):
        world.log(1, Client(world.tables, "put_item", taken)).write(0, events(1))


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("embedded", [False, True], ids=["in memory", "embedded"])
def test_a_segment_is_read_whole_and_in_order(request: pytest.FixtureRequest, embedded: bool) -> None:
    """Text and bytes are read with their connection and their time, from any place within a segment."""
    world = World(request.getfixturevalue("aws").dynamodb if embedded else None)
    assert world.log(3).write(0, events(1, 2)) == Written(2, 0)
    assert world.log(4).write(0, events(3, data=b"\xff", at_ms=NOW_MS + 1)) == Written(1, 0)
    stored = world.read()
    assert [(one.key, one.data, one.id, one.fence, one.received_at_ms - NOW_MS) for one in stored] == [
        ("k1", "a", "1", 3, 0),
        ("k2", "a", "2", 3, 0),
        ("k3", b"\xff", "3", 4, 1),
    ]
    assert [one.position for one in stored] == sorted(one.position for one in stored)
    for at in range(3):
        assert world.read(stored[at].position) == stored[at + 1 :]
        assert world.read(limit=at + 1) == stored[: at + 1]


def test_reading_from_an_instant_begins_with_its_first_events_segment() -> None:
    """Reading from an instant skips earlier pages of a thousand events each, and a clock that is set back hides none.

    The events exceed one answer, and each is read once.
    """
    world = World()
    writer = world.log(1)
    for number in range(12):
        world.now_ms = NOW_MS + 1000 * number - (5000 if number == 7 else 0)
        writer.write(number, events(number, at_ms=NOW_MS + 1000 * number))
    for number in range(13):
        begin = world.reader.place_at(STREAM, IN_A_LOG, NOW_MS + 1000 * number)
        assert world.keys(begin) == [f"k{later}" for later in range(number, 12)]


def test_an_expired_segment_is_skipped_as_one_entry() -> None:
    """An expired segment is one entry for a reader, which continues after it within bounded time.

    A segment expires with the last of its events; DynamoDB deletes it within days after that.
    """
    world, old_ms = World(), NOW_MS - DAY_MS - 10
    writer = world.log(7, keep_days=1)
    writer.write(0, events(1, 2, at_ms=old_ms))
    writer.write(2, events(3, at_ms=old_ms))
    writer.write(3, [*events(4, at_ms=old_ms), *events(5)])
    found = world.entries()
    assert [(entry.position, entry.event and entry.event.key) for entry in found] == [
        (position(1, 7, 1), None),
        (position(2, 7, 0), None),
        (position(3, 7, 0), "k4"),
        (position(3, 7, 1), "k5"),
    ]
    assert world.entries(limit=2) == found[:2]
    for passed, entry in enumerate(found):
        assert world.entries(entry.position) == found[passed + 1 :]
    item = world.tables._tables["events"][LOG_KEY, "segment#000000000001"]
    assert item["expires_at"] == {"N": str((old_ms + DAY_MS) // 1000)}


@pytest.mark.parametrize("embedded", [False, True], ids=["in memory", "embedded"])
def test_an_expired_log_continues_behind_its_old_numbers(request: pytest.FixtureRequest, embedded: bool) -> None:
    """A log whose segments have expired continues far behind their numbers, or a reader would miss new events."""
    world = World(request.getfixturevalue("aws").dynamodb if embedded else None)
    for number in (1, 2):
        world.log(number, keep_days=1).write(0, events(number))
    before = world.read()[-1].position
    for number in (1, 2):
        place = {"PK": {"S": LOG_KEY}, "SK": {"S": f"segment#{number:012d}"}}
        world.tables.delete_item(TableName="events", Key=place)
    anew, beside = world.log(3, keep_days=1), world.log(4, keep_days=1)
    assert (anew.read_cursor(), beside.read_cursor()) == (None, None)
    assert anew.write(0, events(3)) == Written(1, 0)
    assert beside.write(0, events(3, 4)) == Written(1, 1)
    found = world.read(before)
    assert [(one.key, int(one.position[:15])) for one in found] == [("k3", JUMP + 1), ("k4", JUMP + 2)]


@pytest.mark.parametrize("late_ms", [0, 900_000], ids=["", "what its function stored late"])
def test_a_log_whose_newest_segment_expired_first_continues_behind_it(late_ms: int) -> None:
    """Later segments may be gone, because DynamoDB deletes expired items in any order: no number is used twice."""
    world = World()
    writer = world.log(1, keep_days=1)
    writer.write(0, events(1))
    writer.write(1, events(2, at_ms=NOW_MS - late_ms))
    before = world.read()[-1].position
    world.now_ms += DAY_MS - late_ms + 1_000
    world.tables.delete_item(TableName="events", Key=item_key(LOG_KEY, "segment#000000000002"))
    anew, beside = world.log(3, keep_days=1), world.log(4, keep_days=1)
    for log in (anew, beside):
        log.read_cursor()
    assert anew.write(0, events(3, at_ms=world.now_ms)) == Written(1, 0)
    assert beside.write(0, events(3, 4, at_ms=world.now_ms)) == Written(1, 1)
    assert [(one.key, int(one.position[:15])) for one in world.read(before)] == [("k3", JUMP + 2), ("k4", JUMP + 3)]


def test_the_newest_segments_are_found_at_any_size() -> None:
    """The newest segments are found although DynamoDB ends a page at a megabyte, three large segments."""

    def a_megabyte(call: Callable[..., Any], **parameters: Any) -> Any:
        return call(**parameters | {"Limit": min(3, parameters["Limit"])})

    world = World()
    log = world.log(1)
    for number in range(8):
        log.write(number, events(number))
    table = Table(Client(world.tables, "query", a_megabyte), "events")
    assert world.keys(place_before_newest(table, STREAM, IN_A_LOG, 1)) == ["k4", "k5", "k6", "k7"]


def test_an_anchor_that_the_table_refused_is_put_with_the_next_try() -> None:
    """If the table refuses the anchor, the next try puts it first: no segment is appended without an anchor."""
    world, refusals = World(), [fail_with("ThrottlingException")]

    def refuses_once(call: Callable[..., Any], **parameters: Any) -> Any:
        return refusals.pop()(call, **parameters) if refusals else call(**parameters)

    writer = world.log(1, Client(world.tables, "put_item", refuses_once), keep_days=1)
    with pytest.raises(StoreUnavailable):
        writer.write(0, events(1))
    assert writer.write(0, events(1)) == Written(1, 0)
    assert sorted(world.tables._tables["events"]) == [(LOG_KEY, "anchor"), (LOG_KEY, "segment#000000000001")]


# --- events that are too large for a segment --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [noise(900_000).hex(), "é" * 100_000 + noise(900_000).hex(), noise(900_000), "[" * 9**7]
)
def test_a_large_event_is_read_as_it_was_delivered(data: str | bytes) -> None:
    """In the bucket or alone in a segment, compressed or not, text stays text and bytes stay bytes."""
    world = World()
    assert world.log(3, bucket=BUCKET).write(0, events(1, data=data)) == Written(1, 0)
    assert [(type(one.data), one.data == data) for one in world.read()] == [(type(data), True)]
    assert [one.data for one in world.read(most_bytes=100_000)] == [None]


def test_a_body_that_no_segment_holds_goes_to_the_bucket() -> None:
    """A body that is too large goes to the bucket, at its place in the order, unless it compresses well."""
    world = World()
    sent = [*events(1), *events(2, data=noise(400_000)), *events(3, data="long " * 100_000), *events(4)]
    assert world.log(1, bucket=BUCKET).write(0, sent) == Written(4, 0)
    assert [(one.key, one.data) for one in world.read()] == [(one.key, one.data) for one in sent]
    assert len(world.objects()) == 1
    small = world.read(most_bytes=300_000)
    assert [one.data for one in small] == ["a", None, None, "a"]
    assert [one.object is None for one in small] == [True, False, True, True]


def test_an_event_that_no_segment_holds_goes_to_the_queue_with_a_mark() -> None:
    """A large event goes to the queue in parts. The log has a mark in its place: later connections drop the event."""
    world = World()
    sent = [*events(1), *events(2, data=noise(400_000)), *events(3)]
    assert world.log(1).write(0, sent) == Written(2, 0, 1)
    assert world.log(2).write(0, sent) == Written(0, 3)
    stored = world.read()
    assert [(one.key, one.data) for one in stored] == [("k1", "a"), ("k2", None), ("k3", "a")]
    assert (stored[1].dead_letter or "").startswith("too large for a segment: 400")
    assert [(letter["key"], letter["part"]) for letter in world.dead_letters()] == [("k2", 1), ("k2", 2), ("k2", 3)]


def test_an_id_that_no_segment_holds_goes_to_the_queue() -> None:
    """A bucket takes only bodies, so a large id goes to the queue. The mark has neither id nor name, like an item's."""
    world = World()
    sent = events(1)[0]._replace(id=noise(500_000).hex(), name="n")
    assert world.log(1, bucket=BUCKET).write(0, [sent]) == Written(0, 0, 1)
    assert [(one.key, one.id, one.name, one.data) for one in world.read()] == [("k1", None, None, None)]
    assert world.objects() == {}


def test_an_event_that_was_too_long_to_be_read_is_marked() -> None:
    """An event that was too long to be read has a mark in the log; its head is in the queue."""
    world = World()
    body = Oversize(2_000_000, "ab" * 32, b"head")
    sent = [*events(1), events(2)[0]._replace(data=body), *events(3)]
    assert world.log(1, bucket=BUCKET).write(0, sent) == Written(2, 0, 1)
    assert [one.dead_letter for one in world.read()] == [None, "longer than max_frame_bytes: 2000000 bytes", None]


def test_a_message_is_sent_once_though_its_number_is_taken() -> None:
    """A large body goes to the queue once for a write, however often the append is tried."""
    world = World()
    late = world.log(1)
    late.read_cursor()
    world.log(2).write(0, events(1))
    assert late.write(0, events(2, data=noise(400_000))) == Written(0, 0, 1)
    assert [letter["part"] for letter in world.dead_letters()] == [1, 2, 3]


# --- a log beside items -----------------------------------------------------------------------------------------------


def test_a_stream_stays_in_its_log_with_any_later_profile() -> None:
    """The first claim fixes the store. Otherwise an event would miss its duplicate, and no reader would find it."""
    world = World()
    for number, fields in enumerate(({"store": "log"}, {"store": "items"})):
        requests = world.requests(**fields)
        (claim,) = requests.requests_of(Claim())
        assert claim().partitions == 0
        (write,) = requests.requests_of(Write(number + 1, 0, tuple(events(number))))
        assert write() == Written(1, 0)
    assert world.keys() == ["k0", "k1"]


def test_a_stream_stays_with_its_items() -> None:
    """A stream that began with items keeps them, even if a later profile requests a log."""
    world = World()
    for fields in ({"store": "items"}, {"store": "log"}):
        (claim,) = world.requests(**fields).requests_of(Claim())
        assert claim().partitions == 1


def test_a_connection_resumes_from_the_later_of_two_cursors() -> None:
    """A connection resumes from the log's cursor, or from the control record's if that is later."""
    world = World()
    world.now_ms = 1_000
    requests = world.requests(store="log")
    for request in requests.requests_of(Claim()):
        lease: Lease = request().lease
    assert lease.fence == 1

    def resumed() -> Resumption:
        claimed: Claimed = world.requests(store="log").requests_of(Claim())[0]()
        return claimed.resumption

    assert resumed().cursor is None
    requests.requests_of(Write(1, 0, tuple(events(5))))[0]()
    assert (resumed().cursor, resumed().saved_ms) == ("5", 1_000)
    world.now_ms = 2_000
    progress = Progress(fence=1, claimed_ms=1, opened_ms=2, seen_ms=2)
    for effect in (MarkConnected(1, 9_000, progress), Heartbeat("6", progress, 9_500)):
        requests.requests_of(effect)[0]()
    assert (resumed().cursor, resumed().saved_ms) == ("6", 2_000)
    world.now_ms = 3_000
    requests.requests_of(Write(1, 1, tuple(events(7))))[0]()
    assert (resumed().cursor, resumed().saved_ms) == ("7", 3_000)

"""A stream's log against the embedded AWS: appended by several connections, read back in its order."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from handlers.connection.inputs import IN_A_LOG, Written
from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.framing.oversize import Oversize
from handlers.segments.appending import JUMP
from handlers.store.event_items import StoredEvent
from handlers.store.event_reader import EventReader
from handlers.store.overflow import Objects
from handlers.store.segment_reader import position
from handlers.store.segment_writer import SegmentWriter
from tests.handlers.aws import BUCKET, EVENTS, Aws, Client, answer_is_lost, fails_with, is_sent_twice
from tests.handlers.store.events import noise

STREAM = "demo"
PARTITION = "demo#log"
NOW_MS = 10**12
WINDOW_MS = 900_000


class At:
    """A clock that stays where it is set."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        """Return the time."""
        return self.now_ms


def log(aws: Aws, fence: int, dynamodb: Any = None, at: At | None = None, **settings: Any) -> SegmentWriter:
    settings = {"window_ms": WINDOW_MS, "keep_days": 0, "bucket": BUCKET, **settings}
    bucket = settings.pop("bucket")
    return aws.store(dynamodb, bucket=bucket).log(STREAM, fence, at or At(), **settings)


def events(*numbers: int, data: str | bytes = "a", at_ms: int = NOW_MS) -> list[StreamEvent]:
    return [StreamEvent(f"k{n}", data, f"{n}", None, f"{n}", at_ms + n) for n in numbers]


def read(aws: Aws, after: str = "", limit: int = 1000, most_bytes: int | None = None) -> list[StoredEvent]:
    reader = EventReader(aws.dynamodb, EVENTS, Objects(lambda: aws.s3, BUCKET).get)
    entries = reader.entries(STREAM, IN_A_LOG, NOW_MS, after, limit, most_bytes)
    return [entry.event for entry in entries if entry.event is not None]


def keys(aws: Aws) -> list[str]:
    return [event.key for event in read(aws)]


@pytest.mark.parametrize(
    "data", [noise(900_000).hex(), "é" * 100_000 + noise(900_000).hex(), noise(900_000), "[" * 9**7]
)
def test_a_large_event_comes_back_as_it_was_delivered(aws: Aws, data: str | bytes) -> None:
    """In the bucket or alone in a segment, compressed or not, text stays text and bytes stay bytes."""
    assert log(aws, 3).write(0, events(1, data=data)) == Written(1, 0)
    assert [type(one.data) for one in read(aws)] == [type(data)]
    assert [one.data == data for one in read(aws)] == [True]
    assert [one.data for one in read(aws, most_bytes=100_000)] == [None]


def test_events_come_back_as_they_were_delivered(aws: Aws) -> None:
    """Text and bytes, with the connection that brought them and when, in pages that follow one another."""
    first, second = log(aws, 3), log(aws, 4)
    assert first.write(0, events(1, 2)) == Written(2, 0)
    assert second.write(0, events(3, data=b"\xff")) == Written(1, 0)
    stored = read(aws)
    assert [(one.key, one.data, one.id, one.fence, one.received_at_ms - NOW_MS) for one in stored] == [
        ("k1", "a", "1", 3, 1),
        ("k2", "a", "2", 3, 2),
        ("k3", b"\xff", "3", 4, 3),
    ]
    assert [one.position for one in stored] == sorted(one.position for one in stored)
    for at in range(3):
        assert read(aws, stored[at].position) == stored[at + 1 :]
        assert read(aws, limit=at + 1) == stored[: at + 1]


def test_many_segments_are_read_page_by_page(aws: Aws) -> None:
    """They exceed one answer, and each event comes once."""
    writer = log(aws, 1)
    for number in range(60):
        writer.write(number, events(number))
    assert keys(aws) == [f"k{number}" for number in range(60)]


def test_reading_from_an_instant_begins_with_the_segment_of_its_first_event(aws: Aws) -> None:
    """Reading what came before would cost a page for each thousand events; a clock that is set back hides none."""
    at, reader = At(), EventReader(aws.dynamodb, EVENTS, Objects(lambda: aws.s3, BUCKET).get)
    writer = log(aws, 1, at=at)
    for number in range(12):
        at.now_ms = NOW_MS + 1000 * number - (5000 if number == 7 else 0)
        writer.write(number, events(number, at_ms=NOW_MS + 1000 * number))
    for number in range(13):
        begin = reader.place_at(STREAM, IN_A_LOG, NOW_MS + 1000 * number)
        assert [one.key for one in read(aws, begin)] == [f"k{later}" for later in range(number, 12)]


def test_the_log_says_until_when_its_connections_have_stored_what_came(aws: Aws) -> None:
    """The newest segment shows it for the connection that wrote it, and for the one whose cursor it has."""
    log(aws, 1).write(0, events(1, 2))
    log(aws, 2).write(0, events(3))
    log(aws, 1).write(2, events(5))
    late = log(aws, 3)
    cursor = late.opens()
    assert cursor is not None
    assert (late.newest, cursor.fence, cursor.came_ms) == ((1, NOW_MS + 5), 2, NOW_MS + 3)
    aws.dynamodb.update_item(
        TableName=EVENTS,
        Key={"PK": {"S": PARTITION}, "SK": {"S": f"segment#{3:012d}"}},
        UpdateExpression="SET #data = :data",
        ExpressionAttributeNames={"#data": "data"},
        ExpressionAttributeValues={":data": {"B": b"no segment"}},
    )
    late.opens()
    assert late.newest == (0, 0)


def test_a_connection_knows_what_came_within_the_window_before_it(aws: Aws) -> None:
    """It looks back over several answers before it appends; older events are stored again."""
    at = At()
    writer = log(aws, 1, at=at)
    for number in range(1, 6):
        at.now_ms = NOW_MS + number * 1_000
        writer.write(number, events(number))
    later = At(NOW_MS + 13_000)
    assert log(aws, 2, at=later, window_ms=10_000).write(0, events(1, 2, 3, 4, 5)) == Written(2, 3)
    assert keys(aws) == ["k1", "k2", "k3", "k4", "k5", "k1", "k2"]


@pytest.mark.parametrize("way", [answer_is_lost, is_sent_twice])
def test_a_segment_whose_answer_was_lost_is_not_appended_twice(aws: Aws, way: Callable[..., Any]) -> None:
    """The client sends it again and meets its own, so it was new."""
    writer = log(aws, 1, Client(aws.dynamodb, "put_item", is_sent_twice))
    assert writer.write(0, events(1, 2)) == Written(2, 0)
    lost = log(aws, 2, Client(aws.dynamodb, "put_item", way))
    if way is answer_is_lost:
        with pytest.raises(StoreUnavailable):
            lost.write(0, events(3))
    else:
        assert lost.write(0, events(3)) == Written(1, 0)
    assert log(aws, 3).write(0, events(3, 4)) == Written(1, 1)
    assert keys(aws) == ["k1", "k2", "k3", "k4"]


@pytest.mark.parametrize("call", ["put_item", "query"])
def test_a_table_that_refuses_is_unavailable(aws: Aws, call: str) -> None:
    """Only acknowledged events count as stored."""
    client = Client(aws.dynamodb, call, fails_with("ProvisionedThroughputExceededException"))
    with pytest.raises(StoreUnavailable):
        log(aws, 1, client).write(0, events(1))
    assert keys(aws) == []


def test_what_no_segment_holds_goes_to_the_bucket(aws: Aws) -> None:
    """It is alone, at its place in the order; a body that compresses well stays in its segment, however large."""
    sent = [*events(1), *events(2, data=noise(400_000)), *events(3, data="long " * 100_000), *events(4)]
    assert log(aws, 1).write(0, sent) == Written(4, 0)
    assert [(one.key, one.data) for one in read(aws)] == [(one.key, one.data) for one in sent]
    assert len(aws.objects()) == 1
    small = read(aws, most_bytes=300_000)
    assert [one.data for one in small] == ["a", None, None, "a"]
    assert [one.object is None for one in small] == [True, False, True, True]


def test_without_a_bucket_it_goes_to_the_queue(aws: Aws) -> None:
    """The log has a mark at its place, and no later connection stores it again."""
    sent = [*events(1), *events(2, data=noise(400_000)), *events(3)]
    assert log(aws, 1, bucket="").write(0, sent) == Written(2, 0, 1)
    assert log(aws, 2, bucket="").write(0, sent) == Written(0, 3)
    stored = read(aws)
    assert [one.key for one in stored] == ["k1", "k2", "k3"]
    assert stored[1].dead_letter is not None
    assert stored[1].dead_letter.startswith("too large for a segment: 400")
    assert [one.data for one in stored] == ["a", None, "a"]
    assert {letter["key"] for letter in aws.dead_letters()} == {"k2"}


def test_an_id_that_no_segment_holds_goes_to_the_queue(aws: Aws) -> None:
    """A bucket takes only bodies. The mark has neither id nor name, like that of an item."""
    sent = events(1)[0]._replace(id=noise(500_000).hex(), name="n")
    assert log(aws, 1).write(0, [sent]) == Written(0, 0, 1)
    assert [(one.key, one.id, one.name, one.data) for one in read(aws)] == [("k1", None, None, None)]
    assert aws.objects() == {}


def test_what_was_too_long_to_be_read_is_marked(aws: Aws) -> None:
    """Its beginning is in the queue."""
    body = Oversize(2_000_000, "ab" * 32, b"head")
    assert log(aws, 1).write(0, [*events(1), events(2)[0]._replace(data=body), *events(3)]) == Written(2, 0, 1)
    assert [one.dead_letter for one in read(aws)] == [None, "longer than max_frame_bytes: 2000000 bytes", None]


def test_a_message_is_sent_once_though_its_number_is_taken(aws: Aws) -> None:
    """A body goes elsewhere once for a write, however often the append is tried."""
    late = log(aws, 1, bucket="")
    late.opens()
    log(aws, 2).write(0, events(1))
    assert late.write(0, events(2, data=noise(400_000))) == Written(0, 0, 1)
    assert sorted(letter["part"] for letter in aws.dead_letters()) == [1, 2, 3]


def test_what_has_expired_is_not_shown(aws: Aws) -> None:
    """A segment expires with the last of its events."""
    day_ms = 86_400_000
    writer = log(aws, 1, keep_days=1)
    writer.write(0, events(1, at_ms=NOW_MS - day_ms - 10))
    writer.write(1, [*events(2, at_ms=NOW_MS - day_ms - 10), *events(3)])
    assert keys(aws) == ["k2", "k3"]
    item = aws.items(EVENTS, PARTITION)["segment#000000000001"]
    assert item["expires_at"] == (NOW_MS - 9) // 1000


def test_what_has_expired_is_passed_a_segment_at_a_time(aws: Aws) -> None:
    """A reader with bounded time goes on from there; DynamoDB deletes within days after the instant."""
    day_ms = 86_400_000
    writer = log(aws, 7, keep_days=1)
    writer.write(0, events(1, 2, at_ms=NOW_MS - day_ms - 10))
    writer.write(2, events(3, at_ms=NOW_MS - day_ms - 10))
    writer.write(3, events(4))
    reader = EventReader(aws.dynamodb, EVENTS, Objects(lambda: aws.s3, BUCKET).get)
    all_entries = list(reader.entries(STREAM, IN_A_LOG, NOW_MS, "", 10))
    assert [(entry.position, entry.event is None) for entry in all_entries] == [
        (position(1, 7, 1), True),
        (position(2, 7, 0), True),
        (position(3, 7, 0), False),
    ]
    assert list(reader.entries(STREAM, IN_A_LOG, NOW_MS, "", 2)) == all_entries[:2]
    for passed, entry in enumerate(all_entries):
        assert list(reader.entries(STREAM, IN_A_LOG, NOW_MS, entry.position, 10)) == all_entries[passed + 1 :]


def test_a_log_that_has_expired_goes_on_behind_its_old_numbers(aws: Aws) -> None:
    """Otherwise a reader with an earlier position would miss what is appended now."""
    log(aws, 1, keep_days=1).write(0, events(1))
    log(aws, 2, keep_days=1).write(0, events(2))
    before = read(aws)[-1].position
    for number in (1, 2):
        place = {"PK": {"S": PARTITION}, "SK": {"S": f"segment#{number:012d}"}}
        aws.dynamodb.delete_item(TableName=EVENTS, Key=place)
    anew, beside = log(aws, 3, keep_days=1), log(aws, 4, keep_days=1)
    assert (anew.opens(), beside.opens()) == (None, None)
    assert anew.write(0, events(3)) == Written(1, 0)
    assert beside.write(0, events(3, 4)) == Written(1, 1)
    assert [one.key for one in read(aws, before)] == ["k3", "k4"]
    assert sorted(aws.items(EVENTS, PARTITION))[1:] == [f"segment#{JUMP + number:012d}" for number in (1, 2)]


def test_an_anchor_that_the_table_refused_is_put_with_the_next_try(aws: Aws) -> None:
    """The write that it preceded is tried again, and nothing is appended without one."""
    refusals = [fails_with("ProvisionedThroughputExceededException")]

    def refuses_once(call: Callable[..., Any], **parameters: Any) -> Any:
        return refusals.pop()(call, **parameters) if refusals else call(**parameters)

    writer = log(aws, 1, Client(aws.dynamodb, "put_item", refuses_once), keep_days=1)
    with pytest.raises(StoreUnavailable):
        writer.write(0, events(1))
    assert writer.write(0, events(1)) == Written(1, 0)
    assert sorted(aws.items(EVENTS, PARTITION)) == ["anchor", "segment#000000000001"]


def test_a_log_that_is_always_taken_is_unavailable(aws: Aws) -> None:
    """A writer does not try for ever."""

    def taken(_call: Callable[..., Any], **_parameters: Any) -> Any:
        raise ClientError({"Error": {"Code": "ConditionalCheckFailedException"}}, "PutItem")

    with pytest.raises(StoreUnavailable, match="took every number"):
        log(aws, 1, Client(aws.dynamodb, "put_item", taken)).write(0, events(1))

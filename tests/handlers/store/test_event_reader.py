"""Events read back in their order, from one partition or several, in memory."""

from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import pytest
from botocore.exceptions import ReadTimeoutError

from handlers.connection.inputs import Layout, Written
from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.store.event_items import Entry, StoragePolicy, StoredEvent
from handlers.store.event_reader import EventReader
from handlers.store.overflow import Objects
from tests.handlers.aws import BUCKET, EVENTS, Client, Memory
from tests.handlers.store.events import noise

STREAM = "demo"
NOW_MS = 10**12


def reader(memory: Memory, dynamodb: Any = None) -> EventReader:
    return EventReader(dynamodb or memory.dynamodb, EVENTS, Objects(lambda: memory.s3, BUCKET).get)


def entries(
    memory: Memory, after: str = "", limit: int = 100, partitions: int = 1, now_ms: int = NOW_MS
) -> list[Entry]:
    return list(reader(memory).entries(STREAM, Layout(partitions), now_ms, after, limit))


def events(entries: Iterable[Entry]) -> list[StoredEvent]:
    return [entry.event for entry in entries if entry.event is not None]


def write(memory: Memory, count: int, policy: StoragePolicy) -> None:
    """Write a connection's events, ten in each millisecond."""
    store = memory.store(bucket=BUCKET)
    store.claim(STREAM, execution="", holder="A/1", partitions=policy.partitions)
    events = [StreamEvent(f"k{n}", str(n), None, None, None, NOW_MS + n // 10) for n in range(count)]
    assert store.write(STREAM, 1, 0, events, policy) == Written(count, 0)


def test_an_object_is_not_missing_because_s3_does_not_answer() -> None:
    """If S3 does not answer, the store is unavailable; botocore's error has no response then."""
    silent = mock.Mock()
    silent.get_object.side_effect = ReadTimeoutError(endpoint_url="")
    with pytest.raises(StoreUnavailable, match="AWS did not answer GetObject: ReadTimeoutError"):
        Objects(lambda: silent, BUCKET).find("a-body")


@pytest.mark.parametrize("partitions", [1, 5])
def test_pages_follow_one_another_in_order(memory: Memory, partitions: int) -> None:
    """Each page begins after the last position of the page before; together they have all events once.

    A long page requests more places from the index each time; otherwise a thousand events would take ten requests.
    """
    write(memory, 230, StoragePolicy(partitions))
    read: list[Entry] = []
    while page := entries(memory, read[-1].position if read else "", 40, partitions):
        read += page
    assert [event.data for event in events(read)] == [str(number) for number in range(230)]
    limits: list[int] = []

    def counted(call: Callable[..., Any], Limit: int, **query: Any) -> Any:
        limits.append(Limit)
        return call(Limit=Limit, **query)

    client = Client(memory.dynamodb, "query", counted)
    assert list(reader(memory, client).entries(STREAM, Layout(partitions), NOW_MS, "", 1000)) == read
    assert limits == [100] * partitions + [400] * partitions
    assert [len(entries(memory, "", limit, partitions)) for limit in (1, 100, 101)] == [1, 100, 101]


def test_a_reader_gets_each_event_as_it_was_delivered(memory: Memory) -> None:
    """Compressed events and those in the bucket are read as delivered; only a dead letter shows how it is stored."""
    bodies: list[str | bytes] = ["text", b"\xff", "long " * 2000, noise(500_000)]
    sent = [StreamEvent(f"k{n}", body, f"{n}", None, None, NOW_MS) for n, body in enumerate(bodies)]
    sent.append(StreamEvent("k9", noise(500_000), "i" * 500_000, None, None, NOW_MS))
    assert memory.store(bucket=BUCKET).write(STREAM, 1, 0, sent) == Written(4, 0, 1)
    stored = events(entries(memory))
    assert [event.data for event in stored] == [*bodies, None]
    assert [event.id for event in stored] == ["0", "1", "2", "3", None]
    assert stored[-1].dead_letter is not None
    small = events(reader(memory).entries(STREAM, Layout(), NOW_MS, "", 100, most_bytes=9_999))
    assert [event.data for event in small] == [*bodies[:2], None, None, None]
    assert [small[3].object] == list(memory.objects())


def test_an_expired_event_is_not_shown(memory: Memory) -> None:
    """The reader leaves out expired events before DynamoDB deletes them."""
    write(memory, 2, StoragePolicy(1, 1))
    assert len(events(entries(memory))) == 2
    later = entries(memory, now_ms=NOW_MS + 86_400_000)
    assert [(entry.event, entry.position[-1]) for entry in later] == [(None, "0"), (None, "1")]
    assert list(reader(memory).entries("other", Layout(), NOW_MS, "", 100)) == []


def test_the_reader_requests_again_what_a_batch_leaves_out(memory: Memory) -> None:
    """An answer may hold a part of a batch; if every answer holds nothing, the store is unavailable."""
    write(memory, 5, StoragePolicy())

    def nothing(_call: Callable[..., Any], RequestItems: dict[str, Any]) -> Any:
        return {"Responses": {}, "UnprocessedKeys": RequestItems, "ResponseMetadata": {"RequestId": "AWS3"}}

    memory.dynamodb.most_items = 1
    assert [event.data for event in events(entries(memory))] == ["0", "1", "2", "3", "4"]
    client = Client(memory.dynamodb, "batch_get_item", nothing)
    with pytest.raises(StoreUnavailable, match=r"^AWS left out keys of BatchGetItem in every try, request AWS3$"):
        list(reader(memory, client).entries(STREAM, Layout(), NOW_MS, "", 100))

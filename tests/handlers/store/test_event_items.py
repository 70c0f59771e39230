"""An event becomes an item and back: nothing of it changes, and a large body is compressed."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.events import StreamEvent
from handlers.framing.frames import utf8_pieces
from handlers.settings import MAX_DAYS
from handlers.store.event_items import (
    COMPRESS_FROM_BYTES,
    KEPT_DAYS,
    StoragePolicy,
    body_of,
    event_item,
    object_key,
    partition_key,
    partition_keys,
    stream_of,
    to_stored_event,
    with_object_reference,
)
from handlers.store.segment_writer import object_of_event
from handlers.store.typed_values import size_bytes
from local.costs.request_meter import read_resources

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
LONG = st.builds(lambda text, times: text * times, TEXTS, st.integers(0, 2000))
NOISE = st.builds(lambda seed, size: random.Random(seed).randbytes(size), st.integers(0, 9), st.integers(0, 9000))
EVENTS = st.builds(
    StreamEvent,
    key=TEXTS.filter(bool),
    data=LONG | NOISE | LONG.map(str.encode),
    id=st.none() | TEXTS,
    name=st.none() | TEXTS,
    cursor=st.none(),
    received_at_ms=st.integers(0, 2**42),
)


def nothing(key: str) -> bytes:
    raise AssertionError(f"nobody shall ask for {key}")


def an_event(data: str | bytes, key: str = "k") -> StreamEvent:
    return StreamEvent(key, data, None, None, None, 5)


@given(EVENTS, st.integers(1, 10**6), st.integers(0, 10**6), st.sampled_from([1, 7]), st.booleans())
def test_an_event_is_read_as_it_was_written(
    event: StreamEvent, fence: int, count: int, partitions: int, has_bucket: bool
) -> None:
    """Text stays text and bytes stay bytes, in the item, compressed, and in a bucket."""
    item = event_item("demo", fence, count, event, StoragePolicy(partitions))
    objects: dict[str, bytes] = {}
    if has_bucket:
        whole, item = item, with_object_reference(item)
        objects[item["object"]["S"]] = b"".join(utf8_pieces(body_of(whole)))
    stored = to_stored_event(item, objects.__getitem__ if has_bucket else nothing)
    assert (stored.key, stored.data, stored.id, stored.name) == (event.key, event.data, event.id, event.name)
    assert type(stored.data) is type(event.data)
    assert (stored.received_at_ms, stored.fence, stored.dead_letter) == (event.received_at_ms, fence, None)
    assert item["PK"]["S"] in partition_keys("demo", partitions)


@pytest.mark.parametrize(
    ("data", "attributes"),
    [
        ("é" * 10, {"data": {"S": "é" * 10}}),
        (b"\xff\0", {"data": {"B": b"\xff\0"}}),
        ("a" * (COMPRESS_FROM_BYTES - 1), {"data": {"S": "a" * (COMPRESS_FROM_BYTES - 1)}}),
    ],
)
def test_a_small_body_is_stored_as_it_is(data: str | bytes, attributes: dict[str, Any]) -> None:
    """Text is stored as text, which a console shows and a query can read, and bytes as binary."""
    item = event_item("demo", 1, 0, an_event(data))
    assert {name: item[name] for name in ("data", "encoding") if name in item} == attributes


def test_a_large_body_is_compressed_if_that_saves_a_write_unit() -> None:
    """JSON of 8 KB becomes a small binary; noise of 8 KB stays as it is."""
    packed = event_item("demo", 1, 0, an_event('{"a": 1}' * 1024))
    assert (packed["encoding"], packed["data"]["B"][:2]) == ({"S": "text+gzip"}, b"\x1f\x8b")
    assert size_bytes(packed) < 1024
    assert "encoding" not in event_item("demo", 1, 0, an_event(random.Random(1).randbytes(8192)))
    assert event_item("demo", 1, 0, an_event(b"\0" * 8192))["encoding"] == {"S": "binary+gzip"}


def test_an_object_is_named_by_its_stream_key_and_content() -> None:
    """An object's name has stream, key and content: other content under the same key is another object."""
    one, other = (
        with_object_reference(event_item("demo:x", 1, 0, an_event(data), StoragePolicy(4))) for data in ("one", "other")
    )
    first, second = one["object"]["S"].split("/"), other["object"]["S"].split("/")
    assert (first[1], len(first)) == ("demo:x", 4)
    assert [a == b for a, b in zip(first, second, strict=True)] == [True, True, True, False]


STREAM_IDS = st.lists(st.sampled_from(["a", "#", "#0", "%", "%23", "%25", "/", "..", "+", "é", "😀"]), max_size=4).map(
    lambda parts: "demo:" + "".join(parts)
)


@given(STREAM_IDS, STREAM_IDS, st.sampled_from([1, 3]), st.sampled_from([1, 3]))
def test_two_streams_share_neither_a_partition_nor_an_object(one: str, other: str, parts: int, more_parts: int) -> None:
    """Two streams share no partition and no object, whatever their ids, even with number signs or percent signs."""
    event = an_event("x")
    mine, theirs = (
        event_item(stream_id, 1, 0, event, StoragePolicy(count))
        for stream_id, count in ((one, parts), (other, more_parts))
    )
    assert (stream_of(mine), stream_of(theirs)) == (one, other)
    shared = set(partition_keys(one, parts)) & set(partition_keys(other, more_parts))
    assert (object_key(mine) == object_key(theirs), not shared) == (one == other, one != other or parts != more_parts)


def test_a_stream_may_be_named_like_a_partition_of_another() -> None:
    """A stream named like a partition of another stream has its items in other partitions."""
    assert partition_keys("demo:b", 2) == ["demo:b#0", "demo:b#1"]
    assert partition_keys("demo:b#1", 1) == ["demo:b%231"]


def test_the_longest_ids_fit_keys() -> None:
    """An id of 256 four-byte characters fits a partition key of at most 2,048 bytes and an object's of 1,024."""
    longest = ["demo:" + 250 * "😀" + last for last in "ab"]
    items = [event_item(stream_id, 1, 0, an_event("x"), StoragePolicy(64)) for stream_id in longest]
    assert all(len(item["PK"]["S"].encode()) <= 2048 and len(object_key(item).encode()) <= 1024 for item in items)
    assert object_key(items[0]) != object_key(items[1])


def test_keys_are_spread_evenly_and_for_good() -> None:
    """A single partition has the stream's own key.

    Of several, each gets its share, and a key stays in one partition.
    """
    assert partition_keys("demo", 1) == [partition_key("demo", "any", 1)] == ["demo"]
    keys = [partition_key("demo", str(number), 8) for number in range(8000)]
    assert set(keys) == set(partition_keys("demo", 8))
    assert all(900 < keys.count(key) < 1100 for key in partition_keys("demo", 8))
    assert partition_key("demo", "1", 8) == "demo#7"


@pytest.mark.parametrize(
    ("keep_days", "folder"), [(0, "kept"), (1, "kept-1d"), (2, "kept-3d"), (30, "kept-30d"), (400, "kept-730d")]
)
def test_an_object_is_kept_at_least_as_long_as_its_event(keep_days: int, folder: str) -> None:
    """An object's folder rounds the days up, so no body is deleted before its event."""
    event = StreamEvent("k", "text", None, None, None, 1_767_225_600_999)
    item = event_item("demo", 1, 1, event, StoragePolicy(keep_days=keep_days))
    assert object_key(item).split("/")[0] == folder
    assert object_of_event("demo", 1, event, keep_days)[0].split("/")[:2] == [folder, "demo"]


def test_the_bucket_has_a_rule_for_each_folder() -> None:
    """Each folder's rule deletes three days after the event expires, because DynamoDB deletes within days."""
    rules = read_resources("storage")["EventsBucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    expected = {f"kept-{days}d/": days + 3 for days in KEPT_DAYS}
    assert {rule["Prefix"]: rule["ExpirationInDays"] for rule in rules if rule["Status"] == "Enabled"} == expected
    assert KEPT_DAYS[-1] == MAX_DAYS

"""Turns a segment of a stream's log into an item of DynamoDB and back.

Pure: a caller fetches a body that lies in a bucket. A log has a partition key of its own, so that no event that an
older release or another profile stored as an item is in its way. Invariants: reading what was written returns it; the
sort keys of a log are in the order of its numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from handlers.framing.events import StreamEvent
from handlers.segments.appending import Cursor, Segment
from handlers.segments.codec import last_received_ms, pack, unpack
from handlers.store import layouts
from handlers.store.control_items import Item, count, expiry, number, text
from handlers.store.event_items import Fetch, StoredEvent, body_of, event_item, in_bucket, partition_keys, unpacked

# DynamoDB takes 400 KB. What is more than this goes alone, and else where it fits.
MAX_SEGMENT_BYTES = 350 * 1024
# No stream that is spread has such a partition.
LOG_SUFFIX = "#log"
_DIGITS = 12
_PREFIX = "segment#"
# They sort before every segment, and behind.
ANCHOR, BEHIND = "anchor", f"{_PREFIX}~"
# What whoever appends reads of a segment.
HEAD = ("SK", "fence", "first", "at_ms", "keys", "cursor", "cursor_fence", "cursor_at_ms", "layout")


def log_key(stream_id: str) -> str:
    """The partition key of the stream's log."""
    return f"{partition_keys(stream_id, 1)[0]}{LOG_SUFFIX}"


def sort_key(number: int) -> str:
    """The sort key of the segment with this number."""
    return f"{_PREFIX}{number:0{_DIGITS}d}"


def position(segment_number: int, fence: int, index: int) -> str:
    """Where the event stands in the order: it sorts as text, and looks as the position of an item does."""
    return f"{segment_number:015d}/{fence:012d}/{index:012d}"


def segment_of_position(text_: str) -> int:
    """The number of the segment that the position lies in; 0 for none."""
    return int(text_.partition("/")[0] or 0)


# --- writing ----------------------------------------------------------------------------------------------------------


def segment_item(
    stream_id: str, segment: Segment, events: Sequence[StreamEvent], keep_days: int, data: bytes | None = None
) -> Item:
    """The item of the segment with the events; `data` is what they are packed to, where that is known already."""
    item: Item = {
        "PK": {"S": log_key(stream_id)},
        "SK": {"S": sort_key(segment.number)},
        "fence": number(segment.fence),
        "first": number(segment.first),
        "at_ms": number(segment.at_ms),
        "events": number(len(events)),
        "keys": {"B": segment.keys},
        "data": {"B": pack(events) if data is None else data},
    }
    cursor = segment.cursor
    if cursor is not None:
        item |= {"cursor": {"S": cursor.text}, "cursor_fence": number(cursor.fence)}
        item["cursor_at_ms"] = number(cursor.at_ms)
    return item | expiry(max(event.received_at_ms for event in events), keep_days)


def elsewhere(stream_id: str, fence: int, event: StreamEvent) -> tuple[str, str | bytes, Item]:
    """The key and the content of the object for a body which no segment holds, and what says so in its segment."""
    item = event_item(stream_id, fence, 0, event)
    referring = in_bucket(item)
    says = {"object": referring["object"], "encoding": referring["encoding"]}
    return referring["object"]["S"], body_of(item), says


# --- reading ----------------------------------------------------------------------------------------------------------


def segment_of(item: Item) -> Segment:
    """The segment of an item, of which HEAD is enough; raises StoreUnavailable where its layout is not known."""
    layouts.check(item, _name(item))
    fence, at_ms = count(item, "cursor_fence"), count(item, "cursor_at_ms")
    cursor = None if fence is None or at_ms is None else Cursor(fence, at_ms, text(item, "cursor") or "")
    return Segment(
        int(item["SK"]["S"][len(_PREFIX) :]),
        _whole(item, "fence"),
        _whole(item, "first"),
        _whole(item, "at_ms"),
        bytes(item["keys"]["B"]),
        cursor,
    )


def _name(item: Item) -> str:
    return f"the segment {item['SK']['S'].removeprefix(_PREFIX).lstrip('0') or '0'} of the log"


def is_segment(item: Item) -> bool:
    """Whether it is a segment, and not the anchor."""
    return bool(item["SK"]["S"].startswith(_PREFIX))


def segment_number(item: Item) -> int:
    """The number of the segment in its log."""
    return int(item["SK"]["S"][len(_PREFIX) :])


def last_position(item: Item) -> str:
    """The position of the segment's last event."""
    return position(segment_number(item), _whole(item, "fence"), _whole(item, "events") - 1)


def last_came_ms(item: Item) -> int:
    """When the segment's last event came; raises StoreUnavailable where this version cannot read that."""
    with layouts.named(_name(item)):
        return last_received_ms(bytes(item["data"]["B"]))


def stored_events(item: Item, fetch: Fetch, most_bytes: int | None = None) -> Iterator[StoredEvent]:
    """The events of a segment in their order; `fetch` is asked only where an object holds a body.

    A body of more than `most_bytes` is left out, before it is unpacked. Only one that lies alone can be that large.
    Raises StoreUnavailable where this version cannot read the segment.
    """
    layouts.check(item, _name(item))
    with layouts.named(_name(item)):
        number, fence = segment_number(item), _whole(item, "fence")
        events = unpack(bytes(item["data"]["B"]), most_bytes)
    for index, event in enumerate(events):
        data: str | bytes | None = event.data
        if "object" in item:
            data = _fetched(item, fetch, most_bytes)
        yield StoredEvent(
            key=event.key,
            data=data,
            id=event.id,
            name=event.name,
            received_at_ms=event.received_at_ms,
            fence=fence,
            position=position(number, fence, index),
            dead_letter=text(item, "dead_letter"),
            object=text(item, "object"),
        )


def _fetched(item: Item, fetch: Fetch, most_bytes: int | None) -> str | bytes | None:
    content = fetch(item["object"]["S"])
    with layouts.named(_name(item)):
        return None if content is None else unpacked(content, item["encoding"]["S"], most_bytes)


def _whole(item: Any, name: str) -> int:
    return int(item[name]["N"])

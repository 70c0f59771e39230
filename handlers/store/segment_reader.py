"""Reads the segments of a stream's log, and their events in their order.

A log has a partition key of its own, apart from events that are stored as items. Invariants: nothing is written; the
sort keys of a log are in the order of its numbers; no event ever appears before a position that was read, so a reader
that continues from its position misses nothing; expired events are not shown; one page of segments is held at once, and
one of them unpacked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from handlers.connection.inputs import Layout
from handlers.segments.codec import last_received_ms, unpack
from handlers.segments.log_requests import Cursor, Segment
from handlers.store import typed_values
from handlers.store.control_table import Table
from handlers.store.event_items import Entry, Fetch, StoredEvent, decode_body, partition_keys
from handlers.store.typed_values import Item, has_expired, read_int, read_text

# No partition key of items ends with this.
LOG_SUFFIX = "#log"
_DIGITS = 12
_PREFIX = "segment#"
# These sort before every segment, and after every one.
ANCHOR, BEHIND = "anchor", f"{_PREFIX}~"
# The attributes of a segment that a writer reads.
_OF_CURSOR = ("cursor", "cursor_fence", "cursor_at_ms", "cursor_came_ms")
HEAD = ("SK", "fence", "first", "at_ms", "keys", "bodies", *_OF_CURSOR, "layout", "expires_at")


def log_start_number(layout: Layout) -> int:
    """Returns the number after which the log begins of a stream that changed to one.

    It makes all positions in the log greater than those of the items, with as many digits; none looks like an instant.
    """
    return 10**14 + layout.since_ms


@lru_cache(maxsize=64)
def log_key(stream_id: str) -> str:
    """Returns the partition key of the stream's log."""
    return f"{partition_keys(stream_id, 1)[0]}{LOG_SUFFIX}"


def sort_key(number: int) -> str:
    """Returns the sort key of the segment with this number."""
    return f"{_PREFIX}{number:0{_DIGITS}d}"


def anchor_write(stream_id: str, number: int) -> tuple[Item, str, Item]:
    """Returns a write that keeps the number in the anchor, unless that has a later one: item, condition, values."""
    item = typed_values.item_key(log_key(stream_id), ANCHOR) | {"number": typed_values.number_value(number)}
    return item, "attribute_not_exists(#number) OR #number < :number", {":number": item["number"]}


def position(segment_number: int, fence: int, index: int) -> str:
    """Returns the event's place in the order: it sorts as text, and has the form of an item's position."""
    return f"{segment_number:015d}/{fence:012d}/{index:012d}"


def segment_of(item: Item) -> Segment:
    """Returns the segment of an item, of which HEAD is enough; raises StoreUnavailable if its layout is unknown."""
    typed_values.check_layout(item, _item_name(item))
    fence, at_ms, came_ms = (
        read_int(item, "cursor_fence"),
        read_int(item, "cursor_at_ms"),
        read_int(item, "cursor_came_ms"),
    )
    cursor = (
        None if fence is None or at_ms is None else Cursor(fence, at_ms, read_text(item, "cursor") or "", came_ms or 0)
    )
    return Segment(
        segment_number(item),
        _read_number(item, "fence"),
        _read_number(item, "first"),
        _read_number(item, "at_ms"),
        bytes(item["keys"]["B"]),
        cursor,
        bytes(item["bodies"]["B"]) if "bodies" in item else b"",
    )


def _item_name(item: Item) -> str:
    return f"the segment {item['SK']['S'].removeprefix(_PREFIX).lstrip('0') or '0'} of the log"


def is_segment(item: Item) -> bool:
    """Returns whether the item is a segment, and not the anchor."""
    return bool(item["SK"]["S"].startswith(_PREFIX))


def segment_number(item: Item) -> int:
    return int(item["SK"]["S"][len(_PREFIX) :])


def last_came_ms(item: Item) -> int:
    """Returns until when all events are stored; raises StoreUnavailable if this version cannot read that."""
    with typed_values.refuse_unreadable(_item_name(item)):
        came_ms = read_int(item, "came_ms")
        return last_received_ms(bytes(item["data"]["B"])) if came_ms is None else came_ms


def stored_events(item: Item, fetch: Fetch, most_bytes: int | None = None) -> Iterator[StoredEvent]:
    """Yields the events of a segment in order; `fetch` is called only if an object has a body.

    A body of more than `most_bytes` is left out, before it is unpacked. Only the body of an event that is alone in its
    segment can be that large. Raises StoreUnavailable if this version cannot read the segment.
    """
    typed_values.check_layout(item, _item_name(item))
    with typed_values.refuse_unreadable(_item_name(item)):
        number, fence = segment_number(item), _read_number(item, "fence")
        events = unpack(bytes(item["data"]["B"]), most_bytes)
    for index, event in enumerate(events):
        data: str | bytes | None = event.data
        if "object" in item:
            content = fetch(item["object"]["S"])
            with typed_values.refuse_unreadable(_item_name(item)):
                data = None if content is None else decode_body(content, item["encoding"]["S"], most_bytes)
        yield StoredEvent(
            key=event.key,
            data=data,
            id=event.id,
            name=event.name,
            received_at_ms=event.received_at_ms,
            fence=fence,
            position=position(number, fence, index),
            dead_letter=read_text(item, "dead_letter"),
            object=read_text(item, "object"),
        )


def _read_number(item: Any, name: str) -> int:
    return int(item[name]["N"])


# How many segments are requested at first, and at most: one may have a single event or thousands. DynamoDB ends a page
# at a megabyte.
FIRST, MOST = 8, 200
_NAMES = {f"#{name}": name for name in (*HEAD, "number")}


def heads_query(stream_id: str, condition: str, bound: str, *, with_events: bool = False) -> dict[str, Any]:
    """Returns a Query for the attributes of a stream's segments that a writer needs, and for the anchor's number.

    `condition` compares the sort key with :bound; `with_events` requests the events too.
    """
    names = _NAMES | {"#data": "data"} if with_events else _NAMES
    return {
        "condition": f"PK = :partition AND {condition}",
        "values": {":partition": log_key(stream_id), ":bound": bound},
        "ProjectionExpression": ", ".join(names),
        "ExpressionAttributeNames": names,
        "ConsistentRead": True,
    }


def find_segment(table: Table, stream_id: str, condition: str = "SK < :bound", bound: str = BEHIND) -> Segment | None:
    """Returns the segment at the bound: the last one before it, or the first from it on; None if there is none."""
    items = table.query_first(1, **heads_query(stream_id, condition, bound), ScanIndexForward="<" not in condition)
    return next((segment_of(item) for item in items if is_segment(item)), None)


# How much two functions' clocks may differ.
SKEW_MS = 60_000


class SegmentReader:
    """The events table; `fetch` returns the bytes of an object by its key, None if they cannot be read."""

    def __init__(self, dynamodb: Any, events_table: str, fetch: Fetch) -> None:
        self._table = Table(dynamodb, events_table)
        self._fetch = fetch

    def entries(
        self, stream_id: str, now_ms: int, after: str, limit: int, most_bytes: int | None = None
    ) -> Iterator[Entry]:
        """Yields the first `limit` places whose position is greater than `after`, read as they are needed.

        An expired segment is one place, that of its last event, without an event. A body of more than `most_bytes` is
        left out. Raises StoreUnavailable.
        """
        start, page_size = sort_key(int(after.partition("/")[0] or 0)), FIRST
        while limit > 0:
            items, start_after = self._read_page(stream_id, start, page_size)
            for entry in (entry for item in items for entry in self._entries_of(item, now_ms, most_bytes)):
                if entry.position > after:
                    yield entry
                    limit -= 1
                    if not limit:
                        return
            if not start_after:
                return
            start, page_size = f"{start_after['SK']['S']}~", min(4 * page_size, MOST)

    def entries_before(self, stream_id: str, now_ms: int, before_ms: int) -> Iterator[Entry]:
        """Yields the places of the events before this instant, and of some later ones, newest first.

        Raises StoreUnavailable.
        """
        bound = sort_key(self.segment_number_at(stream_id, before_ms + SKEW_MS))
        values, more = {":partition": log_key(stream_id), ":to": bound}, {"ScanIndexForward": False, "Limit": FIRST}
        items = self._table.query_items("PK = :partition AND SK < :to", values, ConsistentRead=True, **more)
        for item in filter(is_segment, items):
            yield from reversed([*self._entries_of(item, now_ms, None)])

    def segment_number_at(self, stream_id: str, from_ms: int) -> int:
        """Returns the number of the first segment that may have an event of this instant or later.

        Raises StoreUnavailable. No segment is older than its events or than the one before it, so this searches the
        numbers, some of which may have expired.
        """
        newest = find_segment(self._table, stream_id)
        if newest is None or newest.at_ms < from_ms:
            return 0 if newest is None else newest.number + 1
        oldest = find_segment(self._table, stream_id, "SK >= :bound", sort_key(0)) or newest
        too_early, late = oldest.number - 1, newest.number
        while late - too_early > 1:
            middle = (too_early + late) // 2
            segment = find_segment(self._table, stream_id, "SK >= :bound", sort_key(middle))
            if segment is None or segment.at_ms >= from_ms:
                late = middle
            else:
                too_early = segment.number
        return late

    def _entries_of(self, item: Item, now_ms: int, most_bytes: int | None) -> Iterator[Entry]:
        if has_expired(item, now_ms):
            yield Entry(
                position(segment_number(item), _read_number(item, "fence"), _read_number(item, "events") - 1), None
            )
            return
        for event in stored_events(item, self._fetch, most_bytes):
            yield Entry(event.position, event)

    def _read_page(self, stream_id: str, start: str, limit: int) -> tuple[list[Item], Item | None]:
        """Returns segments from `start` on, and the key of the last one if there may be more."""
        values = {":partition": log_key(stream_id), ":from": start, ":to": BEHIND}
        condition = "PK = :partition AND SK BETWEEN :from AND :to"
        response = self._table.query(condition, values, ConsistentRead=True, Limit=limit)
        items: list[Item] = response["Items"]
        return items, response.get("LastEvaluatedKey")

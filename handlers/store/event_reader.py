"""Reads the events of a stream from all of its partition keys, and finds where the newest ones are.

The index has them in the order in which they came. Events of a log are in segments, which
handlers/store/segment_reader.py reads. Events without an index are read in the table's own order: by key, as bytes of
UTF-8. That is not the order of arrival, unless the upstream's ids sort that way (ULIDs, snowflakes, instants). The
position of such an event is "key." and its key in Base64 for URLs. A stream that went over to a log has its items
first, and then the log, whose positions are greater.

Invariants: nothing is written; the result is the first events after a position, whichever partitions have them; an
event that is stored meanwhile under a smaller key is on no later page; at most one batch of items is held at once.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from handlers.connection.inputs import LOG, LONGEST_WAIT_MS, Layout
from handlers.store.control_table import Table
from handlers.store.event_items import Entry, Fetch, partition_keys, to_stored_event
from handlers.store.typed_values import Item, has_expired

INDEX = "by-position"
# How many items are read at once: DynamoDB answers with at most 16 MB, and a function of 128 MB can hold some 10 MB.
BATCH = 25
# How many places are requested from the index at first, and at most: its items are keys alone, a thousand some 150 KB.
FIRST, MOST = 100, 1000
# For this long after a stream changed to a log, its log is not read yet. By then all connections know of the log, their
# items are visible, and a follower has read the latest items again.
SETTLES_MS = 45_000
# No position in the order of arrival begins with this.
_MARK = "key."
# A place in the order, and its item, None if that is gone.
Place = tuple[str, Item | None]


class EventReader:
    """The events table; `fetch` returns the bytes of an object by its key, None if they cannot be read."""

    def __init__(self, dynamodb: Any, events_table: str, fetch: Fetch) -> None:
        self._ports = dynamodb, events_table, fetch
        self.table = Table(dynamodb, events_table)
        self._fetch = fetch

    def entries(
        self, stream_id: str, layout: Layout, now_ms: int, after: str, limit: int, most_bytes: int | None = None
    ) -> Iterator[Entry]:
        """Yields the first `limit` entries whose position is greater than `after`, read as they are needed.

        A body of more than `most_bytes` is left out. Raises StoreUnavailable. Through the index, an event may be
        missing for a moment after it was stored; in a log, and with the order "none", it is there at once. With "none"
        the positions are those of keys, and any other `after` raises ValueError.
        """
        if layout.items:
            return self._items_then_log(stream_id, layout, now_ms, after, limit, most_bytes)
        if layout.partitions == LOG:
            # Imported here: few streams have a log, and each import lengthens the cold start.
            from handlers.store.segment_reader import SegmentReader

            return SegmentReader(*self._ports).entries(stream_id, now_ms, after, limit, most_bytes)
        keys = partition_keys(stream_id, layout.partitions)
        places = (
            self._places_by_key(keys, after, limit)
            if layout.order == "none"
            else self._places_by_index(keys, after, limit)
        )
        return (self._entry(position, item, now_ms, most_bytes) for position, item in places)

    def _items_then_log(
        self, stream_id: str, layout: Layout, now_ms: int, after: str, limit: int, most_bytes: int | None
    ) -> Iterator[Entry]:
        """Yields the items of a stream that changed to a log, then its log; `after` may be a place in either."""
        from handlers.store.segment_reader import log_start_number

        begin = f"{log_start_number(layout):015d}"
        if after < begin:
            for entry in self.entries(stream_id, Layout(layout.items), now_ms, after, limit, most_bytes):
                yield entry
                limit -= 1
        if limit and now_ms >= layout.since_ms + SETTLES_MS:
            yield from self.entries(stream_id, Layout(LOG), now_ms, max(after, begin), limit, most_bytes)

    def _entry(self, position: str, item: Item | None, now_ms: int, most_bytes: int | None = None) -> Entry:
        if item is None or has_expired(item, now_ms):
            return Entry(position, None)
        event = to_stored_event(item, self._fetch, most_bytes)
        return Entry(position, event if event.position == position else replace(event, position=position))

    def _places_by_index(self, keys: Sequence[str], after: str, limit: int) -> Iterator[Place]:
        page_size = FIRST
        while limit > 0:
            count = min(limit, page_size)
            # No position is smaller than a digit; DynamoDB does not accept an empty text as a key.
            pages = [self._read_page(key, "> :after", {":after": after or "/"}, count) for key in keys]
            merged = heapq.merge(*pages, key=lambda entry: entry["position"]["S"])
            wanted = list(itertools.islice(merged, count))
            for first in range(0, len(wanted), BATCH):
                yield from self._read_batch(wanted[first : first + BATCH])
            if len(wanted) < count:
                return
            after, page_size = _position(wanted[-1]), min(4 * page_size, MOST)
            limit -= count

    def place_at(self, stream_id: str, layout: Layout, from_ms: int) -> str:
        """Returns a place before every event that came at this instant or later; "" for the beginning.

        Raises StoreUnavailable.
        """
        if not from_ms or layout.order == "none":
            return ""
        number = from_ms
        # After a stream changed to a log, events may still be stored as items until the last function that did not know
        # of it is dead.
        if layout.partitions == LOG and (not layout.items or from_ms >= layout.since_ms + LONGEST_WAIT_MS):
            from handlers.store.segment_reader import SegmentReader

            number = SegmentReader(*self._ports).segment_number_at(stream_id, from_ms)
        # Positions of that instant begin with this, and sort after it.
        return f"{number:015d}"

    def entries_before(self, stream_id: str, layout: Layout, now_ms: int, before_ms: int) -> Iterator[Entry]:
        """Yields the places of the events before this instant, newest first; not for a stream without an order.

        Raises StoreUnavailable. In a log some later events may be among them.
        """
        if layout.partitions == LOG:
            from handlers.store.segment_reader import SegmentReader

            yield from SegmentReader(*self._ports).entries_before(stream_id, now_ms, before_ms)
        items = layout.items or layout.partitions
        if items != LOG:
            for position, item in self._newest_places_before(partition_keys(stream_id, items), f"{before_ms:015d}"):
                yield self._entry(position, item, now_ms)

    def _newest_places_before(self, keys: Sequence[str], bound: str) -> Iterator[Place]:
        while True:
            before = "< :bound", {":bound": bound}, BATCH
            found = [entry for key in keys for entry in self._read_page(key, *before, ScanIndexForward=False)]
            if not found:
                return
            wanted = sorted(found, key=_position, reverse=True)[:BATCH]
            yield from self._read_batch(wanted)
            bound = _position(wanted[-1])

    def _read_batch(self, wanted: Sequence[Item]) -> Iterator[Place]:
        keys = [{"PK": entry["PK"], "SK": entry["SK"]} for entry in wanted]
        read = self.table.batch_get(keys, consistent=True)
        items = {(item["PK"]["S"], item["SK"]["S"]): item for item in read}
        for entry in wanted:
            yield _position(entry), items.pop((entry["PK"]["S"], entry["SK"]["S"]), None)

    def _read_page(self, partition: str, bound: str, values: dict[str, str], count: int, **more: Any) -> list[Item]:
        """Returns keys and positions of the first events of one partition, whose positions are within the bound."""
        names = {"#position": "position"}
        condition, values = f"PK = :partition AND #position {bound}", {":partition": partition, **values}
        return self.table.query_first(count, condition, values, IndexName=INDEX, ExpressionAttributeNames=names, **more)

    # --- events without an index --------------------------------------------------------------------------------------

    def _places_by_key(self, keys: Sequence[str], after: str, limit: int) -> Iterator[Place]:
        start = key_of_position(after) if after else ""
        count = max(1, BATCH // len(keys))
        merged = heapq.merge(
            *(self._partition_items(key, start, count) for key in keys), key=lambda item: item["SK"]["S"]
        )
        for item in itertools.islice(merged, limit):
            yield position_of(item["SK"]["S"]), item

    def _partition_items(self, partition: str, after: str, count: int) -> Iterator[Item]:
        """Yields the items of a partition after a key, read as they are needed."""
        condition = "PK = :partition AND SK > :after" if after else "PK = :partition"
        values = {":partition": partition} | ({":after": after} if after else {})
        return self.table.query_items(condition, values, ConsistentRead=True, Limit=count)


def _position(item: Item) -> str:
    position: str = item["position"]["S"]
    return position


def position_of(key: str) -> str:
    return _MARK + base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def key_of_position(position: str) -> str:
    """Returns the key of a position; raises ValueError if it is not the position of a key."""
    digits = position.removeprefix(_MARK)
    try:
        key = base64.b64decode(digits + "=" * (-len(digits) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise ValueError("not a position") from error
    if not key or position_of(key) != position:
        raise ValueError("not a position")
    return key


# --- the newest events ------------------------------------------------------------------------------------------------

# A segment may have one event or thousands.
SEGMENTS = 4
# No fencing token and no index within a segment is larger.
_MOST = 10**12 - 1


def place_before_newest(table: Table, stream_id: str, layout: Layout, count: int) -> str:
    """Returns the position before the newest `count` events, "" for the beginning; raises StoreUnavailable.

    In a log it is the one before the last segments, however many events those have.
    """
    if layout.partitions == LOG and ((place := _place_before_newest_segments(table, stream_id)) or not layout.items):
        return place
    if layout.order == "none":
        return ""
    positions = sorted(_newest_positions(table, stream_id, layout.items or layout.partitions, count + 1), reverse=True)
    return positions[count] if len(positions) > count else ""


def newest_ms(table: Table, stream_id: str, layout: Layout) -> int | None:
    """Returns when the newest stored event came, None without one or without an order; raises StoreUnavailable.

    In a log it is when the last segment was begun.
    """
    if layout.partitions == LOG:
        from handlers.store.segment_reader import find_segment

        segment = find_segment(table, stream_id)
        if segment is not None or not layout.items:
            return None if segment is None else segment.at_ms
    if layout.order == "none":
        return None
    newest = _newest_positions(table, stream_id, layout.items or layout.partitions, 1)
    instants = [int(position.partition("/")[0]) for position in newest]
    return max(instants, default=None)


def _newest_positions(table: Table, stream_id: str, partitions: int, count: int) -> list[str]:
    """Returns the positions of the newest events of each partition, at most `count` of each."""
    found = (
        table.query_first(count, "PK = :partition", {":partition": key}, IndexName=INDEX, ScanIndexForward=False)
        for key in partition_keys(stream_id, partitions)
    )
    return [item["position"]["S"] for items in found for item in items]


def _place_before_newest_segments(table: Table, stream_id: str) -> str:
    from handlers.store.segment_reader import BEHIND, heads_query, is_segment, position, segment_number

    newest = table.query_first(SEGMENTS + 1, **heads_query(stream_id, "SK < :bound", BEHIND), ScanIndexForward=False)
    segments = [item for item in newest if is_segment(item)]
    return position(segment_number(segments[SEGMENTS]), _MOST, _MOST) if len(segments) > SEGMENTS else ""

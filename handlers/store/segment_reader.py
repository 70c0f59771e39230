"""Reads the events of a stream's log in their order.

handlers/store/segment_items.py says what a segment means. Invariants: nothing is written; no event that is behind a
position comes before it later, so a reader that goes on from where it was misses nothing; what has
expired is not shown; one page of segments is held at once, and one segment unpacked.
"""

from collections.abc import Iterator
from typing import Any

from handlers.aws.error_translation import translate_errors
from handlers.segments.appending import Cursor, Segment
from handlers.store.control_items import Item, count
from handlers.store.event_items import Fetch, StoredEvent
from handlers.store.segment_items import (
    BEHIND,
    HEAD,
    is_segment,
    last_position,
    log_key,
    segment_of,
    segment_of_position,
    sort_key,
    stored_events,
)

# How many segments are asked for at first, and at most: one may hold a single event or thousands. DynamoDB ends a page
# at a megabyte.
FIRST, MOST = 8, 200


_NAMES = {f"#{name}": name for name in (*HEAD, "number")}


def heads(
    dynamodb: Any, table: str, stream_id: str, condition: str, bound: str, *, whole: bool = False, **more: Any
) -> Any:
    """The answer to a Query for what a writer knows of a stream's segments, and for the anchor's number.

    `condition` compares the sort key with :bound; `whole` asks for the events as well. Raises StoreUnavailable.
    """
    names = _NAMES | {"#data": "data"} if whole else _NAMES
    with translate_errors("Query"):
        return dynamodb.query(
            TableName=table,
            KeyConditionExpression=f"PK = :partition AND {condition}",
            ProjectionExpression=", ".join(names),
            ExpressionAttributeNames=names,
            ExpressionAttributeValues={":partition": {"S": log_key(stream_id)}, ":bound": {"S": bound}},
            ConsistentRead=True,
            **more,
        )


def last_cursor(dynamodb: Any, table: str, stream_id: str) -> Cursor | None:
    """Where the stream's log says that it is to be resumed; None where it says nothing. Raises StoreUnavailable."""
    items = heads(dynamodb, table, stream_id, "SK < :bound", BEHIND, ScanIndexForward=False, Limit=1)["Items"]
    return next((segment_of(item).cursor for item in items if is_segment(item)), None)


# How much the clocks of two functions may differ.
SKEW_MS = 60_000


class SegmentReader:
    """The events table; `fetch` returns the bytes of an object by its key, None where they cannot be read."""

    def __init__(self, dynamodb: Any, events_table: str, fetch: Fetch) -> None:
        self._dynamodb = dynamodb
        self._table = events_table
        self._fetch = fetch

    def entries(
        self, stream_id: str, now_ms: int, after: str, limit: int, most_bytes: int | None = None
    ) -> Iterator[tuple[str, StoredEvent | None]]:
        """The first `limit` places whose position is greater than `after`, read as they are asked for.

        A segment that has expired is one place, that of its last event, without an event. A body of more than
        `most_bytes` is left out. Raises StoreUnavailable.
        """
        start, asked = sort_key(segment_of_position(after)), FIRST
        while limit > 0:
            items, start_after = self._page(stream_id, start, asked)
            found = (entry for item in items for entry in self._entries_of(item, now_ms, most_bytes))
            for entry in found:
                if entry[0] > after:
                    yield entry
                    limit -= 1
                    if not limit:
                        return
            if not start_after:
                return
            start, asked = f"{start_after['SK']['S']}~", min(4 * asked, MOST)

    def number_at(self, stream_id: str, from_ms: int) -> int:
        """The number of a segment before which no event is that came at this instant or later. Raises StoreUnavailable.

        A segment was made after its events came. By a search over the numbers, of which some may have expired.
        """
        wanted_ms = from_ms - SKEW_MS
        newest = self._head(stream_id, "SK < :bound", BEHIND, ScanIndexForward=False)
        if newest is None or newest.at_ms < wanted_ms:
            return 0 if newest is None else newest.number + 1
        too_early, late = -1, newest.number
        while late - too_early > 1:
            middle = (too_early + late) // 2
            segment = self._head(stream_id, "SK >= :bound", sort_key(middle))
            if segment is None or segment.at_ms >= wanted_ms:
                late = middle
            else:
                too_early = segment.number
        return late

    def _head(self, stream_id: str, condition: str, bound: str, **more: Any) -> Segment | None:
        items = heads(self._dynamodb, self._table, stream_id, condition, bound, Limit=1, **more)["Items"]
        return next((segment_of(item) for item in items if is_segment(item)), None)

    def _entries_of(self, item: Item, now_ms: int, most_bytes: int | None) -> Iterator[tuple[str, StoredEvent | None]]:
        # DynamoDB deletes within days after the instant; until then an expired segment is still there.
        if "expires_at" in item and (count(item, "expires_at") or 0) * 1000 <= now_ms:
            yield last_position(item), None
            return
        for event in stored_events(item, self._fetch, most_bytes):
            yield event.position, event

    def _page(self, stream_id: str, start: str, limit: int) -> tuple[list[Item], Item | None]:
        """Segments from `start` on, and the key of the last where there may be more."""
        with translate_errors("Query"):
            response = self._dynamodb.query(
                TableName=self._table,
                KeyConditionExpression="PK = :partition AND SK BETWEEN :from AND :to",
                ExpressionAttributeValues={
                    ":partition": {"S": log_key(stream_id)},
                    ":from": {"S": start},
                    ":to": {"S": BEHIND},
                },
                ConsistentRead=True,
                Limit=limit,
            )
        items: list[Item] = response["Items"]
        return items, response.get("LastEvaluatedKey")

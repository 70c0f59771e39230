"""Reads the events of a stream in the order in which they came, over however many partition keys they are spread.

Those of a log lie in segments, which handlers/store/segment_reader.py reads; those that no index has are read by their
keys, by handlers/store/key_reader.py.

handlers/store/event_items.py says what an item means. Invariants: nothing is written; the result is the first events
after a position, whatever partition they lie in; an event that has expired is not shown; at most one batch of items is
held at once.
"""

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from handlers.aws.error_translation import translate_errors
from handlers.connection.inputs import LOG, Order
from handlers.store.batch_get import BatchGet
from handlers.store.control_items import Item
from handlers.store.event_items import Fetch, StoredEvent, has_expired, partition_keys, stored_event
from handlers.store.key_reader import KeyReader

INDEX = "by-position"
# How many keys are asked for at once. BatchGetItem takes 100, and answers with 16 MB at most; a function of 128 MB has
# room for a quarter of 40 MB.
KEYS = 100
BATCH = 25


@dataclass(frozen=True, slots=True)
class Entry:
    """A place in the order; `event` is None where the event that was there has expired or is gone."""

    position: str
    event: StoredEvent | None


class EventReader:
    """The events table; `fetch` returns the bytes of an object by its key, None where they cannot be read."""

    def __init__(self, dynamodb: Any, events_table: str, fetch: Fetch) -> None:
        self._dynamodb = dynamodb
        self._table = events_table
        self._items = BatchGet(dynamodb, events_table)
        self._fetch = fetch

    def entries(
        self,
        stream_id: str,
        partitions: int,
        now_ms: int,
        after: str,
        limit: int,
        most_bytes: int | None = None,
        *,
        order: Order = "index",
    ) -> Iterator[Entry]:
        """The first `limit` entries whose position is greater than `after`, read as they are asked for.

        A body of more than `most_bytes` is left out. Raises StoreUnavailable. Read through an index, so an event may
        be missing for a moment after it was stored; but of a log, where `partitions` is LOG, all are there at once.
        So they are where `order` is "none"; their positions are then those of their keys.
        """
        if partitions == LOG:
            # Few streams have a log, and what is imported lengthens each cold start.
            from handlers.store.segment_reader import SegmentReader

            segments = SegmentReader(self._dynamodb, self._table, self._fetch)
            for position, event in segments.entries(stream_id, now_ms, after, limit, most_bytes):
                yield Entry(position, event)
            return
        if order == "none":
            by_key = KeyReader(self._dynamodb, self._table, self._fetch)
            for position, event in by_key.entries(stream_id, partitions, now_ms, after, limit, most_bytes):
                yield Entry(position, event)
            return
        keys = partition_keys(stream_id, partitions)
        while limit > 0:
            count = min(limit, KEYS)
            pages = [self._page(key, after, count) for key in keys]
            merged = heapq.merge(*pages, key=lambda entry: entry["position"]["S"])
            wanted = list(itertools.islice(merged, count))
            for first in range(0, len(wanted), BATCH):
                yield from self._batch(wanted[first : first + BATCH], now_ms, most_bytes)
            if len(wanted) < count:
                return
            after = wanted[-1]["position"]["S"]
            limit -= count

    def place_at(self, stream_id: str, partitions: int, from_ms: int, order: Order) -> str:
        """A place behind which every event is that came at this instant or later; "" for the beginning.

        Raises StoreUnavailable.
        """
        if not from_ms or order == "none":
            return ""
        number = from_ms
        if partitions == LOG:
            from handlers.store.segment_reader import SegmentReader

            number = SegmentReader(self._dynamodb, self._table, self._fetch).number_at(stream_id, from_ms)
        # What a position begins with, and sorts before it.
        return f"{number:015d}"

    def _batch(self, wanted: Sequence[Item], now_ms: int, most_bytes: int | None) -> Iterator[Entry]:
        keys = [{"PK": entry["PK"], "SK": entry["SK"]} for entry in wanted]
        read = self._items.items(keys, consistent=True)
        items = {(item["PK"]["S"], item["SK"]["S"]): item for item in read}
        for entry in wanted:
            item = items.pop((entry["PK"]["S"], entry["SK"]["S"]), None)
            is_there = item is not None and not has_expired(item, now_ms)
            event = stored_event(item, self._fetch, most_bytes) if item is not None and is_there else None
            yield Entry(entry["position"]["S"], event)

    def _page(self, partition: str, after: str, count: int) -> list[Item]:
        """Keys and positions of the first events of one partition."""
        with translate_errors("Query"):
            response = self._dynamodb.query(
                TableName=self._table,
                IndexName=INDEX,
                KeyConditionExpression="PK = :partition AND #position > :after",
                ExpressionAttributeNames={"#position": "position"},
                # No position is smaller than a digit; DynamoDB takes no empty text as a key.
                ExpressionAttributeValues={":partition": {"S": partition}, ":after": {"S": after or "/"}},
                Limit=count,
            )
        entries: list[Item] = response["Items"]
        return entries

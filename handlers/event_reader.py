"""Reads the events of a stream in the order in which they came, over however many partition keys they are spread.

Decides nothing of what an item means: handlers/event_items.py does. Invariants: it writes nothing; a page holds the
first events after a position, whatever partition they lie in; an event that has expired is not shown.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from handlers import items
from handlers.answers import answering
from handlers.errors import StoreUnavailable
from handlers.event_items import StoredEvent, partition_keys, stored_event
from handlers.items import Item

INDEX = "by-position"
# BatchGetItem: "can contain as many as 100 items".
MOST = 100
# How often what BatchGetItem left out is asked for again: it answers with 16 MB at most, and a throttled one with less.
TRIES = 20


@dataclass(frozen=True, slots=True)
class Page:
    """Events in their order, and the position behind which the next page begins; "" where nothing more was there."""

    events: list[StoredEvent]
    after: str


class EventReader:
    """The tables; `fetch` gives the bytes of an object by its key."""

    def __init__(self, dynamodb: Any, events_table: str, control_table: str, fetch: Callable[[str], bytes]) -> None:
        self._dynamodb = dynamodb
        self._events_table = events_table
        self._control_table = control_table
        self._fetch = fetch

    def events(self, stream_id: str, now_ms: int, after: str = "", limit: int = MOST) -> Page:
        """The first events, MOST at most, whose position is greater than `after`; fewer where some have expired.

        Raises StoreUnavailable. Read through an index, so an event may be missing for a moment after it was stored.
        """
        limit = min(limit, MOST)
        pages = [self._page(key, after, limit) for key in partition_keys(stream_id, self._partitions(stream_id))]
        merged = heapq.merge(*pages, key=lambda entry: entry["position"]["S"])
        wanted = list(itertools.islice(merged, limit))
        found = {(item["PK"]["S"], item["SK"]["S"]): item for item in self._items(wanted)}
        there = [item for entry in wanted if (item := found.get((entry["PK"]["S"], entry["SK"]["S"]))) is not None]
        # DynamoDB deletes within days after the instant; until then an expired item is still there.
        events = [
            stored_event(item, self._fetch)
            for item in there
            if "expires_at" not in item or int(item["expires_at"]["N"]) * 1000 > now_ms
        ]
        return Page(events, wanted[-1]["position"]["S"] if wanted else "")

    def _partitions(self, stream_id: str) -> int:
        """As the stream's first claim has fixed it."""
        with answering("GetItem"):
            response = self._dynamodb.get_item(
                TableName=self._control_table, Key=items.key(stream_id, "lease"), ConsistentRead=True
            )
        return items.partitions(response.get("Item", {}))

    def _page(self, partition: str, after: str, limit: int) -> list[Item]:
        """Keys and positions of the first events of one partition."""
        with answering("Query"):
            response = self._dynamodb.query(
                TableName=self._events_table,
                IndexName=INDEX,
                KeyConditionExpression="PK = :partition AND #position > :after",
                ExpressionAttributeNames={"#position": "position"},
                # No position is smaller than a digit; DynamoDB takes no empty text as a key.
                ExpressionAttributeValues={":partition": {"S": partition}, ":after": {"S": after or "/"}},
                Limit=limit,
            )
        found: list[Item] = response["Items"]
        return found

    def _items(self, entries: list[Item]) -> Iterator[Item]:
        """The items that are still there, in any order."""
        keys = [{"PK": entry["PK"], "SK": entry["SK"]} for entry in entries]
        for _ in range(TRIES):
            if not keys:
                return
            with answering("BatchGetItem"):
                response = self._dynamodb.batch_get_item(
                    RequestItems={self._events_table: {"Keys": keys, "ConsistentRead": True}}
                )
            yield from response["Responses"].get(self._events_table, [])
            keys = response.get("UnprocessedKeys", {}).get(self._events_table, {}).get("Keys", [])
        if keys:
            raise StoreUnavailable("AWS left keys of BatchGetItem out again and again")

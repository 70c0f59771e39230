"""Reads the events of a stream by their keys, over however many partition keys they are spread.

The table itself has the items of a partition in the order of their keys, as bytes of UTF-8. That is not when they came,
unless the upstream's ids sort as they come: ULIDs, snowflakes, instants. It costs no index, and shows items that one
has as well. A position is "key." and the key in Base64 for URLs: nobody need know more of it.

Invariants: nothing is written; every event that is there while it is read is read, once; a page goes on behind a key,
so what is stored meanwhile with a smaller one is not in it; of each partition one answer is held at once.
"""

import base64
import binascii
import heapq
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from handlers.aws.error_translation import translate_errors
from handlers.store.control_items import Item
from handlers.store.event_items import Fetch, StoredEvent, has_expired, partition_keys, stored_event

# How many items are asked for at once, of all partitions together. DynamoDB ends an answer at a megabyte.
BATCH = 25
# No position of the order of arrival begins so.
_MARK = "key."


class KeyReader:
    """The events table; `fetch` returns the bytes of an object by its key, None where they cannot be read."""

    def __init__(self, dynamodb: Any, events_table: str, fetch: Fetch) -> None:
        self._dynamodb = dynamodb
        self._table = events_table
        self._fetch = fetch

    def entries(
        self, stream_id: str, partitions: int, now_ms: int, after: str, limit: int, most_bytes: int | None = None
    ) -> Iterator[tuple[str, StoredEvent | None]]:
        """The first `limit` places behind the position `after`, each with its event, None where that has expired.

        A body of more than `most_bytes` is left out. Raises StoreUnavailable, and ValueError for no position.
        """
        keys = partition_keys(stream_id, partitions)
        start = key_at(after) if after else ""
        count = max(1, BATCH // len(keys))
        merged = heapq.merge(*(self._items(key, start, count) for key in keys), key=lambda item: item["SK"]["S"])
        for item in itertools.islice(merged, limit):
            position = position_of(item["SK"]["S"])
            event = None if has_expired(item, now_ms) else stored_event(item, self._fetch, most_bytes)
            yield position, None if event is None else replace(event, position=position)

    def _items(self, partition: str, after: str, count: int) -> Iterator[Item]:
        """The items of a partition behind a key, read as they are asked for."""
        while True:
            condition, values = "PK = :partition", {":partition": {"S": partition}}
            if after:
                condition, values = f"{condition} AND SK > :after", values | {":after": {"S": after}}
            with translate_errors("Query"):
                response = self._dynamodb.query(
                    TableName=self._table,
                    KeyConditionExpression=condition,
                    ExpressionAttributeValues=values,
                    ConsistentRead=True,
                    Limit=count,
                )
            yield from response["Items"]
            if not response.get("LastEvaluatedKey"):
                return
            after = response["LastEvaluatedKey"]["SK"]["S"]


def position_of(key: str) -> str:
    """The position of the event with this key."""
    return _MARK + base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def key_at(position: str) -> str:
    """The key of a position; ValueError where none has it."""
    digits = position.removeprefix(_MARK)
    try:
        key = base64.b64decode(digits + "=" * (-len(digits) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise ValueError("not a position") from error
    if not key or position_of(key) != position:
        raise ValueError("not a position")
    return key

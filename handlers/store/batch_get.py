"""Reads items by their keys, many in one request.

Invariant: every key was answered when `items` is through: what is missing is not there, as far as the read is
consistent. Any other answer of AWS raises `StoreUnavailable`, after the client's own retries.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from handlers.aws.error_translation import translate_errors
from handlers.errors import StoreUnavailable
from handlers.store.control_items import Item

# BatchGetItem: "can contain as many as 100 items", which it answers with 16 MB at most.
KEYS = 100
# How often what BatchGetItem left out is asked for again: a throttled one answers with less.
TRIES = 20


class BatchGet:
    """A table of a client, which is made once and shared by all invocations of a sandbox."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def items(self, keys: Sequence[Item], *, consistent: bool) -> Iterator[Item]:
        """The items that are there, in any order; at most KEYS keys, and none twice."""
        wanted = list(keys)
        for _ in range(TRIES):
            if not wanted:
                return
            request = {self._table: {"Keys": wanted, "ConsistentRead": consistent}}
            with translate_errors("BatchGetItem"):
                response = self._dynamodb.batch_get_item(RequestItems=request)
            yield from response["Responses"].get(self._table, [])
            wanted = response.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])
        if wanted:
            raise StoreUnavailable("AWS left keys of BatchGetItem out again and again")

"""Reads items by their keys, many in one request.

Invariant: every key was answered when `items` is through: what is missing is not there, as far as the read is
consistent. Any other answer of AWS raises `StoreUnavailable`, after the client's own retries.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from handlers.aws.error_translation import quoted_id, translate_errors
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

    def items(self, keys: Sequence[Item], *, consistent: bool, only: Sequence[str] = ()) -> Iterator[Item]:
        """The items that are there, in any order; at most KEYS keys, and none twice.

        Where `only` names attributes, they have no others; what they cost stays the same.
        """
        wanted = list(keys)
        # A name may be a reserved word.
        names = {f"#{number}": name for number, name in enumerate(only)}
        shown = {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names} if only else {}
        for _ in range(TRIES):
            if not wanted:
                return
            request = {self._table: {"Keys": wanted, "ConsistentRead": consistent} | shown}
            with translate_errors("BatchGetItem"):
                response = self._dynamodb.batch_get_item(RequestItems=request)
            yield from response["Responses"].get(self._table, [])
            wanted = response.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])
        if wanted:
            # Keys are left out where "the table's provisioned throughput was exceeded"; source: BatchGetItem.
            unavailable = StoreUnavailable(f"AWS left keys of BatchGetItem out again and again{quoted_id(response)}")
            unavailable.is_throttle = True
            raise unavailable

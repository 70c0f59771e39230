"""Makes the requests to a table: one record by its key, the newest of a kind, many by their keys; and words a write.

handlers/store/control_record.py knows what a record means. Invariants: every key of a batch was answered when `items`
is through: what is missing is not there, as far as the read is consistent. Any answer of AWS but the records raises
`StoreUnavailable`, after the client's own retries.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from handlers.aws.error_translation import quoted_id, translate_errors
from handlers.errors import StoreUnavailable
from handlers.store import typed_values
from handlers.store.typed_values import Item

# The index of all records by their sort keys.
BY_RECORD = "by-record"


class ControlTable:
    """The control table of a client, which is made once and shared by all invocations of a sandbox."""

    def __init__(self, dynamodb: Any, name: str) -> None:
        self._dynamodb = dynamodb
        self._name = name

    def get(self, stream_id: str, key: str) -> typed_values.Item | None:
        """The record of the stream with this sort key; None where there is none."""
        with translate_errors("GetItem"):
            response = self._dynamodb.get_item(
                TableName=self._name, Key=typed_values.key(stream_id, key), ConsistentRead=True
            )
        item: typed_values.Item | None = response.get("Item")
        return item

    def newest(self, stream_id: str, prefix: str, most: int) -> list[typed_values.Item]:
        """The records of the stream whose sort keys begin with `prefix`, the newest first and `most` at most."""
        with translate_errors("Query"):
            response = self._dynamodb.query(
                TableName=self._name,
                KeyConditionExpression="PK = :stream AND begins_with(SK, :prefix)",
                ExpressionAttributeValues={":stream": {"S": stream_id}, ":prefix": {"S": prefix}},
                ScanIndexForward=False,
                Limit=most,
                ConsistentRead=True,
            )
        records: list[typed_values.Item] = response["Items"]
        return records

    def behind(self, stream_id: str, prefix: str, after: str, most: int) -> list[typed_values.Item]:
        """The records whose sort keys begin with `prefix` and are greater than `after`, the oldest first."""
        with translate_errors("Query"):
            response = self._dynamodb.query(
                TableName=self._name,
                # No sort key of the prefix has a tilde.
                KeyConditionExpression="PK = :stream AND SK BETWEEN :after AND :end",
                ExpressionAttributeValues={
                    ":stream": {"S": stream_id},
                    # The least text that is greater.
                    ":after": {"S": f"{max(prefix, after)}\0"},
                    ":end": {"S": f"{prefix}~"},
                },
                Limit=most,
                ConsistentRead=True,
            )
        records: list[typed_values.Item] = response["Items"]
        return records


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


@lru_cache(maxsize=64)
def placeholders(names: tuple[str, ...]) -> dict[str, str]:
    """The names of attributes as an expression refers to them; to be read only, for the next request has it too."""
    return {f"#{name}": name for name in names}


@lru_cache(maxsize=64)
def setting(names: tuple[str, ...]) -> str:
    """The update that sets each of the attributes."""
    return "SET " + ", ".join(f"#{name} = :{name}" for name in names)


def values_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """The values of the attributes as an expression refers to them."""
    return {f":{name}": value for name, value in attributes.items()}

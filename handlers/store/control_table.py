"""Makes the requests to a table: an item by its key, the newest of a kind, many by their keys, and the writes.

Expressions name attributes as `#name` and values as `:name`; each `#name` stands for the attribute `name`. Any answer
of AWS other than the items or a refused condition raises `StoreUnavailable`, after the client's own retries.
"""

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from handlers.aws.error_translation import ConditionFailed, quoted_id, translate_errors
from handlers.errors import StoreUnavailable
from handlers.store import typed_values
from handlers.store.typed_values import Item, typed_item

# The index of all records by their sort keys.
BY_RECORD = "by-record"
# BatchGetItem: "can contain as many as 100 items"; the answer has at most 16 MB.
KEYS = 100
# BatchExecuteStatement: "can perform no more than 25 statements per batch".
STATEMENTS = 25
# BatchStatementError's codes after which a statement may be sent again. Source: DynamoDB's API reference.
TRANSIENT = frozenset(
    {
        "InternalServerError",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "ThrottlingError",
        "TransactionConflict",
    }
)
# How often keys that BatchGetItem left out are requested again: a throttled table leaves some out.
TRIES = 20
# The condition that no item has the key yet: only the first writer succeeds.
IS_NEW = "attribute_not_exists(PK)"
# Waits before statements are sent again that the table was too busy for; gets whether it took any other statement.
WaitBeforeRetry = Callable[[bool], None]


class Table:
    """A table of a client, which is made once and shared by all invocations of a sandbox."""

    def __init__(self, dynamodb: Any, name: str) -> None:
        self._dynamodb = dynamodb
        self._name = name

    # --- reading ------------------------------------------------------------------------------------------------------

    def get(self, partition: str, sort_key: str, *, consistent: bool = True) -> Item | None:
        """Returns the item of that key; None if there is none."""
        with translate_errors("GetItem"):
            response = self._dynamodb.get_item(
                TableName=self._name, Key=typed_values.item_key(partition, sort_key), ConsistentRead=consistent
            )
        item: Item | None = response.get("Item")
        return item

    def query(self, condition: str, values: Mapping[str, str], **more: Any) -> Any:
        """Returns the answer to a Query whose values are texts."""
        texts = {name: {"S": value} for name, value in values.items()}
        with translate_errors("Query"):
            return self._dynamodb.query(
                TableName=self._name, KeyConditionExpression=condition, ExpressionAttributeValues=texts, **more
            )

    def query_items(self, condition: str, values: Mapping[str, str], **more: Any) -> Iterator[Item]:
        """Yields the items of a Query, page by page as they are needed."""
        return (item for page in self.query_pages(condition, values, **more) for item in page)

    def query_pages(self, condition: str, values: Mapping[str, str], **more: Any) -> Iterator[list[Item]]:
        """Yields the pages of a Query as they are needed; a page may be empty."""
        while True:
            answer = self.query(condition, values, **more)
            yield answer["Items"]
            if not answer.get("LastEvaluatedKey"):
                return
            more["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def query_first(self, most: int, condition: str, values: Mapping[str, str], **more: Any) -> list[Item]:
        """Returns the first `most` items of a Query, fewer only if there are no more."""
        # A page has a megabyte at most, so one with fewer items is not the end.
        return list(itertools.islice(self.query_items(condition, values, Limit=most, **more), most))

    def newest_records(self, stream_id: str, prefix: str, most: int) -> list[Item]:
        """Returns the stream's records whose sort keys begin with `prefix`, newest first, at most `most`."""
        values = {":stream": stream_id, ":prefix": prefix}
        condition = "PK = :stream AND begins_with(SK, :prefix)"
        return self.query_first(most, condition, values, ScanIndexForward=False, ConsistentRead=True)

    def read_back(
        self, stream_id: str, prefix: str, fewest: int, most: int, is_enough: Callable[[Item], bool]
    ) -> list[Item]:
        """Returns the newest records, newest first, back to one that is enough: `fewest` to about `most` of them."""
        rows = self.newest_records(stream_id, prefix, fewest)
        while len(rows) == fewest < most and not is_enough(rows[-1]):
            fewest *= 2
            rows = self.newest_records(stream_id, prefix, fewest)
        return rows

    def records_after(self, stream_id: str, prefix: str, after: str, most: int) -> list[Item]:
        """Returns the records whose sort keys begin with `prefix` and are greater than `after`, oldest first."""
        # The range is from the smallest text greater than `after` to a text greater than all with the prefix: none of
        # them has a tilde.
        values = {":stream": stream_id, ":after": f"{max(prefix, after)}\0", ":end": f"{prefix}~"}
        condition = "PK = :stream AND SK BETWEEN :after AND :end"
        return self.query_first(most, condition, values, ConsistentRead=True)

    def batch_get(self, keys: Sequence[Item], *, consistent: bool, only: Sequence[str] = ()) -> Iterator[Item]:
        """Yields the items that exist, in any order; no key may occur twice. A request reads KEYS of them.

        Once the iterator is exhausted, every key was answered: a missing item did not exist, as far as the read is
        consistent. With `only`, items have just the attributes that it names, at the same price.
        """
        # A name may be a reserved word.
        names = {f"#{number}": name for number, name in enumerate(only)}
        shown = {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names} if only else {}
        for first in range(0, len(keys), KEYS):
            wanted = list(keys[first : first + KEYS])
            for _ in range(TRIES):
                request = {self._name: {"Keys": wanted, "ConsistentRead": consistent} | shown}
                with translate_errors("BatchGetItem"):
                    response = self._dynamodb.batch_get_item(RequestItems=request)
                yield from response["Responses"].get(self._name, [])
                wanted = response.get("UnprocessedKeys", {}).get(self._name, {}).get("Keys", [])
                if not wanted:
                    break
            else:
                # Keys are left out where "the table's provisioned throughput was exceeded"; source: BatchGetItem.
                unavailable = StoreUnavailable(f"AWS left out keys of BatchGetItem in every try{quoted_id(response)}")
                unavailable.is_throttle = True
                raise unavailable

    # --- writing ------------------------------------------------------------------------------------------------------

    def put(self, item: Item, condition: str = "", values: Item | None = None) -> bool:
        """Returns whether the condition held and so the item was put."""
        words = _write_parameters("", condition, values or {})
        try:
            with translate_errors("PutItem"):
                self._dynamodb.put_item(TableName=self._name, Item=item, **words)
        except ConditionFailed:
            return False
        return True

    def insert(self, items: Sequence[Item], wait_before_retry: WaitBeforeRetry | None = None) -> list[bool]:
        """Returns for each item whether it was put because its key was free: 25 in a request, and no key twice.

        If the table is too busy for some, those are sent again after `wait_before_retry`, which learns whether the
        table took any of the rest. An item that was sent twice may count as known. Raises StoreUnavailable if the table
        refused an item for another reason; then others may have been put.
        """
        is_new: list[bool] = []
        for first in range(0, len(items), STATEMENTS):
            statements = [insert_statement(self._name, item) for item in items[first : first + STATEMENTS]]
            codes, left = [""] * len(statements), list(range(len(statements)))
            while left:
                with translate_errors("BatchExecuteStatement"):
                    sent = [statements[at] for at in left]
                    response = self._dynamodb.batch_execute_statement(Statements=sent)
                for at, one in zip(left, response["Responses"], strict=True):
                    codes[at] = one["Error"].get("Code", "Unknown") if "Error" in one else ""
                left = [at for at in left if codes[at] not in ("", "DuplicateItem")]
                if left and (wait_before_retry is None or any(codes[at] not in TRANSIENT for at in left)):
                    raise StoreUnavailable(f"AWS refused BatchExecuteStatement: {codes[left[0]]}{quoted_id(response)}")
                if left and wait_before_retry is not None:
                    wait_before_retry(len(left) < len(sent))
            is_new += [not code for code in codes]
        return is_new

    def delete(self, key: Item, condition: str, values: Item) -> None:
        """Deletes the item if the condition holds."""
        with contextlib.suppress(ConditionFailed), translate_errors("DeleteItem"):
            self._dynamodb.delete_item(TableName=self._name, Key=key, **_write_parameters("", condition, values))

    def update(
        self, key: Item, update: str, condition: str, values: Item, names: Mapping[str, str] | None = None, **more: Any
    ) -> Any:
        """Returns the answer to an UpdateItem; raises ConditionFailed.

        A `condition` of "" is none. `names` has each `#name` that stands for an attribute with another name.
        """
        words = _write_parameters(update, condition, values)
        if names:
            words["ExpressionAttributeNames"] = words["ExpressionAttributeNames"] | names
        with translate_errors("UpdateItem"):
            return self._dynamodb.update_item(TableName=self._name, Key=key, **words, **more)

    def set_attributes(
        self, key: Item, attributes: Mapping[str, Any], condition: str = "", *, remove: Sequence[str] = (), **read: Any
    ) -> bool:
        """Returns whether the condition held and so the attributes were set, and those in `remove` removed.

        Values may be typed or not. The condition may name the new values, and those in `read`.
        """
        update = set_clause(tuple(attributes)) if attributes else ""
        if remove:
            update += " REMOVE " + ", ".join(f"#{name}" for name in remove)
        try:
            self.update(key, update.strip(), condition, values_of(typed_item({**attributes, **read})))
        except ConditionFailed:
            return False
        return True

    def try_update(
        self,
        key: Item,
        update: str,
        condition: str,
        values: Item,
        names: Mapping[str, str] | None = None,
        answer: str = "ALL_NEW",
    ) -> tuple[bool, Item | None]:
        """Returns whether the condition held, and the item: after the write, or as it was if the write was refused."""
        more = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"} if condition else {}
        try:
            response = self.update(key, update, condition, values, names, ReturnValues=answer, **more)
        except ConditionFailed as refused:
            # Not every emulator returns the item.
            item = self.get(key["PK"]["S"], key["SK"]["S"]) if refused.item is None else refused.item
            return False, item
        return True, response.get("Attributes")


def insert_statement(table: str, item: Item) -> dict[str, Any]:
    """Returns the INSERT of an item: it is refused if another item has its key."""
    places = ", ".join([f"'{name}': ?" for name in item])
    return {"Statement": f'INSERT INTO "{table}" VALUE {{{places}}}', "Parameters": list(item.values())}


def _write_parameters(update: str, condition: str, values: Item) -> dict[str, Any]:
    """Returns the parameters of a write, without empty ones, which DynamoDB refuses."""
    words = {
        "UpdateExpression": update,
        "ConditionExpression": condition,
        "ExpressionAttributeNames": _attribute_names(f"{update} {condition}"),
        "ExpressionAttributeValues": values,
    }
    return {name: value for name, value in words.items() if value}


@lru_cache(maxsize=64)
def _attribute_names(expression: str) -> dict[str, str]:
    """Returns the attribute of each `#name` in an expression; read-only, because the next request shares it."""
    return {name: name[1:] for name in re.findall(r"#\w+", expression)}


@lru_cache(maxsize=64)
def set_clause(names: tuple[str, ...]) -> str:
    """Returns the update that sets each of the attributes."""
    return "SET " + ", ".join(f"#{name} = :{name}" for name in names)


def values_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of the attributes as an expression refers to them."""
    return {f":{name}": value for name, value in attributes.items()}

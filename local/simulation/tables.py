"""An in-memory DynamoDB for virtual time: the methods of boto3's client that the handlers and the machines call.

Every table has the key PK, SK and one index, `by-position`. Invariant: a call changes one item as a whole, or raises
botocore's ClientError with DynamoDB's code and changes nothing.
"""

import bisect
import itertools
import re
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from local.simulation.dynamodb_expressions import Item, condition, update

Key = tuple[str, str]
# The one form of PartiQL that handlers/store/event_writer.py writes.
_INSERT = re.compile(r"""INSERT INTO "([A-Za-z0-9_.-]+)" VALUE \{((?:'\w+': \?(?:, )?)+)\}""")
# The beginning of a query, which reads one partition.
_PARTITION = re.compile(r"PK = (:\w+)(?:$| AND )")
# How such a query may end.
_PREFIX = re.compile(r" AND begins_with\(SK, (:\w+)\)$")
_BOUND = re.compile(r" AND SK (>=|>|<|BETWEEN) (:\w+)")
# Sorts after any other character.
LAST = "\U0010ffff"
# The sort key of each index.
INDEXES = {"by-position": "position"}
BY_RECORD, OF_RECORDS = "by-record", ("PK", "SK", "execution", "generation")
_PLACE = re.compile(r"'(\w+)'")
Listener = Callable[[str, Key, Item], None]
# boto3's methods by DynamoDB's operations; a machine's Task begins the operation with a small letter.
METHODS = {
    "GetItem": "get_item",
    "BatchGetItem": "batch_get_item",
    "PutItem": "put_item",
    "UpdateItem": "update_item",
    "DeleteItem": "delete_item",
    "BatchExecuteStatement": "batch_execute_statement",
    "Query": "query",
}


def method(client: Any, operation: str) -> Callable[..., dict[str, Any]]:
    """Returns the method of a client, which has boto3's, for an operation or a Task's action."""
    found: Callable[..., dict[str, Any]] = getattr(client, METHODS[operation[0].upper() + operation[1:]])
    return found


class MemoryDynamoDB:
    """The named tables, all empty; `on_change` is called with table, key and item after each change of an item."""

    def __init__(self, *tables: str, on_change: Listener | None = None) -> None:
        self._tables: dict[str, dict[Key, Item]] = {name: {} for name in tables}
        # By table and partition, in order: the sort keys, and for each index its own keys with the sort keys.
        self._partitions: dict[tuple[str, str], list[str]] = {}
        self._indexed: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
        self._on_change = on_change

    def get_item(self, *, TableName: str, Key: Item, **_reading: Any) -> dict[str, Any]:
        """Returns {"Item": …}, or {} if there is none; every read is consistent."""
        item = self._table(TableName, "GetItem").get(_key(Key))
        return {} if item is None else {"Item": dict(item)}

    def put_item(self, *, TableName: str, Item: Item, ConditionExpression: str = "", **rest: Any) -> dict[str, Any]:
        """Replaces the item; raises ConditionalCheckFailedException if the condition does not hold for the old one."""
        table = self._table(TableName, "PutItem")
        key = _key(Item)
        self._check("PutItem", ConditionExpression, table.get(key), rest)
        item = dict(Item)
        self._put(TableName, key, item)
        return {}

    def update_item(
        self, *, TableName: str, Key: Item, UpdateExpression: str, ConditionExpression: str = "", **rest: Any
    ) -> dict[str, Any]:
        """Returns {"Attributes": …} as requested; raises ConditionalCheckFailedException."""
        table = self._table(TableName, "UpdateItem")
        key = _key(Key)
        before = table.get(key)
        self._check("UpdateItem", ConditionExpression, before, rest)
        change = update(UpdateExpression, rest.get("ExpressionAttributeNames"))
        try:
            after = change(dict(Key) if before is None else before, rest.get("ExpressionAttributeValues", {}))
        except ValueError as error:
            raise _client_error("UpdateItem", "ValidationException", str(error)) from error
        self._put(TableName, key, after)
        wanted = rest.get("ReturnValues", "NONE")
        if wanted == "ALL_NEW":
            return {"Attributes": dict(after)}
        return {"Attributes": dict(before)} if wanted == "ALL_OLD" and before is not None else {}

    def delete_item(self, *, TableName: str, Key: Item, ConditionExpression: str = "", **rest: Any) -> dict[str, Any]:
        """Deletes the item, if there is one; raises ConditionalCheckFailedException if the condition does not hold."""
        table = self._table(TableName, "DeleteItem")
        key = _key(Key)
        self._check("DeleteItem", ConditionExpression, table.get(key), rest)
        if (item := table.pop(key, None)) is not None:
            self._partitions[TableName, key[0]].remove(key[1])
            for index, name in INDEXES.items():
                if name in item:
                    self._indexed[TableName, index, key[0]].remove((item[name]["S"], key[1]))
        return {}

    def batch_execute_statement(self, *, Statements: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns an answer for each INSERT with parameters, in order; it is DuplicateItem if the key exists.

        Two statements about one item are refused together, because AWS does not define their outcome.
        """
        asked = [_inserted(statement) for statement in Statements]
        if not 1 <= len(asked) <= 25 or len({(name, *_key(item)) for name, item in asked}) < len(asked):
            raise _client_error("BatchExecuteStatement", "ValidationException", "1 to 25 statements, each on its item")
        return {"Responses": [self._insert(name, item) for name, item in asked]}

    def _insert(self, name: str, item: Item) -> dict[str, Any]:
        if name not in self._tables:
            return {"Error": {"Code": "ResourceNotFound", "Message": "Requested resource not found"}}
        key = _key(item)
        if key in self._tables[name]:
            error = {"Code": "DuplicateItem", "Message": "Duplicate primary key exists in table"}
            return {"TableName": name, "Error": error}
        self._put(name, key, item)
        return {"TableName": name}

    def query(
        self, *, TableName: str, KeyConditionExpression: str, ScanIndexForward: bool = True, **rest: Any
    ) -> dict[str, Any]:
        """Returns the items that the key condition selects, in the order of the sort key, in one page.

        Items of an index have only what it includes. The index of records is read as a scan.
        """
        table = self._table(TableName, "Query")
        holds = condition(KeyConditionExpression, rest.get("ExpressionAttributeNames"))
        values = rest.get("ExpressionAttributeValues", {})
        if rest.get("IndexName") == BY_RECORD:
            shown = condition(rest.get("FilterExpression", "attribute_exists(PK)"), {})
            records = (item for _, item in sorted(table.items()) if holds(item, values) and shown(item, values))
            page = list(itertools.islice(records, limit := rest.get("Limit")))
            last = {"LastEvaluatedKey": {name: page[-1][name] for name in ("PK", "SK")}} if len(page) == limit else {}
            return {"Items": [{name: one[name] for name in OF_RECORDS if name in one} for one in page]} | last
        place = _PARTITION.match(KeyConditionExpression)
        if place is None:
            raise _client_error("Query", "ValidationException", "the key condition must begin with PK =")
        partition, index = values[place[1]]["S"], rest.get("IndexName", "")
        if index:
            entries = self._indexed.get((TableName, index, partition), [])
            # Entries before the beginning of the page are skipped without reading them: a reader reads many pages.
            first = bisect.bisect_right(entries, (values[":after"]["S"], LAST)) if ":after" in values else 0
            names = ("PK", "SK", INDEXES[index])
            found = ({name: table[partition, sort][name] for name in names} for _, sort in entries[first:])
        else:
            sorts = self._partitions.get((TableName, partition), [])
            if (bound := _BOUND.search(KeyConditionExpression)) is not None:
                # A log is read after or before a number, events after a key.
                find = bisect.bisect_right if bound[1] == ">" else bisect.bisect_left
                at = find(sorts, values[bound[2]]["S"])
                sorts = sorts[:at] if bound[1] == "<" else sorts[at:]
            if (prefix := _PREFIX.search(KeyConditionExpression)) is not None:
                # Such keys are neighbours: a replay of a year reads 25 of 35,000 connections, 35,000 times.
                first_sort = values[prefix[1]]["S"]
                sorts = sorts[bisect.bisect_left(sorts, first_sort) : bisect.bisect_left(sorts, first_sort + LAST)]
            if (start := rest.get("ExclusiveStartKey")) is not None:
                at = (bisect.bisect_right if ScanIndexForward else bisect.bisect_left)(sorts, start["SK"]["S"])
                sorts = sorts[at:] if ScanIndexForward else sorts[:at]
            found = (table[partition, sort] for sort in (sorts if ScanIndexForward else reversed(sorts)))
        selected = (item for item in found if holds(item, values))
        if index and not ScanIndexForward:
            selected = reversed(list(selected))  # type: ignore[assignment]
        items = [dict(item) for item in itertools.islice(selected, rest.get("Limit"))]
        answer = {"Items": items, "Count": len(items)}
        if items and len(items) == rest.get("Limit"):
            # As in DynamoDB, a full page may or may not be followed by another.
            answer["LastEvaluatedKey"] = {name: items[-1][name] for name in ("PK", "SK")}
        return answer

    def batch_get_item(self, *, RequestItems: dict[str, Any]) -> dict[str, Any]:
        """Returns the items of all keys."""
        found = {
            name: [dict(item) for key in wanted["Keys"] if (item := self._tables[name].get(_key(key))) is not None]
            for name, wanted in RequestItems.items()
        }
        return {"Responses": found, "UnprocessedKeys": {}}

    def _table(self, name: str, operation: str) -> dict[Key, Item]:
        if name not in self._tables:
            raise _client_error(operation, "ResourceNotFoundException", "Requested resource not found")
        return self._tables[name]

    def _check(self, operation: str, expression: str, item: Item | None, rest: dict[str, Any]) -> None:
        if not expression:
            return
        holds = condition(expression, rest.get("ExpressionAttributeNames"))
        if not holds(item or {}, rest.get("ExpressionAttributeValues", {})):
            answer = (
                {"Item": dict(item)} if item and rest.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" else {}
            )
            raise _client_error(operation, "ConditionalCheckFailedException", "The conditional request failed", answer)

    def _put(self, table: str, key: Key, item: Item) -> None:
        items, (partition, sort) = self._tables[table], key
        before = items.get(key)
        if before is None:
            bisect.insort(self._partitions.setdefault((table, partition), []), sort)
        for index, name in INDEXES.items():
            if before is not None and name in before:
                self._indexed[table, index, partition].remove((before[name]["S"], sort))
            if name in item:
                bisect.insort(self._indexed.setdefault((table, index, partition), []), (item[name]["S"], sort))
        items[key] = item
        if self._on_change is not None:
            self._on_change(table, key, item)


def _inserted(statement: dict[str, Any]) -> tuple[str, Item]:
    """The table and the item of an INSERT whose values are all parameters."""
    match = _INSERT.fullmatch(statement["Statement"])
    names = [] if match is None else _PLACE.findall(match[2])
    if match is None or len(names) != len(statement["Parameters"]):
        raise _client_error("BatchExecuteStatement", "ValidationException", "no INSERT with a value for each place")
    return match[1], dict(zip(names, statement["Parameters"], strict=True))


def _key(item: Item) -> Key:
    return item["PK"]["S"], item["SK"]["S"]


def _client_error(operation: str, code: str, message: str, rest: dict[str, Any] | None = None) -> ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": 400},
        **(rest or {}),
    }
    return ClientError(answer, operation)

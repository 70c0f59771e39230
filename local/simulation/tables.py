"""An in-memory DynamoDB for virtual time: the methods of boto3's client that the handlers and the machines call.

Every table has the key PK, SK, the index `by-position` in each partition, and `by-record`, which is read as a scan.
Invariant: a call changes one item as a whole, or raises botocore's ClientError with DynamoDB's code and changes
nothing.
"""

import bisect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from handlers.store.control_table import BY_RECORD
from local.simulation.dynamodb_expressions import Item, condition, update

Key = tuple[str, str]
T = TypeVar("T", str, tuple[str, str])
# The one form of PartiQL that handlers/store/event_writer.py writes.
_INSERT = re.compile(r"""INSERT INTO "([A-Za-z0-9_.-]+)" VALUE \{((?:'\w+': \?(?:, )?)+)\}""")
# The beginning of a query, which reads one partition.
_PARTITION = re.compile(r"PK = (:\w+)(?:$| AND )")
# How such a query may end.
_PREFIX = re.compile(r" AND begins_with\(SK, (:\w+)\)$")
_BOUND = re.compile(r" AND SK (>=|>|<|BETWEEN) (:\w+)")
# Sorts after any other character.
LAST = "\U0010ffff"
# The sort key of `by-position`, which has keys alone, and the attributes of `by-record`.
POSITION, OF_RECORDS = "position", ("PK", "SK", "execution", "generation")
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
    """The named tables, all empty; `on_change` is called with table, key and item after each change of an item.

    With `most_items` other than 0 answers are cut as those of DynamoDB are at a megabyte: a page of a Query has that
    many items at most, and BatchGetItem leaves keys out.
    """

    def __init__(self, *tables: str, on_change: Listener | None = None) -> None:
        self._tables: dict[str, dict[Key, Item]] = {name: {} for name in tables}
        # By table and partition, in order: the sort keys, and the positions with them.
        self._partitions: dict[tuple[str, str], list[str]] = {}
        self._positions: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self._on_change = on_change
        self.most_items = 0

    def get_item(self, *, TableName: str, Key: Item, **_reading: Any) -> dict[str, Any]:
        """Returns {"Item": …}, or {} if there is none; every read is consistent."""
        item = self._table(TableName, "GetItem").get(key_of(Key))
        return {} if item is None else {"Item": dict(item)}

    def put_item(self, *, TableName: str, Item: Item, ConditionExpression: str = "", **rest: Any) -> dict[str, Any]:
        """Replaces the item; raises ConditionalCheckFailedException if the condition does not hold for the old one."""
        table = self._table(TableName, "PutItem")
        key = key_of(Item)
        self._check("PutItem", ConditionExpression, table.get(key), rest)
        item = dict(Item)
        self._put(TableName, key, item)
        return {}

    def update_item(
        self, *, TableName: str, Key: Item, UpdateExpression: str, ConditionExpression: str = "", **rest: Any
    ) -> dict[str, Any]:
        """Returns {"Attributes": …} as requested; raises ConditionalCheckFailedException."""
        table = self._table(TableName, "UpdateItem")
        key = key_of(Key)
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
        key = key_of(Key)
        self._check("DeleteItem", ConditionExpression, table.get(key), rest)
        if (item := table.pop(key, None)) is not None:
            self._partitions[TableName, key[0]].remove(key[1])
            if POSITION in item:
                self._positions[TableName, key[0]].remove((item[POSITION]["S"], key[1]))
        return {}

    def batch_execute_statement(self, *, Statements: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns an answer for each INSERT with parameters, in order; the error is DuplicateItem if the key exists.

        Two statements about one item are refused together, because AWS does not define their outcome.
        """
        asked = [_inserted(statement) for statement in Statements]
        if not 1 <= len(asked) <= 25 or len({(name, *key_of(item)) for name, item in asked}) < len(asked):
            raise _client_error("BatchExecuteStatement", "ValidationException", "1 to 25 statements, each on its item")
        return {"Responses": [self._insert(name, item) for name, item in asked]}

    def _insert(self, name: str, item: Item) -> dict[str, Any]:
        if name not in self._tables:
            return {"Error": {"Code": "ResourceNotFound", "Message": "Requested resource not found"}}
        key = key_of(item)
        if key in self._tables[name]:
            error = {"Code": "DuplicateItem", "Message": "Duplicate primary key exists in table"}
            return {"TableName": name, "Error": error}
        self._put(name, key, item)
        return {"TableName": name}

    def query(
        self, *, TableName: str, KeyConditionExpression: str, ScanIndexForward: bool = True, **rest: Any
    ) -> dict[str, Any]:
        """Returns a page of the items that the key condition selects, in the order of the sort key.

        Items of an index have only what it includes. A filter leaves items out of the page that was read.
        """
        table = self._table(TableName, "Query")
        holds = condition(KeyConditionExpression, rest.get("ExpressionAttributeNames"))
        values, start = rest.get("ExpressionAttributeValues", {}), rest.get("ExclusiveStartKey")
        index = rest.get("IndexName", "")
        if index == BY_RECORD:
            found = self._records(table, start)
        else:
            place = _PARTITION.match(KeyConditionExpression)
            if place is None:
                raise _client_error("Query", "ValidationException", "the key condition must begin with PK =")
            which = TableName, values[place[1]]["S"]
            found = (
                self._indexed_keys(which, values, start, is_forward=ScanIndexForward)
                if index
                else self._whole_items(KeyConditionExpression, which, values, start, is_forward=ScanIndexForward)
            )
        limit = min(filter(None, (rest.get("Limit"), self.most_items)), default=None)
        read = [dict(item) for item in itertools.islice((item for item in found if holds(item, values)), limit)]
        items = read
        if "FilterExpression" in rest:
            is_shown = condition(rest["FilterExpression"], rest.get("ExpressionAttributeNames"))
            items = [item for item in read if is_shown(item, values)]
        answer = {"Items": items, "Count": len(items)}
        if read and len(read) == limit:
            # As in DynamoDB, a full page may or may not be followed by another.
            names = ("PK", "SK") if index in ("", BY_RECORD) else ("PK", "SK", POSITION)
            answer["LastEvaluatedKey"] = {name: read[-1][name] for name in names}
        return answer

    def _records(self, table: dict[Key, Item], start: Item | None) -> Iterator[Item]:
        """Yields the entries of the index of records, which is read as a scan."""
        after = ("", "") if start is None else key_of(start)
        for key, item in sorted(table.items()):
            if key > after:
                yield {name: item[name] for name in OF_RECORDS if name in item}

    def _indexed_keys(
        self, which: tuple[str, str], values: Item, start: Item | None, *, is_forward: bool
    ) -> Iterator[Item]:
        """Yields the entries of a partition of the index `by-position`."""
        table, entries = self._tables[which[0]], self._positions.get(which, [])
        if ":after" in values:
            # Entries before the beginning of the page are skipped without reading them: a reader reads many pages.
            entries = entries[bisect.bisect_right(entries, (values[":after"]["S"], LAST)) :]
        if start is not None:
            entries = _from(entries, (start[POSITION]["S"], start["SK"]["S"]), is_forward=is_forward)
        for _, sort in entries if is_forward else reversed(entries):
            yield {name: table[which[1], sort][name] for name in ("PK", "SK", POSITION)}

    def _whole_items(
        self, expression: str, which: tuple[str, str], values: Item, start: Item | None, *, is_forward: bool
    ) -> Iterator[Item]:
        """Yields the items of a partition that a key condition may select."""
        table, sorts = self._tables[which[0]], self._partitions.get(which, [])
        if (bound := _BOUND.search(expression)) is not None:
            # A log is read after or before a number, events after a key.
            find = bisect.bisect_right if bound[1] == ">" else bisect.bisect_left
            at = find(sorts, values[bound[2]]["S"])
            sorts = sorts[:at] if bound[1] == "<" else sorts[at:]
        if (prefix := _PREFIX.search(expression)) is not None:
            # Such keys are neighbours. Without this slice, a replay of a year would read 35,000 connections 35,000
            # times for 25 each.
            first = values[prefix[1]]["S"]
            sorts = sorts[bisect.bisect_left(sorts, first) : bisect.bisect_left(sorts, first + LAST)]
        if start is not None:
            sorts = _from(sorts, start["SK"]["S"], is_forward=is_forward)
        return (table[which[1], sort] for sort in (sorts if is_forward else reversed(sorts)))

    def batch_get_item(self, *, RequestItems: dict[str, Any]) -> dict[str, Any]:
        """Returns the items of the keys; if answers are cut, about half of the keys are left unprocessed."""
        found, left = {}, {}
        for name, wanted in RequestItems.items():
            keys = [key_of(key) for key in wanted["Keys"]]
            if not 1 <= len(keys) <= 100 or len(set(keys)) < len(keys):
                raise _client_error("BatchGetItem", "ValidationException", "1 to 100 keys, and none twice")
            count = -(-len(keys) // 2) if self.most_items else len(keys)
            found[name] = [dict(item) for key in keys[:count] if (item := self._tables[name].get(key)) is not None]
            if count < len(keys):
                left[name] = wanted | {"Keys": wanted["Keys"][count:]}
        return {"Responses": found, "UnprocessedKeys": left}

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
        if before is not None and POSITION in before:
            self._positions[table, partition].remove((before[POSITION]["S"], sort))
        if POSITION in item:
            bisect.insort(self._positions.setdefault((table, partition), []), (item[POSITION]["S"], sort))
        items[key] = item
        if self._on_change is not None:
            self._on_change(table, key, item)


def _inserted(statement: dict[str, Any]) -> tuple[str, Item]:
    """Returns the table and the item of an INSERT whose values are all parameters."""
    match = _INSERT.fullmatch(statement["Statement"])
    names = [] if match is None else _PLACE.findall(match[2])
    if match is None or len(names) != len(statement["Parameters"]):
        raise _client_error("BatchExecuteStatement", "ValidationException", "no INSERT with a value for each place")
    return match[1], dict(zip(names, statement["Parameters"], strict=True))


def _from(ordered: list[T], start: T, *, is_forward: bool) -> list[T]:
    """Returns the entries after `start` in the direction of reading."""
    if is_forward:
        return ordered[bisect.bisect_right(ordered, start) :]
    return ordered[: bisect.bisect_left(ordered, start)]


def key_of(item: Mapping[str, Any]) -> Key:
    """Returns the key of an item, or of one given as a key."""
    return item["PK"]["S"], item["SK"]["S"]


def _client_error(operation: str, code: str, message: str, rest: dict[str, Any] | None = None) -> ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": 400},
        **(rest or {}),
    }
    return ClientError(answer, operation)

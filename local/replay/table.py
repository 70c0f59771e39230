"""An in-memory DynamoDB for virtual time: the item calls that the handlers and the machines make.

It has the methods of boto3's client that `handlers/store` and the machines' direct integrations use, so those run
unchanged in virtual time without a socket. It knows no time, no throughput, no capacity and no index. Every table has
the key PK, SK. Invariant: a call changes one item as a whole, or raises botocore's ClientError with DynamoDB's code
and changes nothing.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from local.replay.dynamodb_expressions import Item, condition, update

Key = tuple[str, str]
# The one form of PartiQL that handlers/store/event_writer.py writes.
_INSERT = re.compile(r"""INSERT INTO "([A-Za-z0-9_.-]+)" VALUE \{((?:'\w+': \?(?:, )?)+)\}""")
# A query of one partition, by the beginning of the sort key.
_OF_ONE = re.compile(r"PK = (:\w+)(?: AND begins_with\(SK, (:\w+)\))?$")
_LAST = "\U0010ffff"
_PLACE = re.compile(r"'(\w+)'")
Listener = Callable[[str, Key, Item], None]


class MemoryDynamoDB:
    """The tables named, all empty; `on_change` is called with table, key and item after each change of one."""

    def __init__(self, *tables: str, on_change: Listener | None = None) -> None:
        self._tables: dict[str, dict[Key, Item]] = {name: {} for name in tables}
        self._keys: dict[str, list[Key]] = {name: [] for name in tables}  # in order; nothing is ever deleted
        self._on_change = on_change

    def get_item(self, *, TableName: str, Key: Item, **_reading: Any) -> dict[str, Any]:
        """Returns {"Item": …}, or {} when there is none; every read is consistent."""
        item = self._table(TableName, "GetItem").get(_key(Key))
        return {} if item is None else {"Item": dict(item)}

    def put_item(self, *, TableName: str, Item: Item, ConditionExpression: str = "", **rest: Any) -> dict[str, Any]:
        """Replaces the item; ConditionalCheckFailedException when the condition does not hold for the old one."""
        table = self._table(TableName, "PutItem")
        key = _key(Item)
        self._check("PutItem", ConditionExpression, table.get(key), rest)
        table[key] = item = dict(Item)
        self._changed(TableName, key, item)
        return {}

    def update_item(
        self, *, TableName: str, Key: Item, UpdateExpression: str, ConditionExpression: str = "", **rest: Any
    ) -> dict[str, Any]:
        """Returns {"Attributes": …} as ReturnValues asks; ConditionalCheckFailedException when the condition fails."""
        table = self._table(TableName, "UpdateItem")
        key = _key(Key)
        before = table.get(key)
        self._check("UpdateItem", ConditionExpression, before, rest)
        change = update(UpdateExpression, rest.get("ExpressionAttributeNames"))
        try:
            after = change(dict(Key) if before is None else before, rest.get("ExpressionAttributeValues", {}))
        except ValueError as error:
            raise _client_error("UpdateItem", "ValidationException", str(error)) from error
        table[key] = after
        self._changed(TableName, key, after)
        wanted = rest.get("ReturnValues", "NONE")
        if wanted == "ALL_NEW":
            return {"Attributes": dict(after)}
        return {"Attributes": dict(before)} if wanted == "ALL_OLD" and before is not None else {}

    def batch_execute_statement(self, *, Statements: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns an answer for each INSERT with parameters, in order; DuplicateItem where the key exists.

        Two statements on one item are refused as a whole, for AWS does not promise what comes of them.
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
        self._tables[name][key] = item
        self._changed(name, key, item)
        return {"TableName": name}

    def query(
        self, *, TableName: str, KeyConditionExpression: str, ScanIndexForward: bool = True, **rest: Any
    ) -> dict[str, Any]:
        """Returns the items that the key condition selects, in the order of SK, in one page."""
        table = self._table(TableName, "Query")
        holds = condition(KeyConditionExpression, rest.get("ExpressionAttributeNames"))
        values = rest.get("ExpressionAttributeValues", {})
        keys = self._keys[TableName]
        if (place := _OF_ONE.match(KeyConditionExpression)) is not None:
            # What is looked for lies together: a replay of a year looks at 25 of 35,000 connections, 35,000 times.
            stream, prefix = values[place[1]]["S"], values[place[2]]["S"] if place[2] else ""
            keys = keys[bisect_left(keys, (stream, prefix)) : bisect_left(keys, (stream, prefix + _LAST))]
        keys = keys if ScanIndexForward else keys[::-1]
        found = (key for key in keys if holds(table[key], values))
        items = [dict(table[key]) for key in itertools.islice(found, rest.get("Limit"))]
        return {"Items": items, "Count": len(items)}

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

    def _changed(self, table: str, key: Key, item: Item) -> None:
        if len(self._tables[table]) > len(self._keys[table]):
            insort(self._keys[table], key)
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

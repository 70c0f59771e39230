"""Counts the billed units of requests to DynamoDB: a client and in-memory tables behind it.

Invariant: every request that is answered, or refused for its condition, is counted once by the rules of `units.py`;
counting changes no answer.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from functools import cache
from typing import Any

import yaml
from botocore.exceptions import ClientError

from handlers.dynamodb.client import DynamoDb, decode_binary
from handlers.dynamodb.sigv4 import Credentials, Signer
from local.checkout import ROOT
from local.costs.units import Index, Item, item_bytes, read_units, refused_units, stored_bytes, write_units
from local.simulation.tables import Key, MemoryDynamoDB, key_of, method

STORAGE = ROOT / "packaging" / "resources" / "storage.yml"


@dataclass(frozen=True, slots=True)
class Table:
    """The key of a table, hash before range, and its indexes by name.

    `has_events` says whether its items are events, whose sort keys come from the upstream, and not our records.
    """

    keys: tuple[str, ...]
    indexes: dict[str, Index]
    has_events: bool


class _Template(yaml.SafeLoader):
    """YAML without the values of CloudFormation's functions, on which no cost depends."""


_Template.add_multi_constructor("!", lambda *_: None)


@cache
def read_resources(name: str) -> dict[str, Any]:
    """The resources of packaging/resources/<name>.yml, each with its Type and Properties."""
    text = (STORAGE.parent / f"{name}.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.load(text, _Template)["Resources"]
    return found


def events_table() -> Table:
    return _table(read_resources("storage")["EventsTable"], has_events=True)


def control_table() -> Table:
    """The table of leases, cursors and the ledger."""
    return _table(read_resources("storage")["ControlTable"], has_events=False)


def _table(resource: dict[str, Any], *, has_events: bool) -> Table:
    properties = resource["Properties"]
    indexes = {}
    for index in properties.get("GlobalSecondaryIndexes", ()):
        shown = index["Projection"]
        projected = None if shown["ProjectionType"] == "ALL" else tuple(shown.get("NonKeyAttributes", ()))
        indexes[index["IndexName"]] = Index(_keys(index["KeySchema"]), projected)
    return Table(_keys(properties["KeySchema"]), indexes, has_events)


def _keys(schema: list[dict[str, str]]) -> tuple[str, ...]:
    return tuple(key["AttributeName"] for key in schema)


_EVENT = "event"
CONDITION = "ConditionalCheckFailedException"


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """A kind of request: the table, the operation, and what its item is ("lease", "connection" …)."""

    table: str
    operation: str
    item: str


@dataclass(slots=True)
class Count:
    """The number of requests and their billed units."""

    requests: int = 0
    write_units: int = 0
    read_units: float = 0.0

    def __sub__(self, before: "Count") -> "Count":
        return Count(*(mine - theirs for mine, theirs in zip(astuple(self), astuple(before), strict=True)))


@dataclass(slots=True)
class Counts:
    """All counts by kind, and the growth of each table (with "") and each index in bytes that are billed as storage."""

    by_kind: dict[Kind, Count] = field(default_factory=lambda: defaultdict(Count))
    stored_bytes: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))

    def copy(self) -> "Counts":
        return self - Counts()

    def __sub__(self, before: "Counts") -> "Counts":
        kinds = {kind: count - before.by_kind.get(kind, Count()) for kind, count in self.by_kind.items()}
        stored = {place: size - before.stored_bytes.get(place, 0) for place, size in self.stored_bytes.items()}
        return Counts(kinds, stored)

    def requests(self, table: str) -> int:
        return sum(count.requests for kind, count in self.by_kind.items() if kind.table == table)

    def write_units(self, table: str) -> int:
        return sum(count.write_units for kind, count in self.by_kind.items() if kind.table == table)

    def read_units(self, table: str) -> float:
        return sum(count.read_units for kind, count in self.by_kind.items() if kind.table == table)


class Meter:
    """Tables by name, empty at first, and the counts of their requests."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._defined = tables
        self.tables = MemoryDynamoDB(*tables, on_change=self._record_change)  # methods of its own are not counted
        self._items: dict[tuple[str, Key], Item] = {}
        self._changes: list[tuple[str, Item | None, Item]] = []
        self.counts = Counts()

    def answer(self, operation: str, body: bytes) -> dict[str, Any]:
        """The answer to a request; raises botocore's ClientError."""
        return self.call(operation, json.loads(body, object_hook=decode_binary))

    def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """As `answer`, with parameters in boto3's form."""
        self._changes.clear()
        try:
            answer = method(self.tables, operation)(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] == CONDITION:
                name, key = request["TableName"], key_of(request.get("Key") or request["Item"])
                self._count(name, operation, key[1]).write_units += refused_units(self._items.get((name, key)))
            raise
        if operation == "BatchExecuteStatement":
            self._count_statements(request["Statements"], answer["Responses"])
        elif operation == "BatchGetItem":
            for name, wanted in request["RequestItems"].items():
                self._count_read(operation, name, wanted["Keys"], wanted)
        elif operation == "GetItem":
            self._count_read(operation, request["TableName"], [request["Key"]], request)
        elif operation == "Query":
            values = request.get("ExpressionAttributeValues", {})
            prefix = values.get(":prefix", {}).get("S", request.get("IndexName", ""))
            sizes = [item_bytes(item) for item in answer["Items"]]
            units = read_units(sizes, consistent=request.get("ConsistentRead", False), is_query=True)
            self._count(request["TableName"], operation, prefix).read_units += units
        elif operation == "DeleteItem":
            name, key = request["TableName"], key_of(request["Key"])
            # "The size of the deleted item"; no table with deletions has an index.
            self._count(name, operation, key[1]).write_units += refused_units(self._items.pop((name, key), None))
        else:
            name, key = request["TableName"], key_of(request.get("Key") or request["Item"])
            self._count(name, operation, key[1]).write_units += self._take_changed_units()
        return answer

    def _count_statements(self, statements: list[dict[str, Any]], answers: list[dict[str, Any]]) -> None:
        """Counts each statement as a write; one whose key existed already counts as a refused condition."""
        name = str(answers[0].get("TableName"))
        count = self._count(name, "BatchExecuteStatement", "")
        count.write_units += self._take_changed_units()
        for statement, answer in zip(statements, answers, strict=True):
            if "Error" in answer:
                key = key_of(dict(zip(("PK", "SK"), statement["Parameters"], strict=False)))
                count.write_units += refused_units(self._items.get((name, key)))

    def _count_read(self, operation: str, table: str, keys: list[Any], request: dict[str, Any]) -> None:
        items = (self._items.get((table, key_of(key))) for key in keys)
        sizes = [0 if item is None else item_bytes(item) for item in items]
        count = self._count(table, operation, keys[0]["SK"]["S"])
        count.read_units += read_units(sizes, consistent=request.get("ConsistentRead", False))

    def _take_changed_units(self) -> int:
        units = 0
        for name, before, after in self._changes:
            table = self._defined[name]
            units += write_units(before, after, table.indexes.values(), table.keys)
            self.counts.stored_bytes[name, ""] += stored_bytes(after) - stored_bytes(before)
            for index_name, index in table.indexes.items():
                new, old = (stored_bytes(index.entry_of(item, table.keys)) for item in (after, before))
                self.counts.stored_bytes[name, index_name] += new - old
        return units

    def _count(self, table: str, operation: str, sort_key: str) -> Count:
        item = _EVENT if self._defined[table].has_events else sort_key.partition("#")[0]
        count = self.counts.by_kind[Kind(table, operation, item)]
        count.requests += 1
        return count

    def _record_change(self, table: str, key: Key, item: Any) -> None:
        self._changes.append((table, self._items.get((table, key)), item))
        self._items[table, key] = item


class MeteredDynamoDb(DynamoDb):
    def __init__(self, meter: Meter) -> None:
        signer = Signer(Credentials("cost", "cost", ""), "us-east-1")
        super().__init__("http://127.0.0.1", signer, tries=1, connect_timeout_s=1, read_timeout_s=1)
        self._meter = meter

    def send(self, operation: str, body: bytes) -> dict[str, Any]:
        """The tables' answer; raises their error."""
        return self._meter.answer(operation, body)

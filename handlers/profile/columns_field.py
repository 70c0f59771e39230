"""Parses `columns`: which places of a body become columns of the archive (docs/archive.md).

    columns = { price = "$.p", side = "$.S", count = { path = "$.n", type = "int64" } }

The function that connects does not use them. Invariant: a `Column` returned without a note in `Fields` is valid.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from handlers.framing.events import JsonPath, parse_path
from handlers.profile.checked_fields import A_PATH, Fields, choice

KINDS = ("string", "double", "int64", "boolean", "timestamp")
# The columns of every archive; its partitions are columns, too.
RESERVED = frozenset(
    {"position", "received_at", "key", "id", "name", "data", "conflict_of", "left_out", "dead_letter", "bytes"}
    | {"part", "repaired", "stream", "day", "hour"}
)
NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
MOST_COLUMNS = 100
_TYPE = choice(KINDS)
_SHAPE = 'a table of names and JSON paths, such as { price = "$.p" }'


class Column(NamedTuple):
    """A column; `kind` is None if the first events decide its type."""

    name: str
    path: JsonPath
    kind: str | None


def columns(fields: Fields) -> list[Column]:
    table = fields.take("columns")
    if not isinstance(table, dict) or not 0 < len(table) <= MOST_COLUMNS:
        fields.add_problem("columns", f"must be {_SHAPE}, with 1 to {MOST_COLUMNS} names")
        return []
    inner = fields.fields_of("columns", table)
    found = [_column(inner, name) for name in table]
    return [column for column in found if column is not None]


def columns_of_profile(name: str, table: Mapping[str, Any]) -> list[Column]:
    """Returns the columns of a profile that was checked."""
    return columns(Fields(name, table, [])) if "columns" in table else []


def _column(inner: Fields, name: str) -> Column | None:
    value = inner.take(name)
    if not NAME.fullmatch(name) or name in RESERVED:
        why = (
            "is a column that every archive has: choose another name"
            if name in RESERVED
            else "must be a name of a-z, 0-9 and _ that does not begin with a digit"
        )
        inner.add_problem(name, why)
        return None
    kind = None
    if isinstance(value, dict):
        one = inner.fields_of(name, value)
        value, kind = one.read("path", A_PATH), one.read("type", _TYPE)
        one.refuse_unknown("a column: path, type")
        return Column(name, value, kind) if isinstance(value, JsonPath) else None
    path = parse_path(value) if isinstance(value, str) else None
    if path is None:
        inner.add_problem(name, 'must be a JSON path such as "$.meta.id", or { path = "$.n", type = "int64" }')
        return None
    return Column(name, path, None)

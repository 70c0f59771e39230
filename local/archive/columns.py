"""Makes rows of events, with the columns of every archive and those of the profile.

A column keeps the type of its first hour, so that readers never see two. Invariant: a value that does not fit the type
is null and counted; it is still in the body.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from handlers.framing.events import JsonPath, parse_json, text_at_path, value_at_path
from handlers.profile.columns_field import Column
from streamkeeper import dataframes

_INT64 = range(-(2**63), 2**63)
# A double holds every whole number up to this one.
_EXACT = 2**53
# The number of events from which the type of a column is guessed, unless the profile says it.
SAMPLE = 1000


@dataclass(frozen=True)
class ColumnTable:
    """The columns of one stream, with their types; `misfits` counts, by column, the values that did not fit."""

    columns: tuple[tuple[str, JsonPath, str], ...]
    misfits: Counter[str] = field(default_factory=Counter)

    @property
    def kinds(self) -> dict[str, str]:
        return {name: kind for name, _, kind in self.columns}

    def schema(self) -> Any:
        """Arrow's schema."""
        pyarrow = dataframes.import_package("pyarrow")
        types = {
            "string": pyarrow.string(), "double": pyarrow.float64(), "int64": pyarrow.int64(),
            "boolean": pyarrow.bool_(), "timestamp": pyarrow.timestamp("ms", tz="UTC"),
        }  # fmt: skip
        base = dataframes.schema()
        return pyarrow.schema([*base, *((name, types[kind]) for name, _, kind in self.columns)])

    def row(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """An event of the API's JSON."""
        row = dataframes.row(event)
        body = parse_json(event["data"]) if self.columns and event.get("data") is not None else None
        for name, path, kind in self.columns:
            row[name] = _convert_value(body, path, kind)
            if row[name] is None and value_at_path(body, path)[0]:
                self.misfits[name] += 1
        return row


def make_table(columns: Iterable[Column], known: Mapping[str, str], sample: Iterable[Mapping[str, Any]]) -> ColumnTable:
    """The table; a type comes from the archive if it knows one, or else from the profile or the first events."""
    bodies = [parse_json(event["data"]) for event in sample if event.get("data") is not None]
    found = ((one.name, one.path, known.get(one.name) or one.kind or _infer_type(bodies, one.path)) for one in columns)
    return ColumnTable(tuple(found))


def _infer_type(bodies: Iterable[Any], path: JsonPath) -> str:
    values = [value for there, value in (value_at_path(body, path) for body in bodies) if there]
    if values and all(isinstance(value, bool) for value in values):
        return "boolean"
    is_number = values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if not is_number:
        return "string"
    if all(isinstance(value, float) or abs(value) <= _EXACT for value in values):
        return "double"  # later numbers may have a fraction
    return "int64" if all(isinstance(value, int) and value in _INT64 for value in values) else "string"


def _convert_value(body: Any, path: JsonPath, kind: str) -> Any:
    there, value = value_at_path(body, path)
    if not there:
        return None
    if kind == "string":
        return text_at_path(body, path)
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and "_" in value:  # digits to Python alone
        return None
    try:
        return _CONVERT[kind](value)
    except (ValueError, OverflowError, OSError):  # OSError: an instant of some billion years
        return None


def _double(value: int | float | str) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _int64(value: int | float | str) -> int | None:
    number = int(value)
    return number if (number == value or isinstance(value, str)) and number in _INT64 else None


def _timestamp(value: int | float | str) -> datetime:
    """An instant in ISO 8601, in UTC if it has no offset, or in milliseconds since 1970."""
    # Python takes some numbers for instants: the milliseconds 1795120112340 for 23:40 on a day of 1795.
    if not isinstance(value, str) or (value.isdecimal() and len(value) > len("20261130")):
        return datetime.fromtimestamp(int(value) / 1000, UTC)
    instant = datetime.fromisoformat(value)
    # Arrow cannot convert what is in year 0 or 10000 of UTC, as 0001-01-01T00:00+14:00 is.
    return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)


_CONVERT: dict[str, Any] = {"double": _double, "int64": _int64, "timestamp": _timestamp}

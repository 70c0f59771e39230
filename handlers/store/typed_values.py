"""Reads and writes the typed values of DynamoDB's items, and refuses by name what this version cannot read.

An item of an event, or of a segment, that has a `layout` was written by a later version: this one's have none. A
version that changes what an item means writes another number there (docs/upgrade.md). Pure. Invariants: an item that
another release wrote is read by the attributes it has; a refusal is one sentence that names the item, what it has and
what this version knows, and nothing of what the upstream sent.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar, cast

from handlers.errors import StoreUnavailable

Item = dict[str, Any]
T = TypeVar("T")
DAY_S = 86_400


def number(value: int) -> Item:
    """The value as a DynamoDB number."""
    return {"N": str(value)}


def typed(value: bool | int | str | bytes | Item) -> Item:
    """The value as an attribute has it; one that is typed already stays as it is."""
    match value:
        case bool():
            return {"BOOL": value}
        case int():
            return number(value)
        case str():
            return {"S": value}
        case bytes():
            return {"B": value}
    return value


def key(stream_id: str, sort_key: str) -> Item:
    """The key of an item of either table."""
    return {"PK": {"S": stream_id}, "SK": {"S": sort_key}}


def text(item: Item, name: str) -> str | None:
    """The text of an attribute; None if the item has none of that name, or no text there."""
    value: str | None = item.get(name, {}).get("S")
    return value


def flag(item: Item, name: str) -> bool:
    """Whether the attribute is true; one that is absent, or no truth value, is false."""
    return item.get(name, {}).get("BOOL") is True


def count(item: Item, name: str) -> int | None:
    """The whole number of an attribute; None if the item has none of that name, or no whole number there."""
    written = item.get(name, {}).get("N")
    try:
        return None if written is None else int(written)
    except ValueError:
        return None


def instant(at_ms: int) -> str:
    """The instant as the machine writes it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"


def instant_ms(written: str | None) -> int | None:
    """The milliseconds of an instant as the machine writes it, 2026-01-01T00:00:00.000Z; None if it is none."""
    try:
        return round(datetime.fromisoformat(written).timestamp() * 1000) if written else None
    except (ValueError, OverflowError):
        return None


def typed_item(values: Mapping[str, Any]) -> Item:
    """The attributes with these values."""
    return {name: typed(value) for name, value in values.items()}


# By a field's annotation: its value where the attribute is absent, and what reads the attribute.
_READERS: dict[object, tuple[Any, Callable[[Item, str], Any]]] = {
    "int": (0, lambda item, name: count(item, name) or 0),
    "int | None": (None, count),
    "str": ("", lambda item, name: text(item, name) or ""),
    "str | None": (None, text),
    "bool": (False, flag),
}


@cache
def _plan(kind: Any, prefix: str, known: tuple[str, ...]) -> list[tuple[str, str, Any, Callable[[Item, str], Any]]]:
    """The fields of a dataclass that attributes can have: made once, for a control record is read with each request."""
    wanted = (one for one in fields(kind) if one.type in _READERS and one.name not in known)
    return [(one.name, prefix + one.name, *_READERS[one.type]) for one in wanted]


def read_as(kind: type[T], item: Item, prefix: str = "", **known: Any) -> T:
    """The dataclass whose fields are attributes named with `prefix`, except those that are `known`.

    What is absent, or cannot be read, is 0, "", False, or None if the field may be None.
    """
    for name, attribute, absent, reads in _plan(cast(Hashable, kind), prefix, tuple(known)):
        known[name] = reads(item, attribute) if attribute in item else absent
    return kind(**known)


def expiry(from_ms: int, keep_days: int) -> Item:
    """The attribute that lets an item expire so many days later; none where `keep_days` is 0."""
    return {"expires_at": number(from_ms // 1000 + keep_days * DAY_S)} if keep_days else {}


# Of events and segments.
KNOWN_LAYOUT = 1


def refusal(words: str) -> StoreUnavailable:
    """The error that a caller is to read: it says what is stored, and no retry helps."""
    problem = StoreUnavailable(words)
    problem.is_unknown_layout = True
    return problem


def check_layout(item: Item, name: str) -> None:
    """Raises StoreUnavailable where the layout of an event or a segment is not known; `name` says which it is."""
    if "layout" in item and (layout := count(item, "layout")) != KNOWN_LAYOUT:
        raise refusal(f"{name} has layout {layout}, and this version knows {KNOWN_LAYOUT}")


@contextmanager
def refused_by_name(name: str) -> Iterator[None]:
    """Refuses by name whatever cannot be unpacked inside."""
    try:
        yield
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError):
        raise refusal(f"{name} cannot be read: it is damaged, or a later version wrote it") from None

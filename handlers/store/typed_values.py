"""Reads and writes the typed values of DynamoDB's items, and names the items that this version cannot read.

This version writes no `layout` into the items of events and segments, so an item with one is from a later version. A
version that changes what an item means writes another number there (docs/upgrade.md). Pure. Invariants: an item of
another release is read by the attributes it has; a refusal is one sentence that names the item, what it has and what
this version knows, and quotes nothing that the upstream sent.
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
# DynamoDB: "The maximum item size in DynamoDB is 400 KB, which includes both attribute name binary length (UTF-8
# length) and attribute value lengths".
MAX_ITEM_BYTES = 400 * 1024
# "The size of a number is approximately ... up to 21 bytes."
_NUMBER_BYTES = 21


def number_value(value: int) -> Item:
    """Returns the value as a DynamoDB number."""
    return {"N": str(value)}


def typed_value(value: bool | int | str | bytes | Item) -> Item:
    """Returns the value as an attribute has it; a typed one stays as it is."""
    match value:
        case bool():
            return {"BOOL": value}
        case int():
            return number_value(value)
        case str():
            return {"S": value}
        case bytes():
            return {"B": value}
    return value


def item_key(stream_id: str, sort_key: str) -> Item:
    """Returns the key of an item of either table."""
    return {"PK": {"S": stream_id}, "SK": {"S": sort_key}}


def read_text(item: Item, name: str) -> str | None:
    """Returns the text of an attribute; None if it is absent or not a text."""
    value: str | None = item.get(name, {}).get("S")
    return value


def read_flag(item: Item, name: str) -> bool:
    """Returns whether the attribute is true; False if it is absent or not a truth value."""
    return item.get(name, {}).get("BOOL") is True


def read_int(item: Item, name: str) -> int | None:
    """Returns the whole number of an attribute; None if it is absent or not a whole number."""
    written = item.get(name, {}).get("N")
    try:
        return None if written is None else int(written)
    except ValueError:
        return None


def instant_text(at_ms: int) -> str:
    """Returns the instant as the machine writes it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"


def instant_ms(written: str | None) -> int | None:
    """Returns the milliseconds of the machine's instant, such as 2026-01-01T00:00:00.000Z; None for other text."""
    try:
        return round(datetime.fromisoformat(written).timestamp() * 1000) if written else None
    except (ValueError, OverflowError):
        return None


def typed_item(values: Mapping[str, Any]) -> Item:
    """Returns the attributes with these values."""
    return {name: typed_value(value) for name, value in values.items()}


# By a field's annotation: its value if the attribute is absent, and the function that reads the attribute.
_READERS: dict[str, tuple[Any, Callable[[Item, str], Any]]] = {
    "int": (0, lambda item, name: read_int(item, name) or 0),
    "int | None": (None, read_int),
    "str": ("", lambda item, name: read_text(item, name) or ""),
    "str | None": (None, read_text),
    "bool": (False, read_flag),
}


@cache
def _readable_fields(
    kind: Any, prefix: str, known: tuple[str, ...]
) -> list[tuple[str, str, Any, Callable[[Item, str], Any]]]:
    """Returns the fields of a dataclass that attributes can have; cached, as each request reads a control record."""
    # Types are texts if their module postpones its annotations.
    types = {one.name: one.type.__name__ if isinstance(one.type, type) else str(one.type) for one in fields(kind)}
    wanted = (name for name in types if types[name] in _READERS and name not in known)
    return [(name, prefix + name, *_READERS[types[name]]) for name in wanted]


def read_as(kind: type[T], item: Item, prefix: str = "", **known: Any) -> T:
    """Returns the dataclass whose fields are attributes named with `prefix`, except those that are `known`.

    A field whose attribute is absent, or cannot be read, is 0, "", False, or None if it may be None.
    """
    for name, attribute, absent, reads in _readable_fields(cast(Hashable, kind), prefix, tuple(known)):
        known[name] = reads(item, attribute) if attribute in item else absent
    return kind(**known)


def expiry(from_ms: int, keep_days: int) -> Item:
    """Returns the attribute that lets an item expire `keep_days` later; none if that is 0."""
    return {"expires_at": number_value(from_ms // 1000 + keep_days * DAY_S)} if keep_days else {}


def has_expired(item: Item, now_ms: int) -> bool:
    """Returns whether the item must be hidden: DynamoDB deletes it days after it has expired, in any order."""
    return "expires_at" in item and int(item["expires_at"]["N"]) * 1000 <= now_ms


# The layout of events and segments.
KNOWN_LAYOUT = 1


def refusal(words: str) -> StoreUnavailable:
    """Returns an error for the caller to read: it says what is stored; no retry helps."""
    problem = StoreUnavailable(words)
    problem.is_unknown_layout = True
    return problem


def check_layout(item: Item, name: str) -> None:
    """Raises StoreUnavailable if the layout of an event or a segment is unknown; `name` says which item it is."""
    if "layout" in item and (layout := read_int(item, "layout")) != KNOWN_LAYOUT:
        raise refusal(f"{name} has layout {layout}, and this version knows {KNOWN_LAYOUT}")


@contextmanager
def refuse_unreadable(name: str) -> Iterator[None]:
    """Turns any failure to unpack inside the block into a refusal that names the item."""
    try:
        yield
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError):
        raise refusal(f"{name} cannot be read: it is damaged, or a later version wrote it") from None


def size_bytes(item: Item) -> int:
    """Returns the item's size as DynamoDB counts it, never too small."""
    total = 0
    for name, value in item.items():
        total += len(name)
        for kind, content in value.items():
            if kind == "N":
                total += _NUMBER_BYTES
            else:
                total += len(content) if kind == "B" or content.isascii() else len(content.encode())
    return total

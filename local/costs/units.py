"""Computes how many units DynamoDB bills for a request, from the items that it wrote and read.

Pure. Items have the form of a request ({"PK": {"S": "a"}, …}). A write unit is 1 KB of one item, a read unit 4 KB;
reads that may be stale cost half. For example, an insert of 300 bytes into a table with one index takes two write
units, one for the item and one for the index's entry.

Source: "DynamoDB read and write operations", "Item sizes and formats" and "Using global secondary indexes", DynamoDB
Developer Guide. Invariant: a request costs at least half a unit, even one that was refused for its condition.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Item = Mapping[str, Mapping[str, Any]]
WRITE_BYTES, READ_BYTES = 1024, 4096
# "plus 100 bytes of per-item storage overhead to account for indexing", for a table's item and an index's entry alike.
STORED_BESIDES_BYTES = 100
# A number has up to 38 digits and takes "approximately (length of attribute name) + (1 byte per two significant
# digits) + (1 byte)".
_DIGITS_PER_BYTE = 2
# A list or a map "requires 3 bytes of overhead, regardless of its contents", and 1 byte for each of its elements.
_NESTED_BYTES = 3


@dataclass(frozen=True, slots=True)
class Index:
    """A global secondary index: its key, and its other attributes besides the table's key (None: all)."""

    keys: tuple[str, ...]
    projected: tuple[str, ...] | None = ()

    def entry_of(self, item: Item | None, table_keys: Sequence[str]) -> Item | None:
        """The index's entry of an item; None if the item lacks an attribute of the index's key."""
        if item is None or any(name not in item for name in self.keys):
            return None
        if self.projected is None:
            return item
        names = {*table_keys, *self.keys, *self.projected}
        return {name: value for name, value in item.items() if name in names}


def item_bytes(item: Item) -> int:
    """The size of an item: of the names of its attributes, in UTF-8, and of their values."""
    return sum(len(name.encode()) + value_bytes(value) for name, value in item.items())


def value_bytes(value: Mapping[str, Any]) -> int:
    """The size of an attribute's value, of a type that our items have."""
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return _number_bytes(content)
        case "B":
            return len(content)
        case "BOOL":
            return 1
        case "L":
            return _NESTED_BYTES + sum(1 + value_bytes(each) for each in content)
        case "M":
            return _NESTED_BYTES + sum(1 + len(name.encode()) + value_bytes(each) for name, each in content.items())
    raise ValueError(f"no attribute of these tables has the type {kind}")


@lru_cache(maxsize=4096)
def _number_bytes(text: str) -> int:
    digits = text.lstrip("+-").split("e")[0].split("E")[0].replace(".", "").strip("0")
    return max(1, -(-len(digits) // _DIGITS_PER_BYTE)) + 1 + text.startswith("-")


def stored_bytes(item: Item | None) -> int:
    """The billed storage of an item or of an index's entry; 0 if there is none."""
    return 0 if item is None else item_bytes(item) + STORED_BESIDES_BYTES


# --- writing ----------------------------------------------------------------------------------------------------------


def write_units(before: Item | None, after: Item | None, indexes: Iterable[Index], keys: Sequence[str]) -> int:
    """The units of a write: those of the larger of the two items, and those of the indexes.

    Either item is None if there was, or is, none. `keys` is the table's key.
    """
    return _units_of_larger(before, after) + sum(_index_units(index, before, after, keys) for index in indexes)


def refused_units(before: Item | None) -> int:
    """The units of a write whose condition failed: those of the existing item, or one."""
    # "If a ConditionExpression evaluates to false during a conditional write, DynamoDB still consumes write capacity
    # from the table. The amount consumed is dependent on the size of the existing item (or a minimum of 1)."
    return _units_of_larger(before, None)


def _units_of_larger(before: Item | None, after: Item | None) -> int:
    sizes = [item_bytes(item) for item in (before, after) if item is not None]
    return max(1, *(-(-size // WRITE_BYTES) for size in sizes), 1)


def _index_units(index: Index, before: Item | None, after: Item | None, keys: Sequence[str]) -> int:
    old, new = index.entry_of(before, keys), index.entry_of(after, keys)
    if old == new:
        return 0  # "If an update to an item doesn't change any projected attribute, no write to the index"
    moved = old is not None and new is not None and any(old[name] != new[name] for name in index.keys)
    # "two writes are required, one to delete the previous item from the index and another write to put the new item"
    return _units_of_larger(old, None) + _units_of_larger(None, new) if moved else _units_of_larger(old, new)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_units(sizes: Iterable[int], *, consistent: bool, is_query: bool = False) -> float:
    """The units of a read of items of these sizes, 0 for a missing item.

    A Query or a Scan (`is_query`) rounds the sum of its items; otherwise each item is rounded by itself.
    """
    listed = list(sizes)
    amounts = [sum(listed)] if is_query else listed
    units = sum(max(1, -(-amount // READ_BYTES)) for amount in amounts)
    return units if consistent else units / 2

"""DynamoDB bills units by KB and by index, also for a refused condition, and half for a read that may be stale."""

import pytest

from local.costs.command import part_rows
from local.costs.request_meter import control_table, events_table
from local.costs.units import Index, Item, item_bytes, read_units, refused_units, stored_bytes, value_bytes, write_units

KEYS = ("PK", "SK")
POSITION = Index(("PK", "position"))
HELD = Index(("generation",), ("execution",))


def item(size: int, **more: str) -> Item:
    """Returns an item of that many bytes, with these texts besides."""
    texts = {"PK": "a", "SK": "b"} | more
    found = {name: {"S": text} for name, text in texts.items()}
    return found | {"data": {"S": "x" * (size - item_bytes(found) - len("data"))}}


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": "é"}, 2),
        ({"B": b"123"}, 3),
        ({"N": "0"}, 2),
        ({"N": "1767225600000"}, 5),  # 17672256: leading and trailing zeros are trimmed
        ({"N": "-12.5"}, 4),
        ({"BOOL": True}, 1),
        ({"L": [{"S": "ab"}, {"BOOL": True}]}, 8),
        ({"M": {"k": {"S": "ab"}}}, 7),
    ],
)
def test_the_size_of_a_value(value: dict[str, object], size: int) -> None:
    """Each type has the size that the developer guide gives; a name counts with its value."""
    assert value_bytes(value) == size
    assert item_bytes({"é": value}) == 2 + size


def test_a_write_is_billed_by_the_larger_item_and_by_each_changed_index() -> None:
    """The larger of the older and the newer item counts; 1,025 bytes are two units; an unchanged index costs none."""
    assert write_units(None, item(1024), (), KEYS) == 1
    assert write_units(None, item(1025), (), KEYS) == 2
    assert write_units(item(3000), item(100), (), KEYS) == 3
    first, moved = item(3000, position="1"), item(3000, position="2")
    assert write_units(None, first, [POSITION], KEYS) == 3 + 1
    assert write_units(first, item(2900, position="1"), [POSITION], KEYS) == 3
    assert write_units(first, moved, [POSITION], KEYS) == 3 + 2
    assert write_units(first, None, [POSITION], KEYS) == 3 + 1
    held = item(500, generation="1", execution="x")
    assert write_units(item(500), held, [HELD], KEYS) == 1 + 1
    assert write_units(held, item(500, generation="1", execution="y"), [HELD], KEYS) == 1 + 1
    assert write_units(held, item(600, generation="1", execution="x"), [HELD], KEYS) == 1


def test_a_refused_condition_costs_the_units_of_the_existing_item() -> None:
    """A refused condition costs the existing item's units, or one; 100 bytes more than an item's size are stored."""
    assert (stored_bytes(None), stored_bytes(item(300))) == (0, 400)
    assert (refused_units(None), refused_units(item(1024)), refused_units(item(2500))) == (1, 1, 3)


def test_a_read_is_rounded_by_item_or_together() -> None:
    """A Query rounds the sum of its items, a get by keys each item; a missing item costs as much as one unit."""
    assert read_units([4096], consistent=True) == 1
    assert read_units([4097], consistent=True) == 2
    assert read_units([0], consistent=False) == 0.5
    assert read_units([100, 100], consistent=True) == 2
    assert read_units([100] * 40, consistent=True, is_query=True) == 1
    assert read_units([100] * 41, consistent=False, is_query=True) == 1
    assert read_units([], consistent=False, is_query=True) == 0.5


def test_the_tables_are_those_that_are_deployed() -> None:
    """The tables' keys and indexes are read from the template's source."""
    assert events_table().keys == control_table().keys == KEYS
    assert events_table().indexes["by-position"] == POSITION
    assert (events_table().has_events, control_table().has_events) == (True, False)
    assert all(index.projected is not None for index in control_table().indexes.values())


def test_no_part_of_a_price_is_shown_as_less_than_nothing() -> None:
    """If a busy stream has a little less of a part than an idle one, the part is shown as 0."""
    assert part_rows({"lambda": -0.0001}, {"lambda": "why"}) == ["  lambda               0.000  why"]

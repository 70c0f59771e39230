"""The dataclass of handlers/values.py behaves like the standard library's, for less CPU at a cold start."""

import ast
import dataclasses
from dataclasses import field, replace
from typing import Any

import pytest

from handlers import values
from tests.import_graph import MODULES


def made(dataclass: Any) -> Any:
    """Return the same class made by one of the two decorators."""

    @dataclass(frozen=True, slots=True)
    class Made:
        """A value."""

        first: int
        hidden: str = field(default="h", repr=False)
        apart: int = field(default=0, compare=False)

    return Made


def test_values_compare_hash_print_and_are_replaced_as_those_of_the_standard_library() -> None:
    """Values compare and hash by their compared fields, print their shown fields, and equal only their own class."""
    ours, theirs = made(values.dataclass), made(dataclasses.dataclass)
    for kind in (ours, theirs):
        assert kind(1, apart=1) == kind(1) != kind(2)
        assert len({kind(1), kind(1, apart=1), kind(1, "x")}) == 2
        assert replace(kind(1), first=2) == kind(2)
        assert not hasattr(kind(1), "__dict__")
    assert ours(1) != theirs(1)
    assert repr(ours(1)) == repr(theirs(1))
    assert hash(ours(1)) == hash(theirs(1))
    assert ours.__match_args__ == theirs.__match_args__


def test_a_class_keeps_its_own_methods_and_one_without_fields_equals_itself() -> None:
    """A class that can change has no hash, as in the standard library."""

    @values.dataclass
    class Own:
        """A class with its own `__eq__` and `__repr__`."""

        one: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    @values.dataclass(frozen=True, slots=True)
    class Empty:
        """A class without fields."""

    assert Own(1) == Own(2)
    assert repr(Own(1)) == "own"
    with pytest.raises(TypeError):
        hash(Own(1))
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())


def test_all_handlers_use_this_dataclass() -> None:
    """All of handlers uses this dataclass: the standard library's costs each cold start 0.25 ms for every class."""
    wrong = [
        name
        for name, path in MODULES.items()
        if name.startswith("handlers.") and name != values.__name__
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        if "dataclass" in {one.name for one in node.names}
    ]
    assert not wrong, f"{', '.join(wrong)}: import `dataclass` from handlers.values"

"""Translates between JSON and the library's values: None is its undefined, and for null it has an object of its own."""

import math
from typing import Any

from states_language.jsonata.library import Utils
from states_language.jsonata.numbers import NON_FINITE_NAMES, int_if_whole
from states_language.values import well_formed

NULL = Utils.NULL_VALUE
NESTED = (dict, list)
_KINDS = {
    type(None): "null", bool: "boolean", int: "number", float: "number", dict: "object", list: "array", str: "string",
}  # fmt: skip


def type_of(value: Any) -> str:
    """Return the JSON name of the value's type."""
    return _KINDS.get(type(value)) or next((name for each, name in _KINDS.items() if isinstance(value, each)), "number")


class Unsupported(Exception):
    """The value is a function, which JSON cannot hold."""


def to_library(value: Any) -> Any:
    """Return a JSON value as the library represents it; the value itself if it holds no null."""
    if value is None:
        return NULL
    if isinstance(value, dict):
        members = None
        for key, member in value.items():
            if (member is None or isinstance(member, NESTED)) and (inner := to_library(member)) is not member:
                members = members or {}
                members[key] = inner
        return {**value, **members} if members else value
    if isinstance(value, list):
        if not any(element is None or isinstance(element, NESTED) for element in value):
            return value
        elements = []
        for element in value:
            elements.append(to_library(element))
        return elements if any(new is not old for new, old in zip(elements, value, strict=True)) else value
    return value


def from_library(value: Any) -> Any:
    """Return the library's value as JSON; raises Unsupported for a function."""
    if isinstance(value, str):
        return value if value.isascii() else well_formed(value)
    if isinstance(value, int):
        return value
    if value is NULL or value is None:
        return None
    if isinstance(value, float):
        # JSON has no Infinity and no NaN; AWS returns JavaScript's names for them.
        return int_if_whole(value) if math.isfinite(value) else NON_FINITE_NAMES[str(value)]
    if isinstance(value, dict):
        members = {}
        for key, member in value.items():
            members[well_formed(key)] = from_library(member)
        return members
    if isinstance(value, Utils.RangeList):
        return list(value)
    if isinstance(value, list):
        elements = []
        for element in value:
            elements.append(from_library(element))
        return elements
    raise Unsupported

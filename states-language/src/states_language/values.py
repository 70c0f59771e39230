"""Writes and reads JSON values as AWS does, compares them, and measures them before they are written.

Invariants: `parse_json` reads back the value that `compact` wrote; neither returns half of a surrogate pair, so any
system can write what a machine passes on.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]  # the stub lacks one
from typing import Any

from states_language.scheduling.lanes import worker_thread

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
# `_ENCODER.encode` would make this anew each time. Without a table of containers, a circular value nests too deeply.
_encode = c_make_encoder(None, _ENCODER.default, encode_basestring, None, ":", ",", False, False, True)
_PLAIN = frozenset({int, float, bool, type(None)})
_HALF = re.compile("[\ud800-\udfff]")
_WIDE = re.compile("[\U00010000-\U0010ffff]")
# A half of a surrogate pair, alone or in a pair, as JSON spells it.
_HALF_OR_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")

MISSING: Any = object()
"""The result of a path that leads nowhere, or of a variable without a value; null is a value."""


@dataclass(frozen=True)
class Document:
    """A JSON value that nobody changes, and its text as `compact` writes it."""

    value: Any
    text: str


def compact(value: Any) -> str:
    """Return a value as JSON text the way AWS writes it: without spaces, with characters unescaped."""
    kind = type(value)
    if kind is int:
        return str(value)
    if kind is bool or value is None:
        return "null" if value is None else "true" if value else "false"
    return well_formed(_text(value))


def cause_text(value: Any) -> str:
    """Return a value in the form of a cause: a string without quotes, another value as JSON, MISSING as ""."""
    if value is MISSING:
        return ""
    return value if isinstance(value, str) else compact(value)


def cut(text: str, longest: int) -> str:
    """Return a text of at most so many characters; dots stand for what is left out."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _text(value: Any) -> str:
    """Return what `_ENCODER.encode` returns; raises what that raises."""
    if isinstance(value, str):
        return encode_basestring(value)
    try:
        return "".join(_encode(value, 0))
    except RecursionError:
        return _ENCODER.encode(value)  # names a circle as such


def copy_json(value: Any) -> Any:
    """Return what reading the value's JSON text returns: a copy, whose arrays are lists and whose keys are texts."""
    kind = type(value)
    if kind in _PLAIN or (kind is str and value.isascii()):
        return value
    if kind is list:
        elements = []
        for element in value:
            elements.append(copy_json(element))
        return elements
    if kind is dict:
        members = {}
        for name, member in value.items():
            if type(name) is not str or not name.isascii():
                break
            kind = type(member)
            members[name] = member if kind in _PLAIN or (kind is str and member.isascii()) else copy_json(member)
        else:
            return members
    return json.loads(json.dumps(value))


def well_formed_with_text(value: Any) -> tuple[Any, str]:
    """Return a value from outside with its texts made well-formed, and its JSON text; raises ValueError for NaN."""
    text = _text(value)
    if "NaN" in text or "Infinity" in text:
        parse_as_spelled(text)
    if text.isascii() or not _HALF.search(text):
        return value, text
    value = well_formed_value(value)
    return value, _text(value)


def parse_json(text: str, *, members: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the value of a JSON text; raises ValueError, also for NaN and 1e999, which Python reads.

    members: a function that turns an object's names and values into its value, in place of dict. Halves of surrogate
    pairs are replaced as by `well_formed`.
    """
    value = parse_as_spelled(text, members)
    may_be_half = "\\u" in text or not text.isascii()
    return well_formed_value(value) if may_be_half and _HALF_OR_ESCAPE.search(text) else value


def parse_as_spelled(text: str, members: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return what `parse_json` returns, but leave halves of surrogate pairs as they are."""
    return json.loads(text, object_pairs_hook=members, parse_constant=_refuse_number, parse_float=_parse_finite)


class Duplicate(ValueError):
    """An object has a member twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the key '{name}' appears twice")
        self.name = name


def unique_members_hook() -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return the function that makes an object of its members, for `parse_json`: it raises Duplicate for a member that
    appears twice, and lets an event loop beside this thread go on."""
    give_way = worker_thread.give_way

    def table_of(members: list[tuple[str, Any]]) -> dict[str, Any]:
        if give_way is not None:
            give_way()
        table = dict(members)
        if len(table) < len(members):
            seen: set[str] = set()
            name = next(n for n, _ in members if n in seen or seen.add(n))  # type: ignore[func-returns-value]
            raise Duplicate(name)
        return table

    return table_of


def parse_external_json(text: str | bytes) -> Any:
    """Returns the value of a JSON text as `parse_json` does; ValueError for too deep nesting as well."""
    try:
        return parse_json(text.decode() if isinstance(text, bytes) else text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def well_formed(text: str) -> str:
    """Return the text with surrogate pairs joined, and each lone half replaced by U+FFFD.

    JSON and JSONata may spell half of a pair (RFC 8259, section 8.2, calls the result unpredictable). No encoding of
    Unicode can hold it; the WHATWG's encoders write U+FFFD. AWS's own way has not been recorded.
    """
    if text.isascii() or not _HALF.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def join_surrogates(text: str) -> str:
    """Return the text with surrogate pairs joined; a lone half stays."""
    if text.isascii() or not _HALF.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def to_utf16_units(text: str) -> str:
    """Return the text with each wide character as two surrogate halves, by which JavaScript searches and orders."""
    return text if text.isascii() else _WIDE.sub(_surrogate_pair, text)


def _surrogate_pair(wide: re.Match[str]) -> str:
    above = ord(wide[0]) - 0x10000
    return chr(0xD800 + (above >> 10)) + chr(0xDC00 + (above & 0x3FF))


def well_formed_value(value: Any) -> Any:
    """Return a copy of the JSON value in which texts and the names of members are well-formed."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {well_formed(name): well_formed_value(member) for name, member in value.items()}
    if isinstance(value, list):
        return [well_formed_value(element) for element in value]
    return value


def _refuse_number(word: str) -> Any:
    raise ValueError(f"{word} is not a valid JSON number")


def _parse_finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def count_values(value: Any, known: dict[int, int]) -> int:
    """Return how many values are in this one; `known` has the counts of objects that were visited before."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        count = 1
        for part in value.values() if isinstance(value, dict) else value:
            count += count_values(part, known)  # a loop needs one frame of the stack for each level, a generator two
        known[id(value)] = count
    return known[id(value)]


def estimate_json_length(value: Any, known: dict[int, int]) -> int:
    """Return about how many characters the value takes as JSON; a part counts as often as it occurs.

    `known` has the weights of objects that were visited before, so this is quick even if writing the text is not.
    """
    if isinstance(value, str):
        return len(value) + 2
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        size = 2 + (sum(map(len, value)) + 3 * len(value) if isinstance(value, dict) else len(value))
        for part in value.values() if isinstance(value, dict) else value:
            size += estimate_json_length(part, known)
        known[id(value)] = size
    return known[id(value)]


def has_more_values(value: Any, most: int) -> bool:
    """Return whether more than so many values are in this one; 8 characters of a text count as one value.

    It stops looking once it has counted enough.
    """
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            most -= len(node) >> 3
        elif isinstance(node, dict | list):
            most -= len(node)
        if most < 0:
            return True
        if isinstance(node, dict | list):
            waiting.extend(node.values() if isinstance(node, dict) else node)
    return False


def is_equal(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal; true is not 1, and 1 is 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(is_equal, left, right))
    return bool(left == right)


NESTED = "The data is nested too deeply."
HISTORY_FULL = "The execution reached the maximum number of history events (25000)."


LARGEST_BETWEEN = 16 * 262_144
"""The most characters of a value before it becomes a state's output. AWS documents no bound; this one saves memory."""
FEW_VALUES = 64
"""So few parts, each within the payload limit, need no measuring together."""


def too_large_cause(what: str) -> str:
    """Return AWS's cause for data over the payload limit (recorded); `what` is a state's name or a resource."""
    return f"The state/task '{what}' returned a result with a size exceeding the maximum number of bytes service limit."

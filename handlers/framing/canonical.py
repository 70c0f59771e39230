"""Spells equal JSON values as equal bytes, so that their hashes are equal.

After RFC 8785, with one difference, for two events must never be taken for one: a number counts with all its digits,
where the RFC rounds to a double. For example `{"b": 1.0, "a": 2}` and `{"a":2,"b":1}` have the same form.

Invariant: what is not a JSON object or array keeps its own bytes, and so does what cannot be compared safely (a name
that stands twice, half of a surrogate pair, a number that no double holds as it is written, a nesting of thousands,
hundreds of thousands of values, more than 4 Mi characters). No input raises.
"""

import json
from typing import Any

# Python takes up to 130 bytes for each bracket and comma of a text of JSON, so this many are 50 MB.
MOST_MARKS = 400_000
# A form is made of four times the text: as it is, its values, the form in characters, and in bytes.
MOST_CHARACTERS = 4 * 1024 * 1024


def has_too_many_values(data: str | bytes) -> bool:
    """Whether JSON's values in `data` would take more memory than the smallest function has for them."""
    if len(data) <= MOST_MARKS:  # each mark is a character
        return False
    if isinstance(data, bytes):
        return data.count(b",") + data.count(b"{") + data.count(b"[") > MOST_MARKS
    return data.count(",") + data.count("{") + data.count("[") > MOST_MARKS


def canonical_json(data: str | bytes) -> bytes:
    """The canonical form of an object or array; of anything else the bytes as they are."""
    try:
        text = data if isinstance(data, str) else data.decode()
        # RFC 8259, section 2: four characters may stand before a value.
        is_short = len(text) <= MOST_CHARACTERS and not has_too_many_values(data)
        if is_short and text.lstrip(" \t\r\n")[:1] in ("{", "["):
            return _ENCODER.encode(_DECODER.decode(text)).encode()
    except (ValueError, RecursionError):
        pass
    return data.encode() if isinstance(data, str) else data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # RFC 8785, section 3.1: "JSON objects MUST NOT exhibit duplicate property names."
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name stands twice")
    return members


def _number(text: str) -> int | float:
    double = float(text)
    digits, power = _parts(text)
    if (digits, power) != _parts(repr(double)):
        raise ValueError("no double holds this number as it is written")
    # A whole number has one spelling, however large: with all its digits, as one without a point or a power has it.
    return double if power < 0 else int(digits or "0") * 10**power


def _parts(text: str) -> tuple[str, int]:
    """Sign and digits without zeros at either end, and the power of ten: equal exactly where the numbers are."""
    mantissa, _, power = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    short = digits.rstrip("0")
    if not short:
        return "", 0
    return "-" * mantissa.startswith("-") + short, int(power or 0) - len(fraction) + len(digits) - len(short)


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not valid JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number, parse_constant=_refuse)
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)

"""Reads the fractions of a JSON text without losing a digit: events may differ in the last digits of an instant alone.

A double holds 15 decimal digits; an instant in seconds with nanoseconds has 19. Invariant: two texts whose numbers
differ never give the same text.
"""

from __future__ import annotations

import json
from typing import Any

# So many characters have at most 15 digits beside a point.
_HELD = 16


class LongNumber(float):
    """A number that no double holds exactly, as the nearest one, and its text."""

    __slots__ = ("text",)
    text: str


def parse_fraction(text: str) -> float:
    """Returns the number that a JSON text with a point or a power spells; as a LongNumber if a double loses digits."""
    double = float(text)
    has_power = "e" in text or "E" in text
    if (len(text) <= _HELD and not has_power) or is_exact(text, double):
        return double
    number = LongNumber(double)
    number.text = text
    return number


def is_exact(text: str, double: float) -> bool:
    """Returns whether the shortest text of the double is the same number as `text`."""
    return normalized(text) == normalized(repr(double))


def normalized(text: str) -> tuple[str, int]:
    """Returns sign and digits without zeros at either end, and the power of ten: equal only for equal numbers."""
    mantissa, _, power = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    short = digits.rstrip("0")
    if not short:
        return "", 0
    return "-" * mantissa.startswith("-") + short, int(power or 0) - len(fraction) + len(digits) - len(short)


raw_decode = json.JSONDecoder(parse_float=parse_fraction).raw_decode
"""Reads the value that begins at an index; blanks before it are an error."""


def loads(text: str | bytes) -> Any:
    """Returns the value of a JSON text; raises ValueError or RecursionError if there is none."""
    return json.loads(text, parse_float=parse_fraction)

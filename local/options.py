"""Reads what the options of a command say, strictly: what is no number, or out of bounds, is refused in one sentence.

Invariant: the sentence names the option, its bounds and what was given.
"""

import math
from collections.abc import Sequence

from local.user_error import UserError


def whole(option: str, value: str, least: int, most: int) -> int:
    """Returns the whole number that an option is; digits alone, of any size that `most` has."""
    if not (value.isascii() and value.isdigit() and len(value) <= 17 and least <= int(value) <= most):
        raise UserError(f"{option} must be a whole number from {least} to {most}, not {value!r}.")
    return int(value)


def one_of(option: str, value: str, allowed: Sequence[str]) -> str:
    """Returns the word that an option is."""
    if value not in allowed:
        raise UserError(f"{option} must be one of {', '.join(allowed)}, not {value!r}.")
    return value


def number(option: str, value: str, least: float, most: float) -> float:
    """Returns the number that an option is."""
    try:
        given = float(value) if value.isascii() and "_" not in value else math.nan
    except ValueError:
        given = math.nan
    if not least <= given <= most:
        raise UserError(f"{option} must be a number from {least:g} to {most:g}, not {value!r}.")
    return given

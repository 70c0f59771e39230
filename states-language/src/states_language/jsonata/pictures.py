"""Implements $formatNumber of JSONata: format_number(1234.5, "#,##0.00") is "1,234.50".

It follows XPath 3.1, section 4.7, as version 2.0.6 of the JavaScript library does, with that version's own ways: if a
picture breaks several rules, the error names the last one; a prefix shifts the place of the exponent. For an exponent
of zero or of a negative number, where that version never ends, the result is XPath's.
"""

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

from states_language.jsonata.library import JException
from states_language.jsonata.numbers import NON_FINITE_NAMES, number_text, round_half_even

_SIGNS = {
    "decimal-separator": ".", "grouping-separator": ",", "exponent-separator": "e", "digit": "#", "zero-digit": "0",
    "percent": "%", "per-mille": "\u2030", "pattern-separator": ";", "minus-sign": "-",
}  # fmt: skip
_FIXED_BELOW = 1e21
"""JavaScript writes a larger number with an exponent, whatever its number of places."""


class _Signs:
    """The characters that have a meaning in a picture."""

    def __init__(self, options: dict[str, Any]) -> None:
        signs = _SIGNS | {name: sign for name, sign in options.items() if isinstance(sign, str)}
        self.point, self.comma = signs["decimal-separator"], signs["grouping-separator"]
        self.power, self.optional = signs["exponent-separator"], signs["digit"]
        self.percent, self.mille = signs["percent"], signs["per-mille"]
        self.half, self.minus = signs["pattern-separator"], signs["minus-sign"]
        self.digits = [chr(ord((signs["zero-digit"] or "\0")[0]) + number) for number in range(10)]
        self.zero = self.digits[0]
        self.active = {*self.digits, self.point, self.power, self.comma, self.optional, self.half}

    def count(self, text: str, *, optional: bool = False) -> int:
        """Return how many digits a part of a picture has, without the optional ones or with them."""
        return sum(sign in self.digits or (optional and sign == self.optional) for sign in text)

    def digit_text(self, value: float, places: int) -> str:
        """Return the number without its sign, with so many decimal places."""
        size = abs(value)
        if size < _FIXED_BELOW:
            text = f"{size:.{places}f}"
        else:
            text = number_text(size) if math.isfinite(size) else NON_FINITE_NAMES[str(size)]
        return "".join(self.digits[ord(sign) - 48] if sign in "0123456789" else sign for sign in text)


@dataclass(frozen=True)
class _Part:
    """One half of a picture: for numbers from 0 on, or for negative ones."""

    text: str
    prefix: str
    suffix: str
    active: str
    whole: str
    fraction: str
    exponent: str | None

    @property
    def mantissa(self) -> str:
        """Return the digits and separators before the exponent."""
        return self.whole + self.fraction


def format_number(value: Any, picture: Any, options: Any = None) -> Any:
    """Return the number in the picture's form; raises JException D3080 to D3093 for a picture that is not valid."""
    signs = _Signs(options or {})
    texts = picture.split(signs.half)
    if len(texts) > 2:
        raise JException("D3080", -1)
    parts = [_parse_part(text, signs) for text in texts]
    for part in parts:
        broken = [code for code, breaks in _broken_rules(part, signs).items() if breaks]
        if broken:
            raise JException(broken[-1], -1)
    part = parts[0] if value >= 0 else parts[-1]
    before = signs.minus if len(parts) == 1 and not value >= 0 else ""
    return before + part.prefix + _format_digits(value, part, signs) + part.suffix


def _parse_part(text: str, signs: _Signs) -> _Part:
    places = [at for at, sign in enumerate(text) if sign in signs.active and sign != signs.power]
    if not places:
        raise JException("D3086", -1)
    first, end = places[0], places[-1] + 1
    active, at = text[first:end], text.find(signs.power, first)
    exponential = 0 <= at <= end
    mantissa, exponent = (active[:at], active[at + 1 :]) if exponential else (active, None)
    whole, _, fraction = mantissa.partition(signs.point)
    return _Part(text, text[:first], text[end:], active, whole, fraction, exponent)


def _broken_rules(part: _Part, signs: _Signs) -> dict[str, bool]:
    """Return for each rule (XPath 3.1, 4.7.3) whether the part breaks it, in the order of the checks."""
    text, whole, fraction, exponent = part.text, part.whole, part.fraction, part.exponent
    percent, mille, at = text.count(signs.percent), text.count(signs.mille), text.find(signs.point)
    beside = (text[at - 1 : at] if at else "", text[at + 1 : at + 2])
    required, after = whole.partition(signs.optional), fraction.rpartition(signs.optional)
    return {
        "D3081": text.count(signs.point) > 1,
        "D3082": percent > 1,
        "D3083": mille > 1,
        "D3084": percent > 0 and mille > 0,
        "D3085": signs.count(part.mantissa, optional=True) == 0,
        "D3086": any(sign not in signs.active for sign in part.active),
        "D3087": at >= 0 and signs.comma in beside,
        "D3088": at < 0 and whole.endswith(signs.comma),
        "D3089": signs.comma * 2 in text,
        "D3090": bool(required[1]) and signs.count(required[0]) > 0,
        "D3091": bool(after[1]) and signs.count(after[2]) > 0,
        "D3092": bool(exponent) and percent + mille > 0,
        "D3093": exponent is not None and (not exponent or any(sign not in signs.digits for sign in exponent)),
    }


def _format_digits(value: float, part: _Part, signs: _Signs) -> str:
    """Return the number between prefix and suffix (XPath 3.1, 4.7.4 and 4.7.5)."""
    least_whole, least_fraction, most_fraction = _sizes(part, signs)
    number = value * (100 if signs.percent in part.text else 1000 if signs.mille in part.text else 1)
    exponent = None
    if part.exponent is not None:
        number, exponent = _scale(number, signs.count(part.whole))
    text = signs.digit_text(round_half_even(number, most_fraction), most_fraction)
    whole, _, fraction = text.partition(".")
    whole, fraction = whole.lstrip(signs.zero), fraction.rstrip(signs.zero)
    whole, fraction = whole.rjust(least_whole, signs.zero), fraction.ljust(least_fraction, signs.zero)
    whole, fraction = _group_digits(f"{whole}{signs.point}{fraction}", len(whole), part, signs)
    text = f"{whole}{signs.point}{fraction}"
    if signs.point not in part.text or not fraction:
        text = text[:-1]
    if exponent is not None:
        size = signs.digit_text(exponent, 0).rjust(len(part.exponent or ""), signs.zero)
        text += f"{signs.power}{signs.minus if exponent < 0 else ''}{size}"
    return text


def _sizes(part: _Part, signs: _Signs) -> tuple[int, int, int]:
    """Return the least size of the whole part, and the least and the largest size of the fraction."""
    whole, least, most = signs.count(part.whole), signs.count(part.fraction), signs.count(part.fraction, optional=True)
    if whole == most == 0:
        if part.exponent is None:
            whole = 1
        else:
            least = most = 1
    if part.exponent is not None and whole == 0 and signs.optional in part.whole:
        whole = 1
    if whole == least == 0:
        least = 1
    return whole, least, most


def _scale(number: float, size: int) -> tuple[float, int]:
    """Return the number with so many digits before its point, and the exponent that makes up for it."""
    exponent, sign, mantissa = 0, math.copysign(1, number), abs(number)
    if mantissa == 0 or not math.isfinite(mantissa):
        return number, 0
    while mantissa < 10.0 ** (size - 1):
        mantissa, exponent = mantissa * 10, exponent - 1
    while mantissa > 10.0**size:
        mantissa, exponent = mantissa / 10, exponent + 1
    return sign * mantissa, exponent


def _group_digits(text: str, point: int, part: _Part, signs: _Signs) -> list[str]:
    """Return the whole part and the fraction with separators; those of the whole part repeat if regular."""
    cuts = [signs.count(part.whole[at:], optional=True) for at in _separator_places(part.whole, part.whole, signs)]
    factor = functools.reduce(math.gcd, cuts, 0)
    if factor and all(place * factor in cuts for place in range(1, len(cuts) + 1)):
        places = [point - cut for cut in range(factor, point, factor)]
    else:
        places = [point + number - cut for number, cut in enumerate(cuts)]
    for place in places:  # one below 0 counts from the end, as in JavaScript
        text = f"{text[:place]}{signs.comma}{text[place:]}"
    point = text.index(signs.point)
    for at in _separator_places(part.fraction, part.whole, signs):
        place = point + 1 + signs.count(part.fraction[:at], optional=True)
        text = f"{text[:place]}{signs.comma}{text[place:]}"
    return text.split(signs.point, 1)


def _separator_places(text: str, later: str, signs: _Signs) -> list[int]:
    """Return the places of the separators; like 2.0.6, look for all after the first in the whole part."""
    places = itertools.accumulate(
        itertools.repeat(later), lambda at, whole: whole.find(signs.comma, at + 1), initial=text.find(signs.comma)
    )
    return list(itertools.takewhile(lambda at: at >= 0, places))

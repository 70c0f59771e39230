"""Writes and reads whole numbers by a picture: parse_integer_picture("w").format(12) is "twelve".

It follows XPath 3.1, section 4.6, with the ways of version 2.0.6 of the JavaScript library: words go up to trillions,
and NaN is written as NaN in digits and as nothing in letters. Numbers are doubles.
"""

import functools
import itertools
import math
import re
import sys
import unicodedata
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from states_language.jsonata.library import JException
from states_language.jsonata.numbers import NON_FINITE_NAMES, number_text

_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_LARGE = ["thousand", "million", "billion", "trillion"]
_IRREGULAR = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth"}
_IRREGULAR["twelve"] = "twelfth"
_NUMERALS = ["m", "cm", "d", "cd", "c", "xc", "l", "xl", "x", "ix", "v", "iv", "i"]
_ROMAN = tuple(zip((1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1), _NUMERALS, strict=True))
_LETTER_OF = {"m": 1000, "d": 500, "c": 100, "l": 50, "x": 10, "v": 5, "i": 1}
_SUFFIXES = {"1": "st", "2": "nd", "3": "rd"}
_UNITS = f"utf-16-{sys.byteorder[0]}e"
_INTEGER = re.compile(r"\s*([-+]?[0-9]+)")


def _ordinal(word: str) -> str:
    """Return the ordinal of a number's last word."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    return f"{word[:-1]}ieth" if word.endswith("y") else f"{word}th"


_VALUES: dict[str, float] = {
    **{word: number for number, word in enumerate(_SMALL)},
    **{word: 10 * number for number, word in enumerate(_TENS, 2)},
    "hundred": 100,
    **{word: 1000.0**power for power, word in enumerate(_LARGE, 1)},
}
_VALUES |= {_ordinal(word): value for word, value in _VALUES.items()}
WORDS = "(?:" + "|".join([*_VALUES, "and", "[\\-, ]"]) + ")+"
"""The expression of a number in words."""


def parse_int(text: str) -> float:
    """Return the whole number at the beginning of a text, as JavaScript's parseInt does; NaN if there is none."""
    match = _INTEGER.match(text)
    return math.nan if match is None else int(match[1])


def spell_number(value: float, ordinal: bool) -> str:
    """Return a number of at least 0 in words, in lower case."""
    if value <= 19:
        return _ordinal(_SMALL[int(value)]) if ordinal else _SMALL[int(value)]
    if value < 100:
        word, rest = _TENS[int(value) // 10 - 2], value % 10
        return f"{word}-{spell_number(rest, ordinal)}" if rest else _ordinal(word) if ordinal else word
    if value < 1000:
        words, rest = f"{_SMALL[int(value) // 100]} hundred", value % 100
    else:
        power = min(int(math.log10(value) / 3), len(_LARGE))
        unit = 1000.0**power
        # A double near 1e46 is no multiple of its units, so the rest may have any size; a negative rest counts as none.
        count = float(value // unit)
        rest = value - count * unit
        words = f"{spell_number(count, ordinal=False)} {_LARGE[power - 1]}"
    if not rest > 0:
        return words + ("th" if ordinal else "")
    return words + (" and " if rest < 100 else ", ") + spell_number(rest, ordinal)


@dataclass(frozen=True)
class Separator:
    """A sign among the digits: how many digits follow it."""

    digits: int
    sign: str


@dataclass(frozen=True)
class IntegerPicture:
    """A picture that was read. kind: letters, roman, words, digits, or sequence, which nobody offers.

    size, optional: how many digits are required, and how many are not; None for other kinds. repeated: the separator
    that recurs at regular distances, None if there is none.
    """

    text: str
    kind: str
    case: str = "lower"
    ordinal: bool = False
    zero: str = "0"
    size: float | None = None
    optional: int | None = None
    separators: tuple[Separator, ...] = ()
    repeated: Separator | None = None

    def format(self, value: float) -> str:
        """Return the number's text; raises JException D3130 for an unknown picture, RecursionError for NaN in words."""
        if self.kind == "sequence":
            raise JException("D3130", -1, self.text)
        return ("-" if value < 0 else "") + self._format_positive(abs(value))

    def _format_positive(self, value: float) -> str:
        if self.kind == "digits":
            return self._format_digits(value)
        if self.kind == "words":
            if not math.isfinite(value):
                raise RecursionError
            words = spell_number(float(value), self.ordinal)
            return words.title().replace("And", "and") if self.case == "title" else self._apply_case(words)
        if not math.isfinite(value):
            return ""
        return self._apply_case(_to_letters(float(value)) if self.kind == "letters" else _to_roman(int(value)))

    def _apply_case(self, text: str) -> str:
        return text.upper() if self.case == "upper" else text

    def _format_digits(self, value: float) -> str:
        text = number_text(value) if math.isfinite(value) else NON_FINITE_NAMES[str(value)]
        missing = (self.size or 0) - len(text)
        text = "0" * int(missing if missing > 0 else 0) + text
        text = "".join(chr(ord(sign) + ord(self.zero) - 48) for sign in text)
        separators: Sequence[Separator] = self.separators[::-1]
        if self.repeated is not None:
            size, sign = self.repeated.digits, self.repeated.sign
            separators = [Separator(digits, sign) for digits in range((len(text) - 1) // size * size, 0, -size)]
        # From the left; what stands before the number cuts off its first digits, as in 2.0.6.
        for each in separators:
            place = len(text) - each.digits
            text = f"{text[: max(place, 0)]}{each.sign}{text[place:]}"
        if not self.ordinal:
            return text
        return text + ("th" if text[-2:-1] == "1" else _SUFFIXES.get(text[-1:], "th"))

    def read(self, text: str) -> float:
        """Return the number that a text spells, NaN if it spells none; raises JException D3130."""
        if self.kind == "sequence":
            raise JException("D3130", -1, self.text)
        if self.kind == "letters":
            first = 65 if self.case == "upper" else 97
            total = 0.0  # added one by one, as JavaScript does; Python's sum is more exact
            # JavaScript counts units of UTF-16, and so the halves of a surrogate pair.
            for power, unit in enumerate(reversed(array("H", text.encode(_UNITS, "surrogatepass")))):
                total += (unit - first + 1) * 26.0**power
            return total
        if self.kind == "roman":
            return _parse_roman(text if self.case == "upper" else text.upper())
        if self.kind == "words":
            return _parse_words(text.lower())
        digits = text[:-2] if self.ordinal else text
        for sign in "," if self.repeated is not None else [each.sign for each in self.separators]:
            digits = digits.replace(sign, "")
        if self.zero != "0":
            digits = "".join(chr(max(0, ord(sign) - ord(self.zero) + 48)) for sign in digits)
        return parse_int(digits)


def _to_letters(value: float) -> str:
    letters = ""
    while value > 0:
        letters = chr(97 + int(math.fmod(value - 1, 26))) + letters
        value = float((value - 1) / 26 // 1)
    return letters


def _to_roman(value: int) -> str:
    if value >= 10_000_000:
        raise RecursionError  # as in JavaScript, whose stack is no deeper
    numerals = ""
    for size, numeral in _ROMAN:
        count, value = divmod(value, size)
        numerals += numeral * count
    return numerals


def _parse_roman(text: str) -> float:
    total, largest = 0.0, 1.0
    for sign in reversed(text):
        value = _LETTER_OF.get(sign.lower(), math.nan) if sign.isupper() else math.nan
        if value < largest:
            total -= value
        else:
            total, largest = total + value, value
    return total


def _parse_words(text: str) -> float:
    sums = [0.0]
    for word in re.split(r",\s|\sand\s|[\s\\-]", text):
        value = _VALUES.get(word, math.nan)
        if value < 100:
            if sums[-1] >= 1000:
                sums.append(0.0)
            sums[-1] += value
        else:
            sums[-1] *= value
    return sum(sums)


_KINDS = {
    "a": ("letters", "lower"), "A": ("letters", "upper"), "i": ("roman", "lower"), "I": ("roman", "upper"),
    "w": ("words", "lower"), "W": ("words", "upper"), "Ww": ("words", "title"),
}  # fmt: skip


@functools.lru_cache(maxsize=256)
def parse_integer_picture(text: str) -> IntegerPicture:
    """Return the picture of a text; raises JException D3131 if its digits are of several scripts."""
    form, semicolon, modifier = text.rpartition(";")
    form = form if semicolon else text
    ordinal = bool(semicolon) and modifier.startswith("o")
    if form in _KINDS:
        kind, case = _KINDS[form]
        return IntegerPicture(form, kind, case, ordinal)
    separators, zeros, optional = [], [], 0
    for sign in reversed(form):
        if unicodedata.category(sign) == "Nd" and ord(sign) <= 0xFFFF:
            zeros.append(chr(ord(sign) - unicodedata.digit(sign)))
        elif sign == "#":
            optional += 1
        else:
            separators.append(Separator(len(zeros) + optional, sign))
        if len(set(zeros)) > 1:
            raise JException("D3131", -1)
    if not zeros:
        return IntegerPicture(form, "sequence")
    found = tuple(separators)
    return IntegerPicture(
        form, "digits", "lower", ordinal, zeros[0], len(zeros), optional, found, _find_regular_separator(found)
    )


def _find_regular_separator(separators: tuple[Separator, ...]) -> Separator | None:
    """Return the separator that recurs at regular distances (XPath 3.1, 4.6.1)."""
    if len({each.sign for each in separators}) != 1:
        return None
    places = {each.digits for each in separators}
    factor = math.gcd(*places)
    if factor == 0 or not places >= set(itertools.islice(itertools.count(factor, factor), len(separators))):
        return None
    return Separator(factor, separators[0].sign)

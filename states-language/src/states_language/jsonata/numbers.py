"""Implements numbers in JSONata: arithmetic, $string, $number, $round, $power and $formatBase; translates values.

A number is written by ECMAScript's rules, a whole one below 2**63 exactly, as AWS does: number_text(1e21) is "1e+21".
Source: the JSONata documentation, "Numeric functions".
"""

import decimal
import json
import math
import re
import sys
from collections.abc import Callable
from typing import Any

from states_language.jsonata.library import Functions, JException, Utils
from states_language.values import well_formed

NON_FINITE_NAMES = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
"""JavaScript's and AWS's names of the numbers that JSON does not have."""

_LONG = 2**63
_SHORT = 18
"""Fewer digits than these make a number below 2**63."""
_LARGEST = sys.float_info.max
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_BASED = re.compile(r"0(?:[xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)")
# In JSONata's pattern ^ and $ bind more tightly than |, so 0x1z and z0b1 match too, though they are no numbers.
_LOOSELY_BASED = re.compile(r"^0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+$")
_EXACT = decimal.Context(prec=800)


def int_if_whole(value: float) -> float:
    """Return the number, as an int if it has no fraction and fits 64 bits."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _LONG:
        return int(value)
    return value


def calculate(left: float, right: float, sign: str) -> float:
    """Return the result of + - * / or %, which may be Infinity or NaN."""
    a, b = _to_double(left), _to_double(right)
    if sign == "+":
        return int_if_whole(a + b)
    if sign == "-":
        return int_if_whole(a - b)
    if sign == "*":
        return int_if_whole(a * b)
    if b == 0:
        return math.nan if sign == "%" or a == 0 else math.copysign(math.inf, a) * math.copysign(1, b)
    return int_if_whole(math.fmod(a, b) if sign == "%" else a / b)


def _to_double(number: float) -> float:
    return math.copysign(math.inf, number) if abs(number) > _LARGEST else float(number)


def number_text(value: float) -> str:
    """Return a finite number as JSON text: 1e+21, 1e-7, 100000000000000000000; a fraction keeps 15 digits."""
    if isinstance(value, int) and abs(value) < _LONG:
        return str(value)
    exact = float(value)
    shortest = repr(exact if exact.is_integer() else float(f"{exact:.15g}"))
    sign, digits, exponent = decimal.Decimal(shortest).normalize(_EXACT).as_tuple()
    text, minus = "".join(map(str, digits)), "-" if sign else ""
    point = len(text) + int(exponent)
    if len(text) <= point <= 21:
        return minus + text + "0" * (point - len(text))
    if 0 < point <= 21:
        return f"{minus}{text[:point]}.{text[point:]}"
    if -6 < point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
    return f"{minus}{mantissa}e{point - 1:+d}"


def json_text(value: Any, indent: str = "", *, pretty: bool = False, within: bool = False) -> str:
    """Return a value of the library as JSON text, a function as an empty text.

    Raises JException D3001 for Infinity, and D1001 for one `within` another value.
    """
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or value is Utils.NULL_VALUE:
        return "null"
    if isinstance(value, int | float):
        if not math.isfinite(value):
            raise JException("D1001", -1, value) if within else JException("D3001", -1)
        return number_text(value)
    colon = ": " if pretty else ":"
    inner: list[str] = []
    if isinstance(value, dict):
        for key, part in value.items():
            text = json_text(part, indent + "  ", pretty=pretty, within=True)
            inner.append(f"{json.dumps(str(key), ensure_ascii=False)}{colon}{text}")
        return _enclose("{}", inner, indent, pretty)
    if isinstance(value, list):
        for each in Utils.RangeList.__iter__(value) if isinstance(value, Utils.RangeList) else value:
            inner.append(json_text(each, indent + "  ", pretty=pretty, within=True))
        return _enclose("[]", inner, indent, pretty)
    return '""'


def to_text(value: Any, *, pretty: bool = False) -> str:
    """Return a value as $string and & write it: a text unchanged, a function as an empty text."""
    if isinstance(value, str):
        return value
    nameless = Utils.is_function(value) or Functions.is_lambda(value) or Functions.is_regex(value)
    return "" if nameless else json_text(value, pretty=pretty)


def _enclose(brackets: str, parts: list[str], indent: str, pretty: bool) -> str:
    if not pretty or not parts:
        return brackets[0] + ",".join(parts) + brackets[1]
    inner = ",\n".join(f"{indent}  {part}" for part in parts)
    return f"{brackets[0]}\n{inner}\n{indent}{brackets[1]}"


def to_number(value: Any) -> Any:
    """Return the number that a text, a boolean or a number stands for; raises JException D3030."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, bool):
        return int(value)
    if value.isdecimal() and value.isascii() and len(value) < _SHORT:
        return int(value)
    if _BASED.fullmatch(value):
        return int_if_whole(float(int(value, 0)))
    if not _NUMBER.fullmatch(value) and _LOOSELY_BASED.search(value):
        return math.nan
    parsed = float(value) if _NUMBER.fullmatch(value) else math.nan
    if not math.isfinite(parsed):
        raise JException("D3030", -1, value)
    return int(value) if value.lstrip("-").isdecimal() and abs(parsed) < _LONG else int_if_whole(parsed)


def round_half_even(value: Any, digits: Any = None) -> Any:
    """Return the number rounded half to even to so many decimal places; -1 rounds to tens."""
    if not math.isfinite(value):
        return value
    places = int(digits or 0)
    exact = decimal.Decimal(repr(value))
    if exact.adjusted() + places < -1:
        return 0
    if -int(exact.as_tuple().exponent) <= places:
        return value
    step = decimal.Decimal(1).scaleb(-places)
    return int_if_whole(float(exact.quantize(step, decimal.ROUND_HALF_EVEN, _EXACT)))


def make_rounder(rounded: Callable[[float], int]) -> Callable[[Any], Any]:
    """Return $floor or $ceil, which leave Infinity and NaN as they are."""
    return lambda value: rounded(value) if math.isfinite(value) else value


def power(base: Any, exponent: Any) -> Any:
    """Return the power; raises JException D3061 if JSON has no such number."""
    if exponent is None:
        return None
    try:
        result = float(base) ** float(exponent)
    except (ZeroDivisionError, OverflowError):
        result = math.inf
    if isinstance(result, complex) or not math.isfinite(result):
        raise JException("D3061", -1, base, exponent)
    return int_if_whole(result)


def format_base(value: Any, radix: Any = None) -> Any:
    """Return the number as text in a base from 2 to 36; raises JException D3100."""
    base = 10 if radix is None else int(round_half_even(radix))
    if not 2 <= base <= 36:
        raise JException("D3100", -1, base)
    if not math.isfinite(value):
        return NON_FINITE_NAMES[str(value)]
    return Functions.base_repr(int(round_half_even(value)), base).lower()


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

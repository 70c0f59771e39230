"""Implements JSONata's functions of dates and of whole numbers: $toMillis, $fromMillis, $formatInteger, $parseInteger.

    to_millis(now_ms, "1970-01-01T00:00:01Z")  # 1000
    from_millis(1000)                              # "1970-01-01T00:00:01.000Z"
    format_integer(12, "w")                   # "twelve"

The library knows the pictures but raises errors without codes; here they get theirs. Source: the JSONata documentation,
"Date/Time functions" and "Numeric functions".
"""

import math
import re
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import regex
from jsonata import datetimeutils
from jsonata.functions import Functions
from jsonata.jexception import JException

from states_language.jsonata.engine import Jsonata
from states_language.jsonata.evaluation import TOO_LARGE, Exceeded
from states_language.jsonata.patterns import Pattern

_INSTANT = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d))?)?(?:T(\d\d):(\d\d):(\d\d))?(\.\d+)?(?:([+-])(\d\d):?(\d\d)|Z)?", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MARKER = re.compile(r"\[\s*([^\[\]])([^\[\]]*)\]")
_HUGE = re.compile(r"[,-]\s*0*[1-9][0-9]{4,}")
"""A width of five digits or more; the library would pad the component to it."""
_COMPONENTS = frozenset("YMDdFWwXxHhPmsfZzCE")
_NAMED = frozenset("MxFP")

_CODES = {
    "Formatting or parsing": "D3130", "In a decimal": "D3131", "Unknown component": "D3132", "The 'name'": "D3133",
    "The timezone": "D3134", "No matching": "D3135", "The date/time": "D3136",
}  # fmt: skip
"""The beginnings of the library's messages, which have no codes."""

LONGEST_TEXT = 1000
"""Characters of a date or a number that a picture may read."""


class _Expressions:
    """Replaces the module `re` in the library's dates, so that a picture's expression is bounded like any other."""

    IGNORECASE = regex.IGNORECASE
    split, sub = staticmethod(regex.split), staticmethod(regex.sub)

    @staticmethod
    def compile(text: str, flags: int = 0) -> Any:
        """Return the compiled expression."""
        compiled = regex.compile(text, flags)
        return Pattern(compiled) if flags else compiled


class _Datetime(datetime):
    """Replaces `datetime.datetime` in the library's dates, so that today is the execution's."""

    @classmethod
    def utcnow(cls) -> "_Datetime":
        """Return the instant from which a picture without a year, month or day takes it."""
        elapsed: timedelta = _today.now_ms() * _MILLISECOND
        return cls(1970, 1, 1, tzinfo=UTC) + elapsed


class _Dates:
    """Replaces the module `datetime` in the library's dates."""

    date, datetime, timedelta, timezone = date, _Datetime, timedelta, timezone


_today = threading.local()
datetimeutils.re = _Expressions
datetimeutils.datetime = _Dates


def to_millis(now_ms: Callable[[], int], text: Any, picture: Any = None) -> Any:
    """Return the milliseconds since 1970 of a date; raises JException D3110, D3132, D3135 or D3136."""
    if text is None:
        return None
    if picture is not None:
        _bound(text)
        _today.now_ms = now_ms
        return _coded(picture, lambda: Functions.datetime_to_millis(text, picture))
    match = _INSTANT.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        year, month, day, hour, minute, second = (
            int(part or least) for part, least in zip(match.groups(), _LEAST, strict=False)
        )
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise JException("D3110", -1, text) from None
    offset = timedelta(hours=int(match[9] or 0), minutes=int(match[10] or 0)) * (-1 if match[8] == "-" else 1)
    return (moment - offset - _EPOCH) // _MILLISECOND + int(float(match[7] or 0) * 1000)


_LEAST = (0, 1, 1, 0, 0, 0)


def from_millis(millis: Any, picture: Any = None, zone: Any = None) -> Any:
    """Return the text of an instant; raises JException D3132 to D3135 for a picture that is not valid."""
    if millis is None:
        return None
    offset = zone.replace(":", "") if isinstance(zone, str) else zone
    return _coded(picture or "", lambda: Functions.datetime_from_millis(millis, picture, offset))


def format_integer(value: Any, picture: Any) -> Any:
    """Return the text of a whole number in the picture's form; raises JException D3130 or D3131."""
    if value is None:
        return None
    if math.isfinite(value):
        # 1e300 in words takes the library 300 ms.
        Jsonata.CURRENT.jsonata.bounds.spend((math.floor(value).bit_length() // 4) ** 2)
    return _coded(picture, lambda: Functions.format_integer(math.floor(value), picture))


def parse_integer(text: Any, picture: Any) -> Any:
    """Return the whole number that a text spells, NaN where the picture does not match; raises JException D3130."""
    if text is None:
        return None
    _bound(text)
    try:
        return _coded(picture, lambda: Functions.parse_integer(text, picture))
    except JException:
        raise
    except Exception:
        leading = re.match(r"\s*[-+]?[0-9]+", text) if re.match(r"[#0,]", picture) else None
        return math.nan if leading is None else int(leading[0])


def _bound(text: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise Exceeded(TOO_LARGE)


def _coded(picture: str, call: Callable[[], Any]) -> Any:
    if any(_HUGE.search(mark[2]) for mark in _MARKER.finditer(picture)):
        raise Exceeded(TOO_LARGE)
    try:
        return call()
    except (RuntimeError, KeyError) as problem:
        # The library looks up a component's defaults before it checks that the component exists.
        unknown = isinstance(problem, KeyError) and problem.args[0] == _unknown(picture)
        text = "Unknown component" if unknown else str(problem)
        code = next((code for begin, code in _CODES.items() if text.startswith(begin)), None)
        if code is None:
            raise
        raise JException(code, -1, _culprit(code, picture)) from None


def _culprit(code: str, picture: str) -> str:
    """Return the part of a picture that the message of a code names."""
    if code == "D3132":
        return _unknown(picture) or picture
    if code == "D3133":
        named = (mark[1] for mark in _MARKER.finditer(picture) if mark[2][:1] in "Nn" and mark[2])
        return next((sign for sign in named if sign not in _NAMED), picture)
    return picture


def _unknown(picture: str) -> str | None:
    return next((mark[1] for mark in _MARKER.finditer(picture) if mark[1] not in _COMPONENTS), None)

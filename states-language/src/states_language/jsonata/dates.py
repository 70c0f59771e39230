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
from states_language.jsonata.numbers import NAMES
from states_language.jsonata.patterns import Pattern

_INSTANT = re.compile(
    r"(\d{4})(?:-([01]\d)(?:-([0-3]\d))?)?(?:T([0-2]\d):([0-5]\d):([0-5]\d))?(\.\d+)?"
    r"(?:([+-])([0-2]\d):?([0-5]\d)|Z)?",
    re.ASCII,
)
_ALLOWED = re.compile(
    r"\d{4}(-[01]\d)*(-[0-3]\d)*(T[0-2]\d:[0-5]\d:[0-5]\d)*(\.\d+)?([+-][0-2]\d:?[0-5]\d|Z)?", re.ASCII
)
"""What JSONata takes for a timestamp; JavaScript makes NaN of what is none after all."""
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_CYCLE_S = _CYCLE_DAYS * 86_400
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_800
_FARTHEST_S = 8.64e12
"""The bounds of Python's dates, and of JavaScript's, in seconds since 1970."""
_NUMBER = re.compile(r"\s*([-+]?[0-9]+)")
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
    split = staticmethod(regex.split)

    @staticmethod
    def compile(text: str, flags: int = 0) -> Any:
        """Return the compiled expression."""
        compiled = regex.compile(text, flags)
        return Pattern(compiled) if flags else compiled

    @staticmethod
    def sub(signs: Any, _new: str, text: str) -> str:
        """Return a picture's own text with its signs escaped; the library leaves out the backslash."""
        return str(signs.sub(r"\\\g<0>", text))


class _Datetime(datetime):
    """Replaces `datetime.datetime` in the library's dates, so that today is the execution's."""

    later_years = 0

    @classmethod
    def utcnow(cls) -> "_Datetime":
        """Return the instant from which a picture without a year, month or day takes it."""
        elapsed: timedelta = _today.now_ms() * _MILLISECOND
        return cls(1970, 1, 1, tzinfo=UTC) + elapsed

    @classmethod
    def fromtimestamp(cls, seconds: float, zone: Any = None) -> "_Datetime":
        """Return the instant; one outside the years 1 to 9999 is a date of the same calendar with its own year."""
        if not -_FARTHEST_S <= seconds <= _FARTHEST_S:
            raise ValueError(f"{seconds} s is not a date")
        cycles = 0 if _FIRST_S <= seconds < _LAST_S else int(seconds // _CYCLE_S)
        instant = (_Far if cycles else cls)(1970, 1, 1, tzinfo=zone)
        instant += (round(seconds * 1000) - cycles * _CYCLE_S * 1000) * _MILLISECOND
        instant.later_years = cycles * _CYCLE_YEARS
        return instant


class _Far(_Datetime):
    """An instant whose year Python's dates do not have."""

    @property
    def year(self) -> int:
        """Return the year, 0 or less before the first."""
        return super().year + self.later_years


class _Dates:
    """Replaces the module `datetime` in the library's dates."""

    date, datetime, timedelta, timezone = date, _Datetime, timedelta, timezone


def _analysed(picture: str) -> Any:
    """Return the parts of a picture, in which the widest of a month or a day is its width, and no zone is ordinal."""
    form = _analyse(picture)
    for part in form.parts:
        digits = getattr(part, "integerFormat", None)
        if digits is not None and part.component in "MD" and part.width is not None and part.width[1] is not None:
            digits.mandatoryDigits = part.width[1]
        elif digits is not None and part.component in "Zz":
            digits.ordinal = False
    return form


_analyse = datetimeutils.DateTimeUtils._analyse_datetime_picture
datetimeutils.DateTimeUtils._analyse_datetime_picture = staticmethod(_analysed)
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
        return _dated(picture, lambda: Functions.datetime_to_millis(text, picture))
    if not _ALLOWED.fullmatch(text):
        raise JException("D3110", -1, text)
    match = _INSTANT.fullmatch(text)
    if match is None:
        return math.nan
    year, month, day, hour, minute, second = (
        int(part or least) for part, least in zip(match.groups(), _LEAST, strict=False)
    )
    millis = int(((match[7] or ".0")[1:] + "00")[:3])
    zone_h, zone_min = int(match[9] or 0), int(match[10] or 0)
    midnight = hour == 24 and minute == second == millis == 0
    if not (1 <= month <= 12 and 1 <= day <= 31 and (hour < 24 or midnight) and zone_h < 24):
        return math.nan
    # JavaScript takes the 30th of February for the 1st or 2nd of March. Python has no year 0, but 400 years repeat.
    cycles, year = divmod(year, _CYCLE_YEARS)
    days = date(year + _CYCLE_YEARS, month, day=1).toordinal() + (cycles - 1) * _CYCLE_DAYS + day - 1 - _EPOCH_DAY
    minutes = (hour * 60 + minute) - (zone_h * 60 + zone_min) * (-1 if match[8] == "-" else 1)
    return ((days * 1440 + minutes) * 60 + second) * 1000 + millis


_LEAST = (0, 1, 1, 0, 0, 0)
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def from_millis(millis: Any, picture: Any = None, zone: Any = None) -> Any:
    """Return the text of an instant; raises JException D3132 to D3135 for a picture that is not valid."""
    if millis is None:
        return None
    offset = zone
    if isinstance(zone, str) and (number := _NUMBER.match(zone)):
        # 2.0.6 rounds the hours down and leaves the minutes their sign, so -0330 is -04:30.
        offset = str(int(number[1]) // 100 * 100 + int(math.fmod(int(number[1]), 100)))
    return _dated(picture or "", lambda: Functions.datetime_from_millis(millis, picture, offset))


def format_integer(value: Any, picture: Any) -> Any:
    """Return the text of a whole number in the picture's form; raises JException D3130 or D3131."""
    if value is None:
        return None
    if not math.isfinite(value):
        form = picture.partition(";")[0]
        if form.lower() == "w":
            raise RecursionError
        return NAMES[str(value)] if re.search("[0-9#]", form) else ""
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


def _dated(picture: str, call: Callable[[], Any]) -> Any:
    try:
        return _coded(picture, call)
    except ValueError as problem:
        if "#" in picture and str(problem).startswith("invalid literal"):
            raise JException("D3130", -1, "#") from None
        raise


def _coded(picture: str, call: Callable[[], Any]) -> Any:
    if any(_HUGE.search(mark[2]) for mark in _MARKER.finditer(picture)):
        raise Exceeded(TOO_LARGE)
    try:
        return call()
    except IndexError:
        raise JException("D3132", -1, "") from None  # a component without a name
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

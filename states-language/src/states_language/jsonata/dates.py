"""Implements JSONata's functions of dates and of whole numbers: $toMillis, $fromMillis, $formatInteger, $parseInteger.

`date_pictures` and `whole_numbers` read and write the pictures. Source: the JSONata documentation.
"""

import math
import re
from collections.abc import Callable
from typing import Any

from states_language.jsonata.bounds import TOO_LARGE, Exceeded
from states_language.jsonata.calendar_components import day_number
from states_language.jsonata.date_pictures import ISO, format_instant, parse_instant
from states_language.jsonata.library import JException
from states_language.jsonata.numbers import int_if_whole
from states_language.jsonata.whole_numbers import parse_int, parse_integer_picture

_INSTANT = re.compile(
    r"(\d{4})(?:-([01]\d)(?:-([0-3]\d))?)?(?:T([0-2]\d):([0-5]\d):([0-5]\d))?(\.\d+)?"
    r"(?:([+-])([0-2]\d):?([0-5]\d)|Z)?",
    re.ASCII,
)
_ALLOWED = re.compile(
    r"\d{4}(-[01]\d)*(-[0-3]\d)*(T[0-2]\d:[0-5]\d:[0-5]\d)*(\.\d+)?([+-][0-2]\d:?[0-5]\d|Z)?", re.ASCII
)
"""What JSONata takes for a timestamp; JavaScript makes NaN of a match that is no date."""
_MARKER = re.compile(r"\[\s*([^\[\]])([^\[\]]*)\]")
_HUGE = re.compile(r"[,-]\s*0*[1-9][0-9]{4,}")
"""A width of five digits or more; the library would pad the component to this width."""
LONGEST_TEXT = 1000
"""How long a date or a number may be that a picture reads, in characters."""


def to_millis(now_ms: Callable[[], int], text: str, picture: Any = None) -> Any:
    """Return the milliseconds since 1970 of a date; raises JException D3110, D3132, D3135 or D3136."""
    if picture is not None:
        _check_cost(text, picture)
        found = parse_instant(text, picture, now_ms())
        return None if found is None else int_if_whole(found)
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
    # JavaScript takes 30 February for the 1st or 2nd of March.
    minutes = (hour * 60 + minute) - (zone_h * 60 + zone_min) * (-1 if match[8] == "-" else 1)
    days = day_number(year, month - 1) + day - 1
    return ((days * 1440 + minutes) * 60 + second) * 1000 + millis


_LEAST = (0, 1, 1, 0, 0, 0)


def from_millis(millis: Any, picture: Any = None, zone: Any = None) -> Any:
    """Return the text of an instant; raises JException D3130 to D3135 for a picture that is not valid."""
    picture = ISO if picture is None else picture
    _check_cost("", picture)
    offset = 0.0 if zone is None else parse_int(zone)
    # 2.0.6 rounds the hours down and leaves the minutes their sign, so -0330 is -04:30.
    hours, minutes = (offset // 100, math.fmod(offset, 100)) if math.isfinite(offset) else (offset, offset)
    return format_instant(millis, picture, hours, minutes)


def format_integer(value: Any, picture: Any) -> Any:
    """Return the text of a whole number in the picture's form; raises JException D3130 or D3131."""
    return parse_integer_picture(picture).format(math.floor(value) if math.isfinite(value) else value)


def parse_integer(text: Any, picture: Any) -> Any:
    """Return the whole number that a text spells, NaN where it spells none; raises JException D3130 or D3131."""
    _check_cost(text, "")
    return int_if_whole(parse_integer_picture(picture).read(text))


def _check_cost(text: str, picture: str) -> None:
    """Raise Exceeded for a text that takes long to be read, and for a component that is padded beyond use."""
    if len(text) > LONGEST_TEXT or any(_HUGE.search(mark[2]) for mark in _MARKER.finditer(picture)):
        raise Exceeded(TOO_LARGE)

"""Implements JSONata's $replace, $substring, $split, Base64, the functions that code URLs, and those of dates.

$toMillis, $fromMillis, $formatInteger and $parseInteger use the pictures of `date_pictures` and `whole_numbers`.
Source: the JSONata documentation, "String functions".
"""

import base64
import math
import re
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from states_language.jsonata.bounds import TOO_LARGE, Exceeded
from states_language.jsonata.calendar_components import day_number
from states_language.jsonata.date_pictures import ISO, format_instant, parse_instant
from states_language.jsonata.engine import current_bounds
from states_language.jsonata.library import Functions, JException
from states_language.jsonata.numbers import int_if_whole
from states_language.jsonata.whole_numbers import parse_int, parse_integer_picture
from states_language.values import join_surrogates, to_utf16_units

_RESERVED = ";/?:@&=+$,#"
_UNRESERVED = "-_.!~*'()"
_CODED = re.compile(r"(?:%[0-9a-fA-F]{2})+")


def replace(text: Any, pattern: Any, new: Any, limit: Any = None) -> Any:
    """Return the text with each match replaced, at most `limit`; raises JException D3010, D3011 or D3012."""
    if pattern == "":
        raise JException("D3010", -1)
    if limit is not None and limit < 0:
        raise JException("D3011", -1, limit)
    most = -1 if limit is None else int(limit)
    if isinstance(pattern, str):
        if not isinstance(new, str):
            if pattern not in text or most == 0:
                return text
            raise JException("D3012", -1, new)
        current_bounds().check_bytes(text.count(pattern) * len(new))
        return text.replace(pattern, new, most)
    text = to_utf16_units(text)
    pieces, at, size = [], 0, len(text)
    for match in _limit_matches(pattern.finditer(text), most):
        piece = _replacement(match, new)
        size += len(piece)
        current_bounds().check_bytes(size)
        pieces += [text[at : match.start()], piece]
        at = match.end()
    return join_surrogates("".join([*pieces, text[at:]]))


def substring(text: Any, start: Any = None, length: Any = None) -> Any:
    """Return a part of the text; as in JavaScript, a fraction is cut off where it begins and where it ends."""
    if start is None:
        return text if length is None else ""
    start = start if len(text) + start >= 0 else 0
    if length is None:
        return text[int(start) :]
    end = (start if start >= 0 else len(text) + start) + length
    return text[int(start) : int(end)] if length > 0 else ""


def split(text: Any, separator: Any, limit: Any = None) -> Any:
    """Return the parts of the text; an empty separator gives JavaScript's parts, halves of surrogate pairs too."""
    if separator == "" and isinstance(text, str):
        text = to_utf16_units(text)
    # JavaScript's own split rounds the limit down; the loop over matches goes on until it is reached.
    most = limit if limit is None or isinstance(separator, str) or not math.isfinite(limit) else math.ceil(limit)
    return Functions.split(text, separator, most)


def _limit_matches(matches: Iterator[Any], most: int) -> Iterator[Any]:
    """Yield at most so many matches; -1 means all of them."""
    for count, match in enumerate(matches):
        if count == most:
            return
        yield match


def _replacement(match: Any, new: Any) -> str:
    if isinstance(new, str):
        return _expand_replacement(new, match)
    argument = {"match": match.group(), "start": match.start(), "end": match.end(), "groups": list(match.groups())}
    value = Functions.func_apply(new, [argument])
    if not isinstance(value, str):
        raise JException("D3012", -1, value)
    return value


def _expand_replacement(new: str, match: Any) -> str:
    """Return the replacement with $0, $1 … filled in; $$ is a dollar, and so is a $ before any other character.

    A reference has at most as many digits as the number of groups. If there is no such group, its last digit is text:
    with ten groups $12 is group 1 and a 2.
    """
    groups = match.groups()
    most = max(1, len(str(len(groups))))
    place = re.compile(rf"\$(\$|[0-9]{{1,{most}}})?")

    def fill(mark: re.Match[str]) -> str:
        written = mark[1]
        if written is None or written == "$":
            return "$"
        if written[0] == "0":
            return str(match.group()) + written[1:]
        rest = ""
        if len(written) > 1 and int(written) > len(groups):
            written, rest = written[:-1], written[-1]
        return (groups[int(written) - 1] or "" if int(written) <= len(groups) else "") + rest

    return place.sub(fill, new)


def base64_encode(text: Any) -> Any:
    """Return the Base64 of the text; each UTF-16 unit gives its lower byte: JSONata's `binary`."""
    return base64.b64encode(bytes(ord(unit) & 0xFF for unit in to_utf16_units(text))).decode()


def base64_decode(text: Any) -> Any:
    """Return the text whose characters are the bytes of Base64, with or without its padding; raises ValueError."""
    padded = text + "=" * (-len(text) % 4) if "=" not in text else text
    return base64.b64decode(padded, validate=True).decode("latin-1")


def url_coder(name: str) -> Callable[[Any], Any]:
    """Return $encodeUrl, $encodeUrlComponent, $decodeUrl or $decodeUrlComponent; they raise JException D3140."""
    kept = "" if name.endswith("Component") else _RESERVED

    def coder(text: Any) -> Any:
        try:
            return _unquote(text, kept) if name.startswith("decode") else urllib.parse.quote(text, _UNRESERVED + kept)
        except UnicodeError:
            raise JException("D3140", -1, name, text) from None

    return coder


def _unquote(text: str, kept: str) -> str:
    if "%" in _CODED.sub("", text):
        raise UnicodeError
    return _CODED.sub(lambda run: _unquote_run(run[0], kept), text)


def _unquote_run(run: str, kept: str) -> str:
    text = bytes.fromhex(run.replace("%", "")).decode("utf-8")
    return "".join(urllib.parse.quote(sign, "") if sign in kept else sign for sign in text)


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

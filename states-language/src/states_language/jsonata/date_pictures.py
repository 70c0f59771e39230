"""Writes and reads instants by a picture: format_instant(0, "[D1o] [MNn] [Y]", 0, 0) is "1st January 1970".

It follows XPath 3.1, section 9.8, as version 2.0.6 of the JavaScript library does; where that library has a way of its
own, a comment says so. Instants are milliseconds since 1970.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import regex

from states_language.jsonata.calendar_components import FARTHEST_MS, component, instant_of_components
from states_language.jsonata.library import JException
from states_language.jsonata.patterns import Pattern
from states_language.jsonata.whole_numbers import WORDS, IntegerPicture, Separator, parse_int, parse_integer_picture

ISO = "[Y0001]-[M01]-[D01]T[H01]:[m01]:[s01].[f001][Z01:01t]"
"""The picture of an instant for which none is given."""
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NAMES = {"M": _MONTHS, "x": _MONTHS, "F": _DAYS}
_DEFAULTS = {
    **dict.fromkeys("YMDdWwXxHhf", "1"), **dict.fromkeys("FPCE", "n"), **dict.fromkeys("ms", "01"),
    **dict.fromkeys("Zz", "01:01"),
}  # fmt: skip
_INTEGERS = frozenset("YMDdFWwXxHhmsf")


@dataclass(frozen=True)
class Marker:
    """A component in a picture. case: that of a name, None for a number. most: the greatest width, None for any.

    places: the most digits of a written year, and of a year, month or day that is read; None for any number.
    """

    component: str
    case: str | None
    modifier: str | None
    most: float | None
    integer: IntegerPicture | None
    places: float | None


Part = str | Marker


@functools.lru_cache(maxsize=256)
def parse_picture(picture: str) -> tuple[Part, ...]:
    """Return the texts and markers of a picture; raises JException D3131, D3132 or D3135."""
    found: list[Part] = []
    literal, at = "", 0
    while at < len(picture):
        if picture.startswith("[[", at):
            found += [literal.replace("]]", "]"), "["]
            literal, at = "", at + 2
        elif picture[at] == "[":
            end = picture.find("]", at)
            if end < 0:
                raise JException("D3135", -1)
            found += [literal.replace("]]", "]"), _parse_marker("".join(picture[at + 1 : end].split()))]
            literal, at = "", end + 1
        else:
            literal, at = literal + picture[at], at + 1
    return tuple(part for part in [*found, literal.replace("]]", "]")] if part != "")


def _parse_marker(text: str) -> Marker:
    """Return what the brackets hold: a component, how it is presented, and after a comma its width."""
    sign, comma = text[:1], text.rfind(",")
    least, most = _parse_widths(text[comma + 1 :]) if comma >= 0 else (None, None)
    form: str | None = (text[1:comma] if comma > 0 else text[:1]) if comma >= 0 else text[1:]
    modifier = None
    if not form:
        form = _DEFAULTS.get(sign)
    elif len(form) > 1 and form[-1] in "atco":
        form, modifier = form[:-1], form[-1]
    if form is None:
        raise JException("D3132", -1, sign)
    case = None
    if form[0] in "nN":
        case = "lower" if form[0] == "n" else "title" if form[1:2] == "n" else "upper"
    integer, places = None, None
    if sign in ("Z", "z"):
        integer = parse_integer_picture(form)
    elif case is None and sign in _INTEGERS:
        integer = parse_integer_picture(f"{form};{modifier}" if modifier else form)
        integer, places = _apply_width(sign, integer, least, most)
    return Marker(sign, case, modifier, most, integer, places)


def _parse_widths(text: str) -> tuple[float | None, float | None]:
    """Return the least and the most of a width; None for one that is left out or *."""
    least, dash, most = text.partition("-")
    return _parse_width(least), _parse_width(most) if dash else None


def _parse_width(text: str) -> float | None:
    return None if text == "*" else parse_int(text)


def _apply_width(
    sign: str, integer: IntegerPicture, least: float | None, most: float | None
) -> tuple[IntegerPicture, float | None]:
    """Return a number's picture, with as many digits as the width says, and how many digits are read."""
    size, places = integer.size, None
    if size is not None and least is not None and size < least:
        size = least
    if sign in "YMD":
        if most is not None:
            # In 2.0.6 the greatest width of a year, month or day is its least width, too.
            size = places = most
        elif size is not None and size + (integer.optional or 0) >= 2:
            places = size + (integer.optional or 0)
    return replace(integer, size=size), places


def format_instant(millis: float, picture: str, hours: float, minutes: float) -> str:
    """Return the text of an instant in the zone that is so many hours and minutes from UTC; raises D3130 to D3135."""
    found = parse_picture(picture)
    local = millis + (60 * hours + minutes) * 60_000
    local = math.trunc(local) if abs(local) <= FARTHEST_MS else math.nan
    return "".join(part if isinstance(part, str) else _format_component(part, local, hours, minutes) for part in found)


def _format_component(marker: Marker, millis: float, hours: float, minutes: float) -> str:
    sign = marker.component
    if sign in ("Z", "z"):
        return _format_zone(marker, hours, minutes)
    if sign == "P":
        half = "pm" if component(millis, "H") >= 12 else "am"
        return half.upper() if marker.case == "upper" else half
    if sign in ("C", "E"):
        return "ISO"
    if sign not in _INTEGERS:
        return "undefined"
    value = component(millis, sign)
    if marker.case is not None and sign != "f":
        return _format_name(marker, value)
    if marker.integer is None:
        raise ValueError("a fraction has no name")
    if sign == "Y" and marker.places is not None:
        value = math.fmod(value, 10.0 ** min(marker.places, 300))
    return marker.integer.format(value if math.isnan(value) else int(value))


def _format_name(marker: Marker, value: float) -> str:
    if marker.component not in _NAMES:
        raise JException("D3133", -1, marker.component)
    if math.isnan(value):
        if marker.case != "title" or marker.most is not None:
            raise ValueError("no instant has no name")
        return "undefined"
    name = _NAMES[marker.component][int(value) - 1]
    name = {"upper": name.upper(), "lower": name.lower()}.get(marker.case or "", name)
    return name[: int(marker.most)] if marker.most is not None and len(name) > marker.most else name


def _format_zone(marker: Marker, hours: float, minutes: float) -> str:
    """Return the zone; XPath 3.1, 9.8.4.6."""
    integer, offset = marker.integer, hours * 100 + minutes
    assert integer is not None
    if offset == 0 and marker.modifier == "t" and _zone_size(integer):
        return "Z"
    if integer.repeated is None and _zone_size(integer) <= 2:
        text = integer.format(hours)
        if minutes:
            text += ":" + parse_integer_picture("00").format(minutes)
    else:
        text = integer.format(offset)
    return ("GMT" if marker.component == "z" else "") + ("+" if offset >= 0 else "") + text


def _zone_size(integer: IntegerPicture) -> int:
    if integer.repeated is None and integer.size not in (1, 2, 3, 4):
        raise JException("D3134", -1)
    return int(integer.size or 0)


# ---- reading ----


@dataclass(frozen=True)
class _ComponentReader:
    """How a part of a text is found and read; `read` is None for a literal."""

    expression: str
    component: str
    read: Callable[[str], float | None] | None


def parse_instant(text: str, picture: str, now_ms: float) -> float | None:
    """Return the instant of a text: NaN if it is no date, None if the picture does not match or has no component.

    Components greater than the picture's are today's. Raises JException D3130 to D3136.
    """
    readers = [_component_reader(part) for part in parse_picture(picture)]
    expression = "".join(f"({reader.expression})" for reader in readers)
    match = Pattern(regex.compile(rf"\A{expression}\Z", regex.IGNORECASE)).search(text)
    if match is None:
        return None
    read = [(reader, match.group(number)) for number, reader in enumerate(readers, 1)]
    values = {reader.component: reader.read(part) for reader, part in read if reader.read is not None}
    return instant_of_components(values, now_ms) if values else None


def _component_reader(part: Part) -> _ComponentReader:
    if isinstance(part, str):
        return _ComponentReader(regex.escape(part), "", None)
    if part.component in ("Z", "z"):
        return _zone_reader(part)
    if part.integer is not None:
        return _ComponentReader(_number_expression(part.integer, part.places), part.component, part.integer.read)
    if part.component == "P":
        names = {"am": 0, "AM": 0, "pm": 1, "PM": 1}
    elif part.component in _NAMES:
        most = int(part.most) if part.most and not math.isnan(part.most) else None
        names = {name[:most]: number for number, name in enumerate(_NAMES[part.component], 1)}
    else:
        raise JException("D3133", -1, part.component)
    return _ComponentReader("[a-zA-Z]+", part.component, names.get)


def _number_expression(integer: IntegerPicture, places: float | None) -> str:
    if integer.kind == "sequence":
        raise JException("D3130", -1, integer.text)
    if integer.kind == "words":
        return WORDS
    if integer.kind != "digits":
        return "[a-z]+" if integer.kind == "letters" else "[mdclxvi]+"
    suffix = "(?:th|st|nd|rd)" if integer.ordinal else ""
    if places is None or not places > 0:
        return f"[0-9]+{suffix}"
    least, most = int(places) - (integer.optional or 0), int(places)
    # JavaScript takes a count that is not valid as plain text.
    count = f"{{{least},{most}}}" if integer.optional else f"{{{most}}}"
    return f"[0-9]{count if least >= 0 else regex.escape(count)}{suffix}"


def _zone_reader(marker: Marker) -> _ComponentReader:
    assert marker.integer is not None
    between: Separator | None = marker.integer.repeated
    before = "GMT" if marker.component == "z" else ""

    def read(text: str) -> float:
        text = text[len(before) :]
        if between is not None:
            hours, _, minutes = text.partition(between.sign)
        elif len(text) <= 3:
            hours, minutes = text, "0"
        else:
            hours, minutes = text[:3], text[3:]
        return parse_int(hours) * 60 + parse_int(minutes)

    after = "" if between is None else f"{regex.escape(between.sign)}[0-9]+"
    return _ComponentReader(f"{before}[-+][0-9]+{after}", marker.component, read)

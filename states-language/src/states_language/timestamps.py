"""Reads and writes timestamps as texts; an instant is a number of milliseconds since 1970.

The language's profile is RFC 3339 with a capital T and Z. At run time AWS accepts Java's ISO_OFFSET_DATE_TIME, which
may leave out the seconds.
"""

import functools
import re
from datetime import UTC, datetime, timedelta, timezone
from email.utils import formatdate

_FORM = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:(Z)|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant_ns(text: object) -> int | None:
    """Return the instant in nanoseconds since 1970-01-01T00:00:00Z; None for text without a date, time and offset."""
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, _, sign, hours, minutes = match.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        zone = timezone(-offset if sign == "-" else offset)
        moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), tzinfo=zone)
    except ValueError:
        return None
    return (moment - _EPOCH) // timedelta(seconds=1) * 10**9 + int((fraction or "0").ljust(9, "0"))


def instant_ms(text: object) -> int | None:
    """Return the instant in whole milliseconds since 1970-01-01T00:00:00Z, rounded up; None for other text."""
    at_ns = instant_ns(text)
    return None if at_ns is None else -(-at_ns // 10**6)


def is_rfc3339(text: object) -> bool:
    """Return whether a definition may hold this timestamp: an instant whose seconds are written."""
    return instant_ns(text) is not None and isinstance(text, str) and text[16] == ":"


def format_timestamp(at_ms: int) -> str:
    """Return an instant as the Context Object shows it: 2026-01-01T00:00:00.000Z."""
    day, of_day = divmod(at_ms, 86_400_000)
    minutes, of_minute = divmod(of_day, 60_000)
    return f"{_date(day)}T{minutes // 60:02}:{minutes % 60:02}:{of_minute // 1000:02}.{of_minute % 1000:03}Z"


@functools.lru_cache(maxsize=64)
def _date(day: int) -> str:
    """Return the date so many days after 1970-01-01."""
    return (_EPOCH + timedelta(days=day)).date().isoformat()


def http_date(at_ms: int) -> str:
    """Return an instant as an HTTP header shows it: Thu, 01 Jan 2026 00:00:00 GMT."""
    return formatdate(at_ms / 1000, usegmt=True)

"""Reads an instant that a person or a program writes: an instant, a date, or how long ago."""

import email.utils
import re
from datetime import UTC, date, datetime, timedelta

_AGO = re.compile(r"([0-9]{1,6})([smhd])")
_UNIT = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
Instant = str | date | timedelta
# Now, as a time ago.
NOW = "0s"


def instant(written: Instant) -> str:
    """The instant in the API's form; a text without an offset is in UTC, a timedelta says how long ago.

    Raises ValueError that says which forms are allowed.
    """
    try:
        at = written if isinstance(written, datetime | timedelta) else _read(str(written))
        at = datetime.now(UTC) - at if isinstance(at, timedelta) else at
        at = at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{str(written)!r} is not an instant: write 2026-11-21T06:25:19Z, 2026-11-21, or how long ago, such as 15m "
            "or 2h"
        ) from None
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_ago(written: Instant | None) -> bool:
    """Whether it says how long ago."""
    return isinstance(written, timedelta) or (isinstance(written, str) and _AGO.fullmatch(written) is not None)


def http_date(text: str) -> datetime:
    """The instant of a header's date (RFC 9110, 5.6.7); raises ValueError."""
    try:
        at = email.utils.parsedate_to_datetime(text)
    except OverflowError as problem:
        raise ValueError(str(problem)) from None
    return at.replace(tzinfo=at.tzinfo or UTC)


def _read(text: str) -> datetime | timedelta:
    if (ago := _AGO.fullmatch(text)) is not None:
        return timedelta(**{_UNIT[ago[2]]: int(ago[1])})
    return datetime.fromisoformat(text)

"""Reads an instant that a person or a program writes: an instant, a date, or how long ago."""

import re
from datetime import UTC, datetime, timedelta

_AGO = re.compile(r"([0-9]{1,6})([smhd])")
_UNIT = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
Instant = str | datetime | timedelta


def instant(written: Instant) -> str:
    """The instant in the API's form; a text without an offset is in UTC, a timedelta says how long ago.

    Raises ValueError that says which forms are allowed.
    """
    if isinstance(written, str):
        at = _read(written)
    else:
        at = written if isinstance(written, datetime) else datetime.now(UTC) - written
    at = at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _read(text: str) -> datetime:
    try:
        if (ago := _AGO.fullmatch(text)) is not None:
            return datetime.now(UTC) - timedelta(**{_UNIT[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not an instant: write 2026-11-21T06:25:19Z, 2026-11-21, or how long ago, such as 15m or 2h"
        ) from None

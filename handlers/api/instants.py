"""Spells instants as the HTTP API does: ISO 8601 in UTC with milliseconds.

Invariant: two instants compare as their texts do.
"""

from datetime import UTC, datetime


def at(instant_ms: int | None) -> str | None:
    """The instant as a text; None for None, and for one that no calendar has, as a damaged record may say."""
    if instant_ms is None:
        return None
    try:
        text = datetime.fromtimestamp(instant_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None
    return text.replace("+00:00", "Z")

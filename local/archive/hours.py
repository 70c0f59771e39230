"""Names the hours of an archive, and says which of them are over. Pure; instants are milliseconds since 1970."""

from datetime import UTC, datetime

from streamkeeper.bulk import HOUR_MS, folder_of, instant_ms, written

__all__ = ["HOUR_MS", "hour_of", "instant_ms", "over_until", "partition", "streams", "unit_end", "written"]
DAY_MS = 24 * HOUR_MS
# A function that has received an event stores it while it lives, 15 minutes at most; a minute more is for clocks.
SETTLED_MS = 16 * 60_000


def hour_of(instant_ms: int) -> int:
    """When the hour of an instant began."""
    return instant_ms - instant_ms % HOUR_MS


def over_until(now_ms: int) -> int:
    """Until when nothing more will be stored: the end of the last hour that is over for good."""
    return hour_of(now_ms - SETTLED_MS)


def unit_end(from_ms: int, until_ms: int, *, by_day: bool) -> int:
    """Where what is read at once ends: an hour, or the rest of the day where each reading reads all events."""
    end_ms = from_ms - from_ms % DAY_MS + DAY_MS if by_day else from_ms + HOUR_MS
    return min(end_ms, until_ms)


def partition(stream_id: str, hour_ms: int) -> str:
    """The folder of an hour, in the way of Hive; a character of the id that no folder can have is percent-encoded."""
    at = datetime.fromtimestamp(hour_ms / 1000, UTC)
    return f"{streams(stream_id)}/day={at:%Y-%m-%d}/hour={at:%H}"


streams = folder_of

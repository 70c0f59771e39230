"""Names the hours of an archive, and decides which are over. Pure; instants are milliseconds since 1970."""

from datetime import UTC, datetime

from streamkeeper.bulk import HOUR_MS, folder_of, instant_ms, written

__all__ = ["HOUR_MS", "hour_of", "instant_ms", "over_until", "partition", "unit_end", "written"]
DAY_MS = 24 * HOUR_MS
# A function stores what it has received within its life of at most 15 minutes; one more minute is for clocks.
SETTLED_MS = 16 * 60_000


def hour_of(instant_ms: int) -> int:
    """The beginning of the hour of an instant."""
    return instant_ms - instant_ms % HOUR_MS


def over_until(now_ms: int) -> int:
    """The end of the last hour for which nothing more will be stored."""
    return hour_of(now_ms - SETTLED_MS)


def unit_end(from_ms: int, until_ms: int, *, by_day: bool) -> int:
    """The end of what is read at once: an hour, or the rest of the day if each run reads all events."""
    end_ms = from_ms - from_ms % DAY_MS + DAY_MS if by_day else from_ms + HOUR_MS
    return min(end_ms, until_ms)


def partition(stream_id: str, hour_ms: int) -> str:
    """The folder of an hour, as Hive names it; characters of the id that no folder can have are percent-encoded."""
    at = datetime.fromtimestamp(hour_ms / 1000, UTC)
    return f"{folder_of(stream_id)}/day={at:%Y-%m-%d}/hour={at:%H}"

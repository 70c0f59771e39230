"""Decides what to ask for next of a stream that is followed, and which of an answer's events are new. Pure.

An event may be written some seconds after it came, so that it stands before one that was read already (docs/store.md).
So what came lately is read again from time to time. Invariants: an event is new once; where one can go on after an
interruption never goes back; of a log, and of events by key, nothing is read twice.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

# How much later than it came an event may be written, and how often what came lately is read again.
LATE_MS, AGAIN_MS = 15_000, 10_000


class Following:
    """Where a follower of one stream stands; `after` is the position behind which it begins, "" for the beginning."""

    def __init__(self, after: str = "") -> None:
        self._start = self._next = self.place = after
        self._by_arrival = False
        self._recent: set[str] = set()
        self._again_ms = 0

    def after(self, now_ms: int) -> str:
        """The position behind which to ask; `now_ms` is of any clock that does not go back."""
        if self._by_arrival and self._next == self.place and now_ms >= self._again_ms:
            self._again_ms = now_ms + AGAIN_MS
            self._next = max(self._start, _earlier(self.place))
        return self._next

    def take(self, page: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The events of the answer that are new; `place` is behind all that were ever taken."""
        events: list[dict[str, Any]] = page["events"]
        fresh = [event for event in events if event["position"] not in self._recent]
        last = page["next"] or (events[-1]["position"] if events else "")
        if events and "order" not in page:
            self._by_arrival = _is_instant(events[-1])
        self.place = self.later(self.place, last or self.place)
        self._next = page["next"] or self.place
        if self._by_arrival:
            oldest = _earlier(self.place)
            self._recent = {one for one in self._recent if one >= oldest} | {one["position"] for one in fresh}
        return fresh

    def later(self, place: str, position: str) -> str:
        """The later of a place and the position that was read after it: where nothing is read again, always that."""
        # The positions of events by key do not sort as text.
        return max(place, position) if self._by_arrival else position

    def resume(self, position: str) -> str:
        """Behind which position another follower begins that must miss nothing, once all to `position` were taken."""
        return max(self._start, _earlier(position)) if self._by_arrival and position else position

    def is_behind(self, page: Mapping[str, Any]) -> bool:
        """Whether more is there already, so that the next question need not wait."""
        return page["next"] is not None


def _earlier(position: str) -> str:
    """The position before which nothing is written any more, by the time of the newest."""
    received_ms = int(position[:15]) - LATE_MS - AGAIN_MS
    return f"{max(0, received_ms):015d}/{0:012d}/{0:012d}"


def _is_instant(event: Mapping[str, Any]) -> bool:
    """Whether its position begins with when it came; that of an event in a log begins with a segment's number."""
    received = datetime.fromisoformat(event["received_at"])
    return int(event["position"][:15]) == round(received.timestamp() * 1000)

"""Holds back events of a stream's log until they fill an append or have waited long enough.

    0.0 s  two events arrive       they wait until 1.0 s
    0.4 s  a third                 it waits with them
    1.0 s  one write of three

They are written earlier if they fill a segment, and at once when the connection leaves. Invariant: no event is held
back for longer than `flush_ms`.
"""

from __future__ import annotations

from collections.abc import Iterable

from handlers.framing.events import StreamEvent
from handlers.segments.codec import WAITING_BYTES, event_bytes


class WaitingEvents:
    def __init__(self, flush_ms: int) -> None:
        self._flush_ms = flush_ms
        self._events: list[StreamEvent] = []
        self._bytes = 0
        self.first = 0
        self.due_ms: int | None = None  # None while nothing waits

    def add(self, now_ms: int, first: int, events: Iterable[StreamEvent]) -> bool:
        """Adds events, the first of which has the number `first`; returns whether others waited before."""
        had_some = self.due_ms is not None
        if not had_some:
            self.first, self.due_ms = first, now_ms + self._flush_ms
        before = len(self._events)
        self._events += events
        self._bytes += sum(map(event_bytes, self._events[before:]))
        return had_some

    def is_due(self, now_ms: int) -> bool:
        """Whether the waiting events should be written now."""
        return self.due_ms is not None and (now_ms >= self.due_ms or self._bytes >= WAITING_BYTES)

    def take(self) -> tuple[StreamEvent, ...]:
        """Returns the waiting events, in order, and keeps none."""
        events, self._events = tuple(self._events), []
        self._bytes, self.due_ms = 0, None
        return events

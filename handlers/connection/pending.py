"""Keeps the writes of a connection that are not answered yet, the cursors after them, and when their events arrived.

    0.0 s  a write of the events 8 and 9      the cursor 7 may be saved
    0.1 s  a heartbeat that names 10          still 7: 10 counts once the write before it is answered
    0.2 s  the write is answered              10 may be saved

Invariant: a cursor is saved once, and only when every write before it is answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from handlers.connection.epochs import RestartDetector
from handlers.connection.inputs import Written
from handlers.connection.spending import Account
from handlers.framing.events import StreamEvent


class Pending:
    """The unanswered writes of one connection, oldest first; `account` counts for its budget, if it has one."""

    def __init__(self, account: Account | None = None) -> None:
        self._account = account
        self.restart_detector: RestartDetector | None = None  # None once it shows nothing
        self._writes: deque[str | None] = deque()  # the last cursor of each, None if it has none
        self._arrived: deque[int] = deque()  # when the first event of each had arrived
        self._reached: str | None = None
        self.events = 0  # of all writes, answered or not
        self.writes = 0
        self.saved: str | None = None
        self.sent_cursor: str | None = None

    def begin(self, cursor: str | None, *, is_asked: bool) -> None:
        """Records the saved cursor, and whether the upstream is asked to resume after it."""
        self.saved = self._reached = self.sent_cursor = cursor
        self.restart_detector = RestartDetector(cursor) if is_asked and cursor is not None else None

    def record_sent(self, events: Sequence[StreamEvent], arrived_ms: int, *, joins: bool = False) -> None:
        """Records that events which arrived then are on their way: in a write of their own, or in the newest one."""
        self.events += len(events)
        if self.restart_detector is not None:
            self.restart_detector.record_sent(events, joins=joins)
        # Usually the last event has a cursor; this runs for each chunk.
        cursor = events[-1].cursor if events else None
        if cursor is None:
            cursor = next((event.cursor for event in reversed(events) if event.cursor is not None), None)
        if not joins:
            self.writes += 1
            self._writes.append(cursor)
            self._arrived.append(arrived_ms)
        elif cursor is not None:
            self.record_skipped(cursor)
        if self._account is not None:
            self._account.record_sent(events, joins=joins)

    def record_stored(self, written: Written, *, drops: bool = False) -> int:
        """Records the answer to the oldest write; returns when its first event had arrived."""
        if self.restart_detector is not None:
            self.restart_detector.record_stored(written, drops=drops)
            self.restart_detector = None if self.restart_detector.is_clear else self.restart_detector
        cursor = self._writes.popleft()
        self._reached = self._reached if cursor is None else cursor
        came_ms = self._arrived.popleft()
        if self._account is not None:
            count = written.stored + written.duplicates + written.dead_lettered
            self._account.record_stored(came_ms, written.stored, count)
        return came_ms

    def record_skipped(self, cursor: str) -> None:
        """Records the cursor of something that is not stored: it counts once everything before it is stored."""
        if self._writes:
            self._writes[-1] = cursor
        else:
            self._reached = cursor

    def replace_cursors(self, cursor: str) -> None:
        """Replaces all cursors of this connection by `cursor`: the upstream accepts none of them any more."""
        self._reached = cursor
        self._writes = deque(None for _ in self._writes)

    @property
    def last_cursor(self) -> str | None:
        """The cursor after everything that was read, whether it may be saved yet or not."""
        return next((cursor for cursor in reversed(self._writes) if cursor is not None), self._reached)

    @property
    def arrivals(self) -> tuple[int, ...]:
        """When the events of each unanswered write had arrived."""
        return tuple(self._arrived)

    @property
    def answered_writes(self) -> int:
        """How many writes are answered: the first of `writes`."""
        return self.writes - len(self._writes)

    @property
    def is_stored(self) -> bool:
        """Whether every write is answered."""
        return not self._writes

    @property
    def is_unmoved(self) -> bool:
        """Whether no other cursor was reached than the one that was sent, and every write is answered."""
        return not self._writes and self._reached == self.sent_cursor

    @property
    def has_first_cursor(self) -> bool:
        """Whether a first cursor waits to be saved: a kill now would leave nothing to resume from."""
        return self.saved is None and self._reached is not None

    def take_cursor(self) -> str | None:
        """Returns the cursor to save now; None if it is saved already."""
        if self._reached == self.saved:
            return None
        self.saved = self._reached
        return self.saved

"""Decides which cursor may be saved: that of the last event that is stored and that no unstored event precedes.

Events go to the store in writes, which are answered in order. A cursor of a frame that is no event counts when all that
came before it is stored. It knows no store, no event and no time. Invariant: the cursor that `take` returns was reached
when no write before it was unanswered, and it is returned once.
"""

from __future__ import annotations

from collections import deque


class Pending:
    """The writes of one connection that are not answered yet, and the cursors behind them."""

    def __init__(self) -> None:
        self._writes: deque[str | None] = deque()  # the last cursor of each, None where it has none
        self._reached: str | None = None
        self._saved: str | None = None
        self.asked_from: str | None = None

    def begins(self, cursor: str | None) -> None:
        """Records the saved cursor: the upstream is asked to go on behind it."""
        self._saved = self._reached = self.asked_from = cursor

    def sent(self, cursor: str | None) -> None:
        """Records that a write is on its way, `cursor` the last in it."""
        self._writes.append(cursor)

    def stored(self) -> None:
        """Records that the oldest write is answered."""
        cursor = self._writes.popleft()
        self._reached = self._reached if cursor is None else cursor

    def skipped(self, cursor: str) -> None:
        """Records the cursor of what is not stored: it counts once all that came before it is."""
        if self._writes:
            self._writes[-1] = cursor
        else:
            self._reached = cursor

    @property
    def last(self) -> str | None:
        """The cursor behind all that was read, whether it may be saved yet or not."""
        return next((cursor for cursor in reversed(self._writes) if cursor is not None), self._reached)

    def expired(self, cursor: str) -> None:
        """Records that the upstream knows no cursor of this connection any more: `cursor` is saved in their place."""
        self._reached = cursor
        self._writes = deque(None for _ in self._writes)

    @property
    def is_stored(self) -> bool:
        """Whether every write is answered."""
        return not self._writes

    @property
    def is_unmoved(self) -> bool:
        """Whether no cursor was reached but the one that was asked for, and no write is unanswered."""
        return not self._writes and self._reached == self.asked_from

    @property
    def is_first(self) -> bool:
        """Whether there is a cursor to be saved and none ever was: a kill has nothing to resume from."""
        return self._saved is None and self._reached is not None

    def take(self) -> str | None:
        """Returns the cursor to be saved now; None where it is saved already."""
        if self._reached == self._saved:
            return None
        self._saved = self._reached
        return self._saved

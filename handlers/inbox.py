"""Decides when the reader of an upstream must wait: a queue bounded by bytes between its thread and the main one.

While it is full the reader reads nothing, so TCP holds the upstream back. Knows nothing of what it carries.
Invariant: it never holds more than `limit_bytes`, but for a single larger item; what is put is taken in order.
"""

import threading
import time
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """One thread puts, one takes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._items: deque[tuple[T, int]] = deque()
        self._held_bytes = 0
        self._closed = False
        self._blocked_s = 0.0
        self._changed = threading.Condition()

    @property
    def blocked_ms(self) -> int:
        """How long the reader has waited for room in all."""
        return round(self._blocked_s * 1000)

    def put(self, item: T, size_bytes: int = 0) -> bool:
        """Whether the item was taken in; waits for room, and is False once the inbox is closed."""
        with self._changed:
            if self._is_full(size_bytes):
                since = time.monotonic()
                self._changed.wait_for(lambda: self._closed or not self._is_full(size_bytes))
                self._blocked_s += time.monotonic() - since
            if self._closed:
                return False
            self._items.append((item, size_bytes))
            self._held_bytes += size_bytes
            self._changed.notify_all()
            return True

    def get(self, wait_s: float) -> T | None:
        """The oldest item, or None where none came within `wait_s`, or none can come any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closed, max(0.0, wait_s))
            if not self._items:
                return None
            item, size_bytes = self._items.popleft()
            self._held_bytes -= size_bytes
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """Takes nothing in any more and lets a waiting reader go; what is queued can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _is_full(self, size_bytes: int) -> bool:
        return self._held_bytes > 0 and self._held_bytes + size_bytes > self._limit_bytes

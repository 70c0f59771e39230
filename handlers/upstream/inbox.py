"""A queue between the thread that reads an upstream and the main one, bounded by bytes: while it is full, reading
stops, and TCP slows the upstream down.

The queue remembers since when each item waits: once it is full, the next bytes may have waited on the wire since then.
Invariants: it never holds more than `limit_bytes`, except a single larger item; items are taken in order; no item that
waits is older than `unread_age_s` says.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from handlers.upstream.standstill import elapsed_s

T = TypeVar("T")


class Inbox(Generic[T]):
    """The queue; one thread puts, another takes. The first calls `on_arrival` after each item that was accepted."""

    def __init__(self, limit_bytes: int, on_arrival: Callable[[], None] | None = None) -> None:
        self._limit_bytes = limit_bytes
        self._on_arrival = on_arrival
        self._items: deque[tuple[T, int, float]] = deque()
        self._held_bytes = 0
        self._closed = False
        self._blocked_s = 0.0
        self._full_since: float | None = None  # until everything that waited then is taken
        self._put_since: float | None = None  # since when an item waits to be accepted
        self._refused_since: float | None = None  # since when the first refused item waits
        self._rests = False  # reading pauses, so that more comes together
        self._rest_since: float | None = None  # since when what is read next may have come
        self._taken_since: float | None = None
        self._changed = threading.Condition()

    @property
    def blocked_ms(self) -> int:
        """How long the reader has waited for the queue in all."""
        return round(self._blocked_s * 1000)

    @property
    def taken_age_s(self) -> float:
        """How long ago the oldest of the last taken items had come; 0 if none was taken.

        After the last item of a closed inbox: how long ago the first refused item came.
        """
        return _ago(self._taken_since)

    @property
    def unread_age_s(self) -> float | None:
        """How long ago the oldest waiting item had come; None if none waits."""
        with self._changed:
            rest_since = self._rest_since if self._rests else None
            held = (self._put_since, self._refused_since, rest_since, self._items[0][2] if self._items else None)
            waits = [since for since in held if since is not None]
            return _ago(min(waits)) if waits else None

    def put(self, item: T, size_bytes: int = 0, came: float | None = None) -> bool:
        """Returns whether the item was accepted; waits while the queue is full, and returns False once it is closed.

        `came` is the earliest instant at which the item may have come, if not now.
        """
        with self._changed:
            since = now = elapsed_s()
            held, self._rest_since = (came, self._full_since, self._rest_since), None
            for instant in held:
                if instant is not None and instant < since:
                    since = instant
            if self._is_full(size_bytes):
                self._full_since = self._put_since = since
                self._changed.wait_for(lambda: self._closed or not self._is_full(size_bytes))
                self._put_since = None
                self._blocked_s += elapsed_s() - now
            if self._closed:
                self._refused_since = since if self._refused_since is None else self._refused_since
                return False
            self._items.append((item, size_bytes, since))
            self._held_bytes += size_bytes
            self._changed.notify_all()
        if self._on_arrival is not None:
            self._on_arrival()
        return True

    def take(self, wait_s: float, most_bytes: int = 0) -> list[T]:
        """Returns the oldest item; none if none came within `wait_s`, or none can come any more.

        The following items come with it, up to `most_bytes` in all, but an item without a size comes alone.
        """
        with self._changed:
            # Not wait_for: that reads the clock even if there is nothing to wait for.
            if not self._items and not self._closed:
                self._changed.wait_for(lambda: self._items or self._closed, max(0.0, wait_s))
            if not self._items:
                self._taken_since, self._refused_since = self._refused_since or self._put_since, None
                return []
            item, taken_bytes, self._taken_since = self._items.popleft()
            taken = [item]
            while taken_bytes and self._items and 0 < self._items[0][1] <= most_bytes - taken_bytes:
                item, size_bytes, _ = self._items.popleft()
                taken.append(item)
                taken_bytes += size_bytes
            self._held_bytes -= taken_bytes
            if not self._items and self._put_since is None:
                self._full_since = None
            self._changed.notify_all()
            return taken

    def pause(self, for_s: float) -> None:
        """Returns after `for_s`, or when the inbox is closed; the next item may have come since the call."""
        with self._changed:
            self._rests, self._rest_since = True, elapsed_s()
            self._changed.wait_for(lambda: self._closed, for_s)
            self._rests = False
            if self._closed and self._refused_since is None:
                self._refused_since = self._rest_since

    def record_wait(self) -> None:
        """Records that the reader had to wait for the next item: it has come now, whatever rest there was before."""
        self._rest_since = None

    def close(self, waits: float | None = None) -> None:
        """Accepts nothing more and wakes a waiting reader; what is queued can still be taken.

        `waits` is since when something may wait at the socket, which is not read any more; None if nothing does.
        """
        with self._changed:
            self._closed = True
            if waits is not None and self._refused_since is None:
                self._refused_since = waits
            self._changed.notify_all()

    def _is_full(self, size_bytes: int) -> bool:
        return self._held_bytes > 0 and self._held_bytes + size_bytes > self._limit_bytes


def _ago(instant: float | None) -> float:
    return 0.0 if instant is None else elapsed_s() - instant

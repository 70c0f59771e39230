"""One opening of an upstream in virtual time: what has come that a group's function has not taken.

As `handlers/upstream/reader.py` has it, without a thread. Invariant: a reader that is closed brings what had come
before, and then `Closed`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from handlers.connection.inputs import Arrival, Closed

CLOSED_HERE = Closed("closed_here")


class Reader:
    """`heard` is called when something has come, `close` with the link once it is left; who opens it sets `link`."""

    def __init__(self, now_ms: Callable[[], int], heard: Callable[[], None], close: Callable[[Any], None]) -> None:
        self._now_ms = now_ms
        self._heard = heard
        self._close = close
        self._inbox: deque[tuple[Arrival, int]] = deque()
        self._is_closed = False
        self.link: Any = None
        self.blocked_ms = 0
        self.taken_s = 0.0

    @property
    def unread_s(self) -> float | None:
        """How long ago the oldest had come that still waits; None where none does."""
        return (self._now_ms() - self._inbox[0][1]) / 1000 if self._inbox else None

    def takes(self, arrival: Arrival) -> None:
        """Lets something arrive."""
        if not self._is_closed:
            self._inbox.append((arrival, self._now_ms()))
            self._heard()

    def get(self, wait_s: float) -> Arrival | None:  # noqa: ARG002  # it never waits
        """What arrived next, or None."""
        if not self._inbox:
            return CLOSED_HERE if self._is_closed else None
        arrival, at_ms = self._inbox.popleft()
        self.taken_s = (self._now_ms() - at_ms) / 1000
        return arrival

    def close(self, join_s: float) -> None:  # noqa: ARG002  # there is no thread to wait for
        """Closes it; what came before can still be taken."""
        self._is_closed = True
        if self.link is not None:
            self._close(self.link)

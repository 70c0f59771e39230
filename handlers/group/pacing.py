"""Decides when a stream of a group may begin to open: few openings are young at a time, and a slow one delays no other.

    at_once 2, young_ms 1000:   a, b at 0 s    c when a is answered, at 0.2 s    d at 1 s, although b hangs

Times are integer milliseconds that the caller passes, and never go back. Invariant: at most `at_once` openings are
young, and while streams wait, another begins whenever an opening is done or no longer young.
"""

from __future__ import annotations


class Pacing:
    """The openings of one function."""

    def __init__(self, at_once: int, young_ms: int) -> None:
        self._at_once = at_once
        self._young_ms = young_ms
        self._since: dict[str, int] = {}

    def may_begin(self, now_ms: int) -> bool:
        """Returns whether another opening may begin now."""
        self._drop_old(now_ms)
        return len(self._since) < self._at_once

    def record_begin(self, stream: str, now_ms: int) -> None:
        """Records that the stream begins to open."""
        self._since[stream] = now_ms

    def record_done(self, stream: str) -> None:
        """Records that the stream was answered, or has failed."""
        self._since.pop(stream, None)

    def due_ms(self, now_ms: int) -> int | None:
        """Returns when the next opening may begin if none is done before; None if one may begin now."""
        if self.may_begin(now_ms):
            return None
        return min(self._since.values()) + self._young_ms

    def _drop_old(self, now_ms: int) -> None:
        for stream in [one for one, since_ms in self._since.items() if now_ms - since_ms >= self._young_ms]:
            del self._since[stream]

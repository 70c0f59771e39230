"""Decides until when a connection is known good: until then it has everything that the upstream had sent.

A quiet stream is connected too. But what was read and is not stored, or has arrived and is not read, is lost if the
function dies. After a break it is unknown what the upstream sent after the last byte. And half a frame is a missing
event unless its end comes.

    1.0 s  two events arrive        known good until 1.0 s while they are on their way to the store
    1.4 s  they are stored          known good until 1.4 s
    5.0 s  nothing has arrived      known good until 5.0 s
    5.1 s  the connection breaks    known good until 1.0 s, when it was last heard

    6.0 s  an event arrives, whole
    9.0 s  half an event arrives    known good until 6.0 s, whenever and however it ends, until the other half is there

Invariant: no connection is known good after the arrival of what is not stored.
"""

from __future__ import annotations

# After these ends it is unknown what the upstream sent after the last byte.
BROKEN = frozenset({"stalled", "reset", "truncated", "tls", "protocol"})


class Liveness:
    """When one connection last heard something, and until when it is known good."""

    def __init__(self) -> None:
        self.heard_ms = 0  # when the upstream last sent something; 0 before its answer
        # Set by the manager for each input: when it arrived, and when the oldest arrival that still waits came.
        self.arrived_ms = 0
        self.unread_ms: int | None = None
        # When the upstream was last heard before the unfinished frame began; None if no frame is unfinished.
        self._whole_until_ms: int | None = None
        self._read_until_ms: int | None = None  # when reading ended; earlier if the connection broke
        self._forgotten_from_ms: int | None = None  # from when on the upstream has forgotten what it should have sent

    def heard(self) -> int:
        """Records that the current input came from the upstream; returns when the one before it came."""
        before_ms, self.heard_ms = self.heard_ms, self.arrived_ms
        return before_ms

    def framed(self, before_ms: int, *, ended_some: bool, is_inside: bool) -> None:
        """Records whether the bytes ended frames, and end inside one; the bytes before them came at `before_ms`."""
        if not is_inside:
            self._whole_until_ms = None
        elif ended_some or self._whole_until_ms is None:
            self._whole_until_ms = before_ms

    def forgotten(self, from_ms: int) -> None:
        """Records that the upstream has forgotten what it should have sent from `from_ms` on."""
        self._forgotten_from_ms = from_ms

    def closes(self, ended_by: str, opened_ms: int) -> None:
        """Records that reading has ended; a second call records that the upstream closed too, perhaps earlier."""
        until_ms = self.heard_ms if ended_by in BROKEN else self.arrived_ms
        # Arrivals are handled later, the first answer too: a close that came with that answer is no earlier than it.
        until_ms = max(until_ms, opened_ms)
        self._read_until_ms = until_ms if self._read_until_ms is None else min(self._read_until_ms, until_ms)

    def closed_ms(self, opened_ms: int | None) -> int | None:
        """Returns until when it was good; None while it reads. Bytes that had arrived may still end a frame."""
        if self._read_until_ms is None or opened_ms is None:
            return None
        ends = (self._read_until_ms, self._forgotten_from_ms, self._whole_until_ms)
        return max(opened_ms, min(ms for ms in ends if ms is not None))

    def seen_ms(self, now_ms: int, before_ms: int, unstored: tuple[int, ...]) -> int:
        """Returns until when an open connection is known good; so far it was known good until `before_ms`.

        `unstored` has the arrivals of the events that are on their way to the store.
        """
        waiting = [ms for ms in (*unstored, self.unread_ms, self._whole_until_ms) if ms is not None]
        return max(before_ms, min([now_ms, *waiting]))

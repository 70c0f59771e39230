"""Decides until when a connection is known to be good: when all that the upstream had sent was heard, and is stored.

A quiet stream is connected all the same: what is seen is the connection, not its bytes. But what was read and is not
stored, or has arrived and is not read, dies with the function. Of a connection that broke nobody knows what came after
the last byte: the peer may have been gone since. And half a frame is an event that is missing unless its end comes: it
happened after whatever was heard before its first byte, however late that came.

    1.0 s  two events arrive        known good until 1.0 s while they are on their way to the store
    1.4 s  they are stored          known good until 1.4 s
    5.0 s  nothing has arrived      known good until 5.0 s
    5.1 s  the connection breaks    known good until 1.0 s, when it was last heard

    6.0 s  an event arrives, whole
    9.0 s  half an event arrives    known good until 6.0 s, whenever and however it ends, until the other half is there

It knows no clock: times are integer milliseconds that the caller passes. Invariant: no connection is known good after
the arrival of something that is not stored.
"""

from __future__ import annotations

from collections import deque

BROKEN = frozenset({"stalled", "reset", "truncated", "tls", "protocol"})


class Liveness:
    """Of one connection: when it heard what, and since when what of it is not stored."""

    def __init__(self) -> None:
        self._heard_ms = 0
        self._arrived_ms = 0
        self._unread_ms: int | None = None
        self._unstored: deque[int] = deque()  # when the events of each unanswered write had arrived
        # When it was heard last before the frame began that has not ended; None where none has.
        self.whole_until_ms: int | None = None

    def begins_input(self, now_ms: int, arrived_ms: int | None, unread_ms: int | None) -> None:
        """Records when the input of now had come, where it had to wait, and since when the oldest arrival waits."""
        self._arrived_ms = now_ms if arrived_ms is None else min(arrived_ms, now_ms)
        self._unread_ms = unread_ms

    def heard(self) -> int:
        """Records that the input of now is something that the upstream sent; returns when it sent something before."""
        before_ms, self._heard_ms = self._heard_ms, self._arrived_ms
        return before_ms

    @property
    def heard_ms(self) -> int:
        """When the upstream last sent something; 0 before its answer."""
        return self._heard_ms

    def framed(self, before_ms: int, *, ended_some: bool, is_inside: bool) -> None:
        """Records whether what was heard ended frames, and whether it ends inside one; before, it heard `before_ms`."""
        if not is_inside:
            self.whole_until_ms = None
        elif ended_some or self.whole_until_ms is None:
            self.whole_until_ms = before_ms

    def sent(self) -> None:
        """Records that events of the input of now are on their way to the store."""
        self._unstored.append(self._arrived_ms)

    def stored(self) -> None:
        """Records that the oldest of them are stored."""
        self._unstored.popleft()

    def until_ms(self, ended_by: str, opened_ms: int) -> int:
        """Returns until when a connection that is closed now heard all that the upstream sent."""
        until_ms = self._heard_ms if ended_by in BROKEN else self._arrived_ms
        # What arrives is handled later, the answer that opened it too: a close that came with it is not before it.
        return max(until_ms, opened_ms)

    def seen_ms(self, now_ms: int, before_ms: int) -> int:
        """Returns until when an open connection is known good; it was until `before_ms`."""
        unstored = [ms for ms in (*self._unstored, self._unread_ms, self.whole_until_ms) if ms is not None]
        return max(before_ms, min([now_ms, *unstored]))

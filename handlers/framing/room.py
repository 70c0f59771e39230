"""Shares what the decoders of one function may hold among its streams: a frame may be as long as there is room for.

A decoder holds what has come of a frame until that ends. For a stream alone `max_frame_bytes` bounds it. Where a
function keeps many streams, each is sure of an equal part of one half, however much the others hold, and may take of
the other half as much again as it leaves: so one whose frames never end leaves room for others, and they for others.

    total 16 MB, 100 streams     each is sure of 80 KB; the first may hold 4 MB, a second beside it 2 MB, a third 1 MB

What goes beyond is a frame that is too long: it is skipped, or it ends the stream, as the profile says. Pure.
Invariants: together the streams never hold more than `total_bytes`; while their number stays the same, none is offered
less than its sure part, whatever the others do.
"""

from __future__ import annotations

from collections.abc import Callable


class SharedRoom:
    """The room of `total_bytes` for as many streams as `count` says now."""

    def __init__(self, total_bytes: int, count: Callable[[], int]) -> None:
        self._total_bytes = total_bytes
        self._count = count
        self._held: dict[str, int] = {}

    @property
    def held_bytes(self) -> int:
        """Returns how much all of them hold."""
        return sum(self._held.values())

    @property
    def sure_bytes(self) -> int:
        """Returns how much each stream may hold whatever the others do."""
        return self._total_bytes // 2 // max(1, self._count(), len(self._held))

    def most_bytes(self, stream: str) -> int:
        """Returns how much the stream may hold now; never less than it does."""
        sure_bytes, own_bytes = self.sure_bytes, self._held.get(stream, 0)
        others = [held_bytes for one, held_bytes in self._held.items() if one != stream]
        rest_bytes = self._total_bytes - sure_bytes * max(1, self._count(), len(self._held))
        rest_bytes -= sum(max(0, held_bytes - sure_bytes) for held_bytes in others)
        most_bytes = min(sure_bytes + max(0, rest_bytes) // 2, self._total_bytes - sum(others))
        return max(own_bytes, most_bytes)

    def holds(self, stream: str, held_bytes: int) -> None:
        """Records how much the stream holds from now on."""
        if held_bytes:
            self._held[stream] = held_bytes
        else:
            self._held.pop(stream, None)


class Room:
    """The part of one stream."""

    def __init__(self, shared: SharedRoom, stream: str) -> None:
        self._shared = shared
        self._stream = stream

    @property
    def sure_bytes(self) -> int:
        """Returns how much may be held whatever the others do."""
        return self._shared.sure_bytes

    def most_bytes(self, held_bytes: int) -> int:
        """Returns how much may be held now, by a stream that holds so much."""
        self._shared.holds(self._stream, held_bytes)
        return self._shared.most_bytes(self._stream)

    def holds(self, held_bytes: int) -> None:
        """Records how much is held from now on."""
        self._shared.holds(self._stream, held_bytes)

"""Bounds the memory of decoders, and skips a frame that exceeds it: counts and hashes it, and keeps its beginning.

The beginning goes to the dead-letter queue, and the stream continues after the frame.

A decoder holds a frame until its end has come. For a stream alone, `max_frame_bytes` bounds that. If a function keeps
many streams, one half of the memory is split equally: each stream is sure of its part, however much the others hold. A
stream may also take half of what the others leave free of the other half. So a stream whose frames never end leaves
memory for the others.

    total 16 MB, 100 streams     each is sure of 80 KB; the first may hold 4 MB, a second beside it 2 MB, a third 1 MB

Pure. Invariants: memory does not grow with the frame; the result does not depend on how the bytes are cut into chunks;
together the streams never hold more than `total_bytes`; while their number stays the same, no stream is offered less
than its sure part, whatever the others do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from handlers.values import dataclass

# How many bytes of a frame are kept: in Base64 they fit a message of SQS together with the other fields.
HEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Oversize:
    """What is left of a frame's body: how many bytes it had, their SHA-256 in hexadecimal, and the first 64 KB.

    `is_whole` is False if the connection ended inside the frame: then all of this describes the bytes until there.
    `is_crowded` is whether it was too long because of the buffers of its function's other streams, not by the profile.
    """

    size_bytes: int
    sha256: str
    head: bytes
    is_whole: bool = True
    is_crowded: bool = False

    @property
    def reason(self) -> str:
        """Returns in a phrase why the frame is not stored."""
        until = "" if self.is_whole else " until the connection ended"
        bound = "its function's other streams left room for" if self.is_crowded else "max_frame_bytes"
        return f"longer than {bound}: {self.size_bytes} bytes{until}"


class SkippedFrame:
    """One frame that is being skipped; bytes of `trailing` at its end do not belong to it.

    More than 64 KB of them in a row do belong to it, because they could not be kept until its end. With a smaller
    budget, at most `head_bytes` of its beginning and of the trailing bytes are kept.
    """

    def __init__(self, trailing: bytes = b"", head_bytes: int = HEAD_BYTES, *, is_crowded: bool = False) -> None:
        self._head_bytes = head_bytes
        self._is_crowded = is_crowded
        self._trailing = trailing
        self._sha256 = hashlib.sha256()
        self._head = bytearray()
        self._size_bytes = 0
        self._held = bytearray()
        self._runs_on = False  # more of `trailing` than could be held
        # All bytes that came, including those of `trailing`.
        self.seen_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Returns how many bytes of the frame are kept."""
        return len(self._head) + len(self._held)

    def add(self, piece: bytes | bytearray) -> None:
        """Takes the next bytes of the frame."""
        self.seen_bytes += len(piece)
        kept = piece.rstrip(self._trailing) if self._trailing else piece
        if not kept and self._runs_on:
            self._take(piece)
            return
        if kept:
            self._runs_on = False
            self._take(self._held)
            self._held.clear()
            self._take(kept)
        self._held += piece[len(kept) :]
        if len(self._held) > self._head_bytes:
            self._runs_on = True
            self._take(self._held)
            self._held.clear()

    def result(self, *, is_whole: bool) -> Oversize:
        """Returns what is left of the frame."""
        return Oversize(self._size_bytes, self._sha256.hexdigest(), bytes(self._head), is_whole, self._is_crowded)

    def _take(self, piece: bytes | bytearray) -> None:
        self._sha256.update(piece)
        self._size_bytes += len(piece)
        if len(self._head) < self._head_bytes:
            self._head += piece[: self._head_bytes - len(self._head)]


class BufferBudget:
    """The budget of `total_bytes` for the current number of streams, which `count` returns."""

    def __init__(self, total_bytes: int, count: Callable[[], int]) -> None:
        self._total_bytes = total_bytes
        self._count = count
        self._held: dict[str, int] = {}

    @property
    def held_bytes(self) -> int:
        """Returns how many bytes all streams hold."""
        return sum(self._held.values())

    @property
    def assured_bytes(self) -> int:
        """Returns how many bytes each stream may hold, whatever the others do."""
        return self._total_bytes // 2 // max(1, self._count(), len(self._held))

    def most_bytes(self, stream: str) -> int:
        """Returns how many bytes the stream may hold now; never less than it holds."""
        sure_bytes, own_bytes = self.assured_bytes, self._held.get(stream, 0)
        others = [held_bytes for one, held_bytes in self._held.items() if one != stream]
        rest_bytes = self._total_bytes - sure_bytes * max(1, self._count(), len(self._held))
        rest_bytes -= sum(max(0, held_bytes - sure_bytes) for held_bytes in others)
        most_bytes = min(sure_bytes + max(0, rest_bytes) // 2, self._total_bytes - sum(others))
        return max(own_bytes, most_bytes)

    def set_held(self, stream: str, held_bytes: int) -> None:
        """Records how many bytes the stream holds from now on."""
        if held_bytes:
            self._held[stream] = held_bytes
        else:
            self._held.pop(stream, None)

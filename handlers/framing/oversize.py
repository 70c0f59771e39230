"""Skips a frame that is longer than a profile takes: counts and hashes it, and keeps its beginning.

What is left of it goes to the dead-letter queue, and the stream goes on behind it. Invariants: memory does not grow
with the frame; what is left is the same however the bytes are cut into chunks.
"""

import hashlib
from dataclasses import dataclass

# How much of a frame is kept. In Base64 it fits a message of SQS with room for the rest.
HEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Oversize:
    """What is left of a frame's body: how many bytes it had, their SHA-256 in hexadecimal, and the first 64 KB.

    `is_whole` is False where the frame had not ended when the connection did: then it is of the bytes until there.
    `is_crowded` is whether the other streams of its function left no room for what the profile would have taken.
    """

    size_bytes: int
    sha256: str
    head: bytes
    is_whole: bool = True
    is_crowded: bool = False

    @property
    def reason(self) -> str:
        """Returns why it is not stored, as a phrase."""
        until = "" if self.is_whole else " until the connection ended"
        bound = "there was room for beside its function's other streams" if self.is_crowded else "max_frame_bytes"
        return f"longer than {bound}: {self.size_bytes} bytes{until}"


class Skipping:
    """One frame that is being skipped; bytes of `trailing` at its end do not belong to it.

    More than 64 KB of them in a row belong to it all the same, for nobody could keep them until it has ended. Where
    there is less room its beginning and those have `head_bytes` each at most.
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
        # All bytes that came, those of `trailing` among them.
        self.seen_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Returns how much of the frame is kept."""
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
        """What is left of the frame."""
        return Oversize(self._size_bytes, self._sha256.hexdigest(), bytes(self._head), is_whole, self._is_crowded)

    def _take(self, piece: bytes | bytearray) -> None:
        self._sha256.update(piece)
        self._size_bytes += len(piece)
        if len(self._head) < self._head_bytes:
            self._head += piece[: self._head_bytes - len(self._head)]

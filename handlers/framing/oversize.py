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
    """

    size_bytes: int
    sha256: str
    head: bytes
    is_whole: bool = True


class Skipping:
    """One frame that is being skipped; bytes of `trailing` at its end do not belong to it.

    More than 64 KB of them in a row belong to it all the same, for nobody could keep them until it has ended.
    """

    def __init__(self, trailing: bytes = b"") -> None:
        self._trailing = trailing
        self._sha256 = hashlib.sha256()
        self._head = bytearray()
        self._size_bytes = 0
        self._held = bytearray()
        self._runs_on = False  # more of `trailing` than could be held
        # All bytes that came, those of `trailing` among them.
        self.seen_bytes = 0

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
        if len(self._held) > HEAD_BYTES:
            self._runs_on = True
            self._take(self._held)
            self._held.clear()

    def result(self, *, is_whole: bool) -> Oversize:
        """What is left of the frame."""
        return Oversize(self._size_bytes, self._sha256.hexdigest(), bytes(self._head), is_whole)

    def _take(self, piece: bytes | bytearray) -> None:
        self._sha256.update(piece)
        self._size_bytes += len(piece)
        if len(self._head) < HEAD_BYTES:
            self._head += piece[: HEAD_BYTES - len(self._head)]

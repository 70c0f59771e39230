"""Helpers for the tests of framings: they feed a wire in pieces and record everything that a decoder returns."""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from handlers.framing.decoders import Framing, make_decoder
from handlers.framing.frames import Frame, FramingError, as_frames
from handlers.framing.oversize import Oversize

MAX = 1024


class Decoded(NamedTuple):
    """Everything that a decoder returns for a wire; `failed` is the reason of its error, "" if there was none.

    `unfinished` is what came of a frame that is still skipped at the end, `is_inside` whether the wire ends inside
    another frame.
    """

    frames: list[Frame]
    failed: str
    dropped_bytes: int
    last_event_id: str | None
    reconnection_ms: int | None
    unfinished: Frame | None
    is_inside: bool

    @property
    def data(self) -> list[str | bytes]:
        """Return the data of the frames; none may be too long."""
        return [frame.data for frame in self.frames if not isinstance(frame.data, Oversize)]


def decode_all(
    framing: Framing, chunks: Iterable[bytes], *, most: int = MAX, comments: bool = False, skips: bool = False
) -> Decoded:
    """Feed all chunks to a new decoder, also past an error."""
    made = make_decoder(framing, most, comments=comments, skips=skips)
    frames: list[Frame] = []
    failed = ""
    for chunk in chunks:
        try:
            frames += as_frames(made.feed(chunk))
        except FramingError as error:
            frames += as_frames(error.frames)
            failed = error.reason
        # A control frame of a socket has 127 bytes at most, and is kept until it is whole.
        assert skips or made.held_bytes <= most + 128
    unfinished, is_inside = made.unfinished_oversize(), made.is_inside_frame
    return Decoded(frames, failed, made.close(), made.last_event_id, made.reconnection_ms, unfinished, is_inside)


def one_by_one(wire: bytes) -> list[bytes]:
    """Return the wire with one byte a chunk."""
    return [wire[n : n + 1] for n in range(len(wire))]


def splits(wire: bytes) -> Iterable[tuple[bytes, bytes, bytes]]:
    """Yield the wire cut in three at every pair of places."""
    for a, b in itertools.combinations_with_replacement(range(len(wire) + 1), 2):
        yield wire[:a], wire[a:b], wire[b:]


def cut(wire: bytes, places: Iterable[int]) -> list[bytes]:
    """Return the wire cut at some places; places beyond its end do not count."""
    edges = sorted({0, len(wire), *(place for place in places if place < len(wire))})
    return [wire[a:b] for a, b in itertools.pairwise(edges)]

"""Decides where one frame of the wire ends and the next begins; holds what all framings share, and `ndjson`.

Knows neither profiles nor events nor time. Invariant: the frames, the error and the bytes of the tail are the same
however the bytes are cut into chunks, and no more than one unfinished frame is ever kept.
"""

from dataclasses import dataclass
from typing import Protocol

# The byte order mark in UTF-8. One at the start of a stream is no content: it would make the first line differ from
# the same line read in the middle of another connection.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Frame:
    """One delimited unit of the wire.

    `id` and `name` are those the frame itself carried; `last_id` is the last event ID after it, its own or an earlier
    one ("" where the upstream reset it, None where there never was one).
    """

    data: str | bytes
    id: str | None = None
    name: str | None = None
    last_id: str | None = None


class FrameTooLong(Exception):
    """A frame is longer than the profile's `max_frame_bytes`; `frames` are those that were complete before it."""

    def __init__(self, max_frame_bytes: int, frames: list[Frame]) -> None:
        super().__init__(f"a frame is longer than max_frame_bytes ({max_frame_bytes})")
        self.frames = frames


class Decoder(Protocol):
    """Turns chunks into frames; made anew for each connection."""

    @property
    def last_event_id(self) -> str | None:
        """The last event ID so far, also of a block that held no event; None where there never was one."""

    @property
    def reconnection_ms(self) -> int | None:
        """The reconnection time that the upstream asked for last, in milliseconds; None where it never did."""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes, in order; raises FrameTooLong, and then again at every later call."""

    def close(self) -> int:
        """How many bytes of an unterminated frame are dropped, its line ends counted as one byte each."""


class Head:
    """Takes one byte order mark off the start of a stream, wherever it is cut."""

    def __init__(self) -> None:
        self._held = b""
        self._done = False

    def strip(self, data: bytes) -> bytes:
        """`data` without the mark; fewer than three bytes are held back while they may still become one."""
        if self._done:
            return data
        self._held += data
        if self._held == BYTE_ORDER_MARK[: len(self._held)] and len(self._held) < len(BYTE_ORDER_MARK):
            return b""
        self._done = True
        held, self._held = self._held, b""
        return held.removeprefix(BYTE_ORDER_MARK)

    @property
    def held_bytes(self) -> int:
        """How many bytes are held back, 0 to 2."""
        return len(self._held)


class NdjsonDecoder:
    """JSON lines: LF or CRLF ends a frame; a line with nothing but spaces and tabs is a heartbeat, not a frame."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._head = Head()
        self._line = bytearray()
        self._failed = False

    @property
    def last_event_id(self) -> str | None:
        """None: JSON lines carry no id of the wire's own."""
        return None

    @property
    def reconnection_ms(self) -> int | None:
        """None: JSON lines carry no reconnection time."""
        return None

    def feed(self, data: bytes) -> list[Frame]:
        """The lines that `data` completes; one that is no UTF-8 comes as bytes."""
        frames: list[Frame] = []
        first, *rest = self._head.strip(data).split(b"\n")
        self._line += first
        for piece in rest:
            self._check(frames)
            self._end_of_line(frames)
            self._line += piece
        self._check(frames)
        return frames

    def close(self) -> int:
        """The bytes of a last line that no line end followed: 0 where it would have been a heartbeat."""
        tail = bytes(self._line).strip(b" \t\r")
        self._line.clear()
        return len(tail) + self._head.held_bytes

    def _check(self, frames: list[Frame]) -> None:
        # A CR at the end may be half of a CRLF: it counts only when something other than LF has followed it.
        length = len(self._line) - self._line.endswith(b"\r")
        if self._failed or length > self._max_frame_bytes:
            self._failed = True
            self._line.clear()
            raise FrameTooLong(self._max_frame_bytes, frames)

    def _end_of_line(self, frames: list[Frame]) -> None:
        line = bytes(self._line).removesuffix(b"\r")
        self._line.clear()
        if line.strip(b" \t"):
            frames.append(Frame(text_or_bytes(line)))


def text_or_bytes(data: bytes) -> str | bytes:
    """`data` as text where it is UTF-8, else as it is: bytes are stored as binary, never replaced."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data

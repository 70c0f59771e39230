"""Defines what all framings share: the frame, the decoder's interface, its errors, and the start of a stream.

Each framing has a module of its own, and handlers/framing/decoders.py lists them. Invariant of every decoder except
`raw`: the frames, the error and the number of dropped bytes do not depend on how the bytes are cut into chunks; at most
one unfinished frame is kept, of at most `max_frame_bytes`. A decoder that `skips` returns an `Oversize` as the body of
a longer frame; any other fails there.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import ClassVar, NamedTuple, cast

from handlers.framing.oversize import HEAD_BYTES, Oversize, SkippedFrame

# The byte order mark in UTF-8. At the start of a stream it is not content: it would make the first line differ from the
# same line read in the middle of another connection.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# How many characters of a body are encoded at once.
PIECE = 256 * 1024
# If no line ends within this many characters, lines count as long.
LONG = 512
# How many bytes of a line show what it is.
LEAST_HEAD_BYTES = 64
# The bytes that may separate JSON texts. RFC 8259, section 2.
BLANK = b" \t\r\n"


class Frame(NamedTuple):
    """One delimited unit of the wire.

    `id` and `name` are those that the frame itself carried; `last_id` is the last event ID after it, its own or an
    earlier one ("" if the upstream reset it, None if there never was one). `is_comment` marks a comment of an event
    stream, which is not an event: only a decoder made with `comments` returns them, in place among the events.
    """

    data: "Body"
    id: str | None = None
    name: str | None = None
    last_id: str | None = None
    is_comment: bool = False


# `new_tuple(Frame, (data, id, name, last_id, is_comment))` is Frame(…) in half the time, for the hot loops.
new_tuple = tuple.__new__
# Only a frame's data: the result of a framing without ids and names.
Body = str | bytes | Oversize
Decoded = Sequence[Frame] | Sequence[Body]
# No id, no name, no last id; it is not a comment.
_NOTHING = (repeat(None), repeat(None), repeat(None), repeat(False))


def as_frames(decoded: Decoded) -> Sequence[Frame]:
    """Returns a decoder's results as frames: each bare body becomes Frame(body), in half the time."""
    if decoded and not isinstance(decoded[0], Frame):
        return list(map(new_tuple, repeat(Frame), zip(decoded, *_NOTHING, strict=False)))
    return cast(Sequence[Frame], decoded)


class FramingError(Exception):
    """The following bytes cannot be framed; `frames` are those that were complete before, `reason` is one word."""

    reason: ClassVar[str] = "bad_frame"

    def __init__(self, message: str, frames: Decoded) -> None:
        super().__init__(message)
        self.frames = frames


class BadFrame(FramingError):
    """The bytes do not follow the profile's framing; the message repeats none of them."""


class FrameTooLong(FramingError):
    """A frame is longer than the profile's `max_frame_bytes`."""

    reason = "frame_too_long"


class Decoder:
    """Turns chunks into frames; each connection has a new one, and each framing a class of its own.

    A frame may be as long as the profile says, or as its function's buffer budget allows if that is less.
    """

    # The last event ID so far, even of a block without an event; None if there never was one.
    last_event_id: str | None = None
    # The last reconnection time that the upstream requested, in milliseconds; None if it never did.
    reconnection_ms: int | None = None
    _skipped: SkippedFrame | None = None
    _free_bytes = -1  # computed from the bound by a decoder; negative if not computed yet
    _own_bytes = -1  # the profile's bound, once another one applies
    _head_bytes = HEAD_BYTES
    _is_crowded = False

    def __init__(self, max_frame_bytes: int, *, comments: bool = False, skips: bool = False) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._comments, self._skips = comments, skips
        self._head = Head()

    @property
    def held_bytes(self) -> int:
        """How many bytes are kept, or will be kept for a frame whose length was announced; within the bound."""
        return 0 if self._skipped is None else self._skipped.held_bytes

    @property
    def is_inside_frame(self) -> bool:
        """Whether a frame, other than a skipped one or a comment, has begun and not ended."""
        return False

    def set_budget(self, budget_bytes: int) -> None:
        """Allows a frame this many bytes from now on, or as many as the profile allows if that is less."""
        if self._own_bytes < 0:
            self._own_bytes = self._max_frame_bytes
        most_bytes = min(self._own_bytes, budget_bytes)
        if self._free_bytes >= 0:
            self._free_bytes += most_bytes - self._max_frame_bytes
        self._max_frame_bytes, self._is_crowded = most_bytes, budget_bytes < self._own_bytes
        self._head_bytes = max(LEAST_HEAD_BYTES, min(HEAD_BYTES, budget_bytes // 2))

    def take_headers(self, headers: Mapping[str, str]) -> None:
        """Takes the headers of the answer, names in lower case, before anything is fed."""

    def feed(self, data: bytes) -> Decoded:
        """Returns the frames that `data` completes, in order; raises FramingError, then and at every later call.

        They are either all frames or all bare bodies, which `as_frames` turns into frames without anything else. A body
        that is not UTF-8 comes as bytes.
        """
        raise NotImplementedError

    def unfinished_oversize(self) -> Frame | None:
        """Returns what has come of a frame that is being skipped; None if none is, or if it has no body yet."""
        return None if self._skipped is None else Frame(self._skipped.result(is_whole=False))

    def close(self) -> int:
        """Returns how many bytes of unfinished frames were dropped, each line end in them counted as one byte."""
        return 0

    @property
    def _skipped_bytes(self) -> int:
        return 0 if self._skipped is None else self._skipped.seen_bytes

    def _begin_skipping(self, trailing: bytes = b"") -> SkippedFrame:
        """Begins to skip a frame that is too long."""
        return SkippedFrame(trailing, self._head_bytes, is_crowded=self._is_crowded)

    def _too_long_error(self, frames: Decoded) -> FrameTooLong:
        bound = "its function's other streams leave room for" if self._is_crowded else "max_frame_bytes"
        return FrameTooLong(f"a frame is longer than {bound} ({self._max_frame_bytes})", frames)


class Head:
    """Removes one byte order mark from the start of a stream, however the bytes are cut.

    A body whose first visible byte is "<", after at most `markup_within` blanks, is refused: no JSON text begins so,
    and it is an error page, whatever its Content-Type says.
    """

    def __init__(self, *, markup_within: int = -1) -> None:
        self._held = b""
        self._done = False
        self._looks = markup_within >= 0
        self._blanks_left = markup_within
        self._is_markup = False
        # Whether all further data passes unchanged, so that `strip` need not be called any more.
        self.is_passed = False

    def strip(self, data: bytes) -> bytes:
        """Returns `data` without the mark; fewer than three bytes are held back while they may become one.

        Raises BadFrame, and then again at every later call.
        """
        if not self._done:
            self._held += data
            if self._held == BYTE_ORDER_MARK[: len(self._held)] and len(self._held) < len(BYTE_ORDER_MARK):
                return b""
            self._done = True
            data, self._held = self._held.removeprefix(BYTE_ORDER_MARK), b""
        if self._looks:
            visible = data.lstrip(BLANK)
            self._blanks_left -= len(data) - len(visible)
            self._looks = not visible and self._blanks_left >= 0
            self._is_markup = self._blanks_left >= 0 and visible.startswith(b"<")
        if self._is_markup:
            raise BadFrame("the body begins with markup: it is a page, not a stream", [])
        self.is_passed = not self._looks
        return data

    @property
    def held_bytes(self) -> int:
        """How many bytes are held back, 0 to 2."""
        return len(self._held)


def utf8_pieces(body: str | bytes) -> Iterator[bytes]:
    """Yields the body's bytes (a text in UTF-8) in pieces: a body of 16 MB does not fit into memory twice."""
    for at in range(0, len(body), PIECE):
        piece = body[at : at + PIECE]
        yield piece.encode() if isinstance(piece, str) else piece


def text_or_bytes(data: bytes | bytearray) -> str | bytes:
    """Returns `data` as text if it is UTF-8, else as it is: such bytes are stored as binary, never replaced."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return bytes(data)

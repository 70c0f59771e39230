"""Decodes JSON lines: a line ends with LF or CRLF; a line of JSON's blanks is a heartbeat and not a frame.

A line is returned as it came, without parsing its JSON. If the first line is the beginning of a JSON text, as of a long
poll that indents its answer, each frame of the connection is a whole text: it ends at the end of the line that closes
its last bracket. The invariant is that of handlers/framing/frames.py.
"""

import json
from collections.abc import Sequence

from handlers.framing.frames import BLANK, LONG, Body, Decoder, Head
from handlers.framing.json_seq import brackets


class NdjsonDecoder(Decoder):
    """JSON lines."""

    def __init__(self, max_frame_bytes: int, *, comments: bool = False, skips: bool = False) -> None:
        super().__init__(max_frame_bytes, comments=comments, skips=skips)
        self._is_blank = False  # whether the skipped line has only had blanks so far
        self._head = Head(markup_within=max_frame_bytes)
        # The unfinished line: bytes as they came; a bytearray from the second piece on.
        self._line: bytes | bytearray = b""
        self._failed = False
        self._has_begun = False  # whether a first line has shown whether a text may have several
        self._joins = False  # whether it may; then _line is the text so far
        self._depth = self._counted = 0  # how many brackets its first _counted bytes leave open

    @property
    def held_bytes(self) -> int:
        return len(self._line) + super().held_bytes

    @property
    def is_inside_frame(self) -> bool:
        return self._skipped is None and bool(self._line) and not self._line.isspace()

    def feed(self, data: bytes) -> Sequence[Body]:
        # In a read of at most `_free_bytes` no line can be too long, so its lines are taken all at once. `_free_bytes`
        # is small enough to prevent that while each byte must be checked: at the start of the stream, after an error,
        # and in a skipped line.
        if len(data) > self._free_bytes:
            return self._one_by_one(data)
        if self._line:
            return self._feed_within_line(data)
        if data.find(b"\n") == len(data) - 1 >= 0:
            # Most reads are one line, while the upstream is slower than we are: nothing needs to be cut.
            try:
                text = data.decode()
            except UnicodeDecodeError:
                return _content_of(data[:-1])
            if "\r" not in text and not text.isspace():
                return [text[:-1]]
        end = data.rfind(b"\n") + 1
        if end < len(data):
            self._hold(data[end:])
        return _lines(data, 0, end) if end else []

    def close(self) -> int:
        # A last line that would have been a heartbeat does not count.
        tail = self._line.strip(b" \t\r")
        self._line = b""
        return len(tail) + (0 if self._is_blank else self._skipped_bytes) + self._head.held_bytes

    def _feed_within_line(self, data: bytes) -> Sequence[Body]:
        """As `feed`, for bytes that begin inside a line."""
        first = data.find(b"\n")
        if first < 0:
            self._hold(data)
            return []
        self._line += data[:first]  # a long line is a bytearray, so it is not copied
        lines = _content_of(self._line)
        self._line = b""
        end = data.rfind(b"\n") + 1
        if first + 1 < end:
            lines += _lines(data, first + 1, end)
        self._hold(data[end:])
        return lines

    def _hold(self, begun: bytes) -> None:
        """Keeps the bytes of an unfinished line."""
        if not self._line:
            self._line = begun
        else:
            if isinstance(self._line, bytes):
                self._line = bytearray(self._line)
            self._line += begun
        self._free_bytes = self._max_frame_bytes - len(self._line)

    def _one_by_one(self, data: bytes) -> Sequence[Body]:
        """As `feed`, for bytes in which a line may be too long, or whose beginning may not be a line."""
        if not self._head.is_passed:
            data = self._head.strip(data)
        lines: list[Body] = []
        first, *rest = data.split(b"\n")
        self._add(first)
        for piece in rest:
            self._check(lines)
            if self._continues():
                self._add(b"\n" + piece)
            else:
                lines += self._end_line()
                self._line = piece
        self._check(lines)
        is_free = self._has_begun and self._skipped is None and not self._joins
        self._free_bytes = self._max_frame_bytes - len(self._line) if is_free else -1
        return lines

    def _add(self, piece: bytes) -> None:
        if self._skipped is None:
            self._hold(piece)
        else:
            self._skip(piece)

    def _continues(self) -> bool:
        """Returns whether the text goes on after the line that has just ended."""
        if self._skipped is not None:
            # The brackets of a text that is too long are not counted, so it lasts as long as the connection.
            self._has_begun = True
            return self._joins
        if not self._has_begun and self._line.strip(BLANK):
            self._has_begun, self._joins = True, _begins_text(self._line)
        if self._joins:
            self._depth += brackets(self._line[self._counted :])[0]
            self._counted = len(self._line) if self._depth > 0 else 0
            self._depth = max(0, self._depth)
        return self._depth > 0

    def _check(self, lines: list[Body]) -> None:
        # A CR at the end may be half of a CRLF: it counts only when something other than LF has followed it.
        length = len(self._line) - self._line.endswith(b"\r")
        if self._failed or length > self._max_frame_bytes:
            line, self._line = self._line, b""
            if self._skips:
                self._skipped, self._is_blank = self._begin_skipping(b"\r"), True
                self._skip(line)
                return
            self._failed = True
            self._free_bytes = -1
            raise self._too_long_error(lines)

    def _skip(self, piece: bytes | bytearray) -> None:
        assert self._skipped is not None
        self._is_blank = self._is_blank and not piece.strip(BLANK)
        self._skipped.add(piece)

    def _end_line(self) -> list[Body]:
        """The content of the line that has just ended."""
        skipped, self._skipped = self._skipped, None
        if skipped is None:
            return _content_of(self._line)
        return [] if self._is_blank else [skipped.result(is_whole=True)]


def _begins_text(line: bytes | bytearray) -> bool:
    """Returns whether a JSON object or list begins on the line and is correct so far, but ends on a later line."""
    text = line.strip(BLANK)
    if not text.startswith((b"{", b"[")) or not text.endswith((b"{", b"[", b",", b"}", b"]")):
        return False
    try:
        json.loads(text)
    except json.JSONDecodeError as problem:
        return problem.pos == len(problem.doc)
    except (UnicodeDecodeError, RecursionError):
        pass
    return False


def _lines(data: bytes, begin: int, end: int) -> Sequence[Body]:
    """The lines of data[begin:end], which ends with a LF."""
    middle = (begin + end) // 2
    # Splitting reads each byte. Searching does not, but takes a call for each line: it is faster for long lines.
    if end - begin > LONG and data.find(b"\n", middle, middle + LONG) < 0:
        bodies: list[Body] = []
        while begin < end:
            stop = data.find(b"\n", begin)
            bodies += _content_of(data[begin:stop])
            begin = stop + 1
        return bodies
    try:
        text = data[begin:end].decode()
    except UnicodeDecodeError:
        return [body for line in data[begin : end - 1].split(b"\n") for body in _content_of(line)]
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    lines.pop()
    # Nearly always every line has content; this checks all at once.
    return lines if all(map(str.strip, lines)) else [line for line in lines if line.strip(" \t\r")]


def _content_of(line: bytes | bytearray) -> list[Body]:
    """Returns the content of a line without its LF; nothing if it is a heartbeat."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return [bytes(line.removesuffix(b"\r"))]
    shown = text.strip(" \t\r")
    if len(shown) == len(text):
        return [text] if text else []
    return [text.removesuffix("\r")] if shown else []

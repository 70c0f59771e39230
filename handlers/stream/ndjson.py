"""Decides where a JSON line ends: LF or CRLF; a line of blanks (JSON's) is a heartbeat, no frame.

Does not parse JSON: a line is handed over as it came. The invariant is that of `frames`.
"""

from handlers.stream.frames import (
    Frame,
    Head,
    Wireless,
    new_frame,
    plain_frames,
    text_or_bytes,
    too_long,
    whole_lines,
)


class NdjsonDecoder(Wireless):
    """JSON lines."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._head = Head(markup_within=max_frame_bytes)
        self._line = bytearray()
        self._failed = False

    @property
    def unfinished_bytes(self) -> int:
        """The bytes of the line that has not ended."""
        return len(self._line) + self._head.held_bytes

    def feed(self, data: bytes) -> list[Frame]:
        """The lines that `data` completes; one that is no UTF-8 comes as bytes."""
        if not self._head.is_passed:
            data = self._head.strip(data)
        if self._failed or len(self._line) + len(data) > self._max_frame_bytes:
            return self._one_by_one(data)
        end = data.rfind(b"\n") + 1
        if not end:
            self._line += data
            return []
        # None of these lines can be too long, so they are taken all at once.
        whole: bytes | bytearray = data
        rest = b""
        if end < len(data):
            whole, rest = data[:end], data[end:]
        if self._line:
            self._line += whole
            whole, self._line = self._line, bytearray(rest)
        elif rest:
            self._line += rest
        try:
            text = whole.decode()
        except UnicodeDecodeError:
            return [frame for line in bytes(whole).split(b"\n") for frame in _frames(line)]
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        if text.find("\n") == len(text) - 1:
            line = text[:-1]
            return [new_frame(Frame, (line, None, None, None, False))] if line.strip(" \t\r") else []
        lines = whole_lines(text)
        # Nearly always every line has something to see, which takes no code of ours to find.
        if not all(map(str.strip, lines)):
            lines = [line for line in lines if line.strip(" \t\r")]
        return plain_frames(lines)

    def close(self) -> int:
        """The bytes of a last line that no line end followed: 0 where it would have been a heartbeat."""
        tail = bytes(self._line).strip(b" \t\r")
        self._line.clear()
        return len(tail) + self._head.held_bytes

    def _one_by_one(self, data: bytes) -> list[Frame]:
        """As `feed`, for bytes among which a line may be too long."""
        frames: list[Frame] = []
        first, *rest = data.split(b"\n")
        self._line += first
        for piece in rest:
            self._check(frames)
            frames += _frames(bytes(self._line))
            self._line[:] = piece
        self._check(frames)
        return frames

    def _check(self, frames: list[Frame]) -> None:
        # A CR at the end may be half of a CRLF: it counts only when something other than LF has followed it.
        length = len(self._line) - self._line.endswith(b"\r")
        if self._failed or length > self._max_frame_bytes:
            self._failed = True
            self._line.clear()
            raise too_long(self._max_frame_bytes, frames)


def _frames(line: bytes) -> list[Frame]:
    """The frame of a line whose LF is taken off; none where it is a heartbeat."""
    line = line.removesuffix(b"\r")
    return [Frame(text_or_bytes(line))] if line.strip(b" \t\r") else []

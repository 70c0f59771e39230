"""Decides what an event stream dispatches: WHATWG HTML, section 9.2.6, complete.

Knows no time, no key and no cursor. Beyond the specification stands one rule, that a block longer than
`max_frame_bytes` is an error. Invariant: the same as in `framing`; a line end is acted upon as soon as it is seen.
"""

from handlers.stream.framing import Frame, FrameTooLong, Head

# A reconnection time is a wish; longer than a day is no different from a day, and a number may have any length.
MAX_RECONNECTION_MS = 86_400_000
_DIGITS = frozenset(b"0123456789")


class SseDecoder:
    """Server-sent events: lines end with LF, CRLF or CR; a blank line dispatches the block before it."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._head = Head()
        self._after_cr = False
        self._line = bytearray()
        self._block_bytes = 0
        self._data = bytearray()
        self._has_data = False
        self._name = ""
        self._own_id: str | None = None
        self._id_buffer: str | None = None
        self._last_event_id: str | None = None
        self._reconnection_ms: int | None = None
        self._failed = False

    @property
    def last_event_id(self) -> str | None:
        """The last event ID string: "" where the upstream reset it, None where there never was one."""
        return self._last_event_id

    @property
    def reconnection_ms(self) -> int | None:
        """The last `retry`, at most a day."""
        return self._reconnection_ms

    def feed(self, data: bytes) -> list[Frame]:
        """The events that `data` dispatches."""
        frames: list[Frame] = []
        data = self._head.strip(data)
        if data and self._after_cr:
            # "a U+000D CARRIAGE RETURN U+000A LINE FEED (CRLF) character pair" is one line end: the CR was acted upon.
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if not data:
            self._check(frames)
            return frames
        # For bytes, splitlines knows exactly the three line ends of the specification.
        lines = data.splitlines()
        tail = b"" if data.endswith((b"\n", b"\r")) else lines.pop()
        for line in lines:
            self._line += line
            self._check(frames)
            whole = bytes(self._line)
            self._line.clear()
            if whole:
                self._field(whole)
            else:
                self._dispatch(frames)
        self._after_cr = data.endswith(b"\r")
        self._line += tail
        self._check(frames)
        return frames

    def close(self) -> int:
        """The bytes of a block that no blank line followed; comments in it do not count.

        "Once the end of the file is reached, any pending data must be discarded."
        """
        dropped = self._block_bytes + len(self._line) + self._head.held_bytes
        self._line.clear()
        self._forget_block()
        return dropped

    def _check(self, frames: list[Frame]) -> None:
        # Each line before this one counts with one byte for its end; a blank line adds nothing.
        if self._failed or (self._line and self._block_bytes + len(self._line) > self._max_frame_bytes):
            self._failed = True
            self._line.clear()
            self._forget_block()
            raise FrameTooLong(self._max_frame_bytes, frames)

    def _field(self, line: bytes) -> None:
        # "If the line starts with a U+003A COLON character (:): Ignore the line."
        if line.startswith(b":"):
            return
        self._block_bytes += len(line) + 1
        # "Collect the characters on the line before the first colon ... If value starts with a U+0020 SPACE character,
        # remove it from value." A line without a colon is a field whose value is the empty string.
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            # "Append the field value to the data buffer, then append a single U+000A LINE FEED (LF) character."
            self._data += value
            self._data += b"\n"
            self._has_data = True
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id":
            # "If the field value does not contain U+0000 NULL, then set the last event ID buffer to the field value."
            if b"\0" not in value:
                self._own_id = self._id_buffer = value.decode("utf-8", "replace")
        elif field == b"retry" and value and _DIGITS.issuperset(value):
            # "If the field value consists of only ASCII digits": no sign, no underscore, no other script's digits.
            digits = value.lstrip(b"0") or b"0"
            wish_ms = int(digits) if len(digits) < 10 else MAX_RECONNECTION_MS
            self._reconnection_ms = min(wish_ms, MAX_RECONNECTION_MS)

    def _dispatch(self, frames: list[Frame]) -> None:
        # "Set the last event ID string of the event source to the value of the last event ID buffer. The buffer does
        # not get reset": it is set also by a block that dispatches nothing.
        self._last_event_id = self._id_buffer
        # "If the data buffer is an empty string, set the data buffer and the event type buffer to the empty string and
        # return." A block with one empty `data` has a buffer of one LF, and is an event.
        if self._has_data:
            # The stream is decoded as UTF-8 with replacement; line by line and as a whole come to the same, since no
            # line end is ever part of a sequence.
            text = bytes(self._data[:-1]).decode("utf-8", "replace")
            frames.append(Frame(text, self._own_id, self._name or None, self._last_event_id))
        self._forget_block()

    def _forget_block(self) -> None:
        self._block_bytes = 0
        self._data.clear()
        self._has_data = False
        self._name = ""
        self._own_id = None

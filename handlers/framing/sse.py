"""Decodes an event stream: WHATWG HTML, section 9.2.6, complete.

Two rules go beyond the specification: a block longer than `max_frame_bytes` is an error or is skipped, and comments may
be requested. A line takes effect as soon as its end is seen. The invariant is that of handlers/framing/frames.py.

The data of a skipped block is hashed, joined by LF as in an event. Its other fields still count, because an id may come
after the data; a field longer than 64 KB is left out, and a comment is cut there.
"""

from handlers.framing.frames import LONG, Decoder, Frame, new_tuple

# The upstream may request any reconnection time, with any number of digits; more than a day counts as a day.
MAX_RECONNECTION_MS = 86_400_000
LONG_LINE_BYTES = 1024 * 1024


class SseDecoder(Decoder):
    """Server-sent events: lines end with LF, CRLF or CR; a blank line dispatches the block before it."""

    def __init__(self, max_frame_bytes: int, *, comments: bool = False, skips: bool = False) -> None:
        super().__init__(max_frame_bytes, comments=comments, skips=skips)
        self._after_cr = False
        self._failed = False
        # The unfinished parts: a line in bytes, and the lines of a block in the specification's buffers.
        self._line = bytearray()
        self._gone_bytes = 0  # how many bytes of the line were not kept
        self._in_data = False  # whether the line is a `data` of a skipped block
        self._has_data = False  # whether the skipped block has any `data`
        self._block_bytes = 0
        self._data: list[str] = []
        self._name = ""
        self._own_id: str | None = None
        self._id_buffer: str | None = None

    @property
    def _begun_bytes(self) -> int:
        return self._block_bytes + len(self._line) + self._gone_bytes + self._head.held_bytes

    @property
    def held_bytes(self) -> int:
        block_bytes = self._block_bytes if self._skipped is None else self._skipped.held_bytes
        return block_bytes + len(self._line) + len(self._id_buffer or "")

    @property
    def is_inside_frame(self) -> bool:
        # A block has begun that may become an event: a `retry` alone does not.
        if self._skipped is not None or self._gone_bytes:
            return False
        is_in_line = bool(self._line) and not self._line.startswith(b":")
        return is_in_line or bool(self._data or self._name) or self._own_id is not None

    def feed(self, data: bytes) -> list[Frame]:
        # In a read of at most `_free_bytes` no block can be too long, and nothing unfinished precedes its first byte:
        # no part of a line, no CR that a LF may follow, no byte order mark. Otherwise `_free_bytes` is too small for
        # any read.
        if len(data) <= self._free_bytes and data[-1:] == b"\n":
            # Most reads are whole lines, while the upstream is slower than we are: nothing needs to be cut or joined.
            text = data.decode("utf-8", "replace")
            if "\r" not in text:
                return self._take_whole_lines(_whole_lines(text), data)
        self._free_bytes = -1
        frames = self._cut(data)
        is_free = not self._after_cr and self._skipped is None and not self._gone_bytes
        if self._head.is_passed and not self._line and is_free:
            self._free_bytes = self._max_frame_bytes - self._block_bytes
        return frames

    def _cut(self, data: bytes) -> list[Frame]:
        """As `feed`, for any bytes."""
        frames: list[Frame] = []
        if not self._head.is_passed:
            data = self._head.strip(data)
        if self._after_cr or data.find(b"\r") >= 0:
            data = self._with_lf_alone(data)
        is_bounded = self._begun_bytes + len(data) <= self._max_frame_bytes
        # Lines taken one by one need less memory: a line this long takes several times its size.
        is_bounded = is_bounded and len(self._line) < LONG_LINE_BYTES
        if not is_bounded or self._failed or self._skipped is not None or self._gone_bytes:
            self._take_lines(data, frames)
            return frames
        # No block can be too long here, so all lines that end in `data` are taken at once.
        end = data.rfind(b"\n") + 1
        if not end:
            self._line += data
            return frames
        whole: bytes | bytearray = data
        rest = b""
        if end < len(data):
            whole, rest = data[:end], data[end:]
        if self._line:
            self._line += whole
            whole, self._line = self._line, bytearray(rest)
        elif rest:
            self._line += rest
        return self._take_whole_lines(_whole_lines(whole.decode("utf-8", "replace")), whole)

    def close(self) -> int:
        # "Once the end of the file is reached, any pending data must be discarded." Comments in it do not count.
        dropped = self._begun_bytes
        self._line.clear()
        self._gone_bytes = 0
        self._forget_block()
        return dropped

    def _with_lf_alone(self, data: bytes) -> bytes:
        """Returns `data` with every line end as LF. A CR at the end counts already: a LF that follows belongs to it."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        self._after_cr = self._after_cr or data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _take_lines(self, data: bytes, frames: list[Frame]) -> None:
        """Processes every line that ends in `data`, and keeps what follows the last one."""
        *ends, tail = data.split(b"\n")
        for piece in ends:
            self._grow(piece, frames)
            self._end_line(frames)
        self._grow(tail, frames)

    def _grow(self, piece: bytes | bytearray, frames: list[Frame]) -> None:
        if self._in_data or self._gone_bytes:
            self._gone_bytes += len(piece)
            if self._in_data and self._skipped is not None:
                self._skipped.add(piece)
            return
        self._line += piece
        if self._skipped is not None:
            self._skip_in_line()
        elif self._failed or (self._line and self._block_bytes + len(self._line) > self._max_frame_bytes):
            self._meet_limit(frames)

    def _end_line(self, frames: list[Frame]) -> None:
        # A line is decoded with replacement, as the specification decodes the whole stream. The result is the same,
        # because a line end is never part of a multi-byte sequence.
        line, length = self._line, len(self._line) + self._gone_bytes
        is_comment = line.startswith(b":")
        if self._skipped is not None and (line == b"data" or line == b"data:"):
            self._begin_data(b"")
        elif not length:
            self._dispatch(frames)
        elif is_comment or not self._gone_bytes:
            text = line.decode("utf-8", "replace")
            self._line.clear()  # a line may have 16 MB, and decoding takes as much again
            self._field(text, frames)
        if length and not is_comment:
            self._block_bytes += length + 1
        self._line.clear()
        self._gone_bytes, self._in_data = 0, False

    def _take_whole_lines(self, lines: list[str], encoded: bytes | bytearray) -> list[Frame]:
        """As `_take_lines`, for lines that are complete and none of which can be too long; `encoded` are their bytes.

        Nearly every line is `data: `, `id: ` or `event: ` and a value; it is processed here as `_field` would. A field
        name by itself has an empty value.
        """
        frames: list[Frame] = []
        data = self._data
        for line in lines:
            if not line:
                self.last_event_id = self._id_buffer
                if data:
                    text = data[0] if len(data) == 1 else "\n".join(data)
                    frames.append(new_tuple(Frame, (text, self._own_id, self._name or None, self._id_buffer, False)))
                    data.clear()
                self._name, self._own_id, self._block_bytes = "", None, 0
                continue
            name, _, value = line.partition(": ")
            if name == "data":
                data.append(value)
            elif name == "id" and "\0" not in value:
                self._own_id = self._id_buffer = value
            elif name == "event":
                self._name = value
            else:
                self._field(line, frames)
        if lines[-1]:
            self._count(lines, encoded)
            self._free_bytes = min(self._free_bytes, self._max_frame_bytes - self._block_bytes)
        return frames

    def _count(self, lines: list[str], encoded: bytes | bytearray) -> None:
        """Counts the last of `lines` (whose bytes are `encoded`) as far as they belong to an unfinished block."""
        end = len(encoded) - 1
        for line in reversed(lines):
            if not line:
                break
            start = encoded.rfind(b"\n", 0, end) + 1
            if not line.startswith(":"):
                self._block_bytes += end + 1 - start
            end = start - 1

    def _meet_limit(self, frames: list[Frame]) -> None:
        """Processes a line that makes its block too long: fails, or skips the block from here on."""
        # Each line before this one counts with one byte for its end; a blank line adds nothing.
        if self._failed or not self._skips:
            self._failed = True
            self._line.clear()
            self._forget_block()
            raise self._too_long_error(frames)
        if self._line.startswith(b":"):
            # A comment is not part of a block: only its beginning is needed.
            self._cut_line(max(1, min(self._head_bytes, self._max_frame_bytes - self._block_bytes)))
            return
        self._skipped, self._has_data = self._begin_skipping(), False
        for text in self._data:
            self._begin_data(text.encode())
        self._data = []
        self._skip_in_line()

    def _skip_in_line(self) -> None:
        """Processes the line of a skipped block, as far as it has come."""
        # The sixth byte shows whether a space comes before the value.
        if self._line.startswith(b"data:") and len(self._line) > 5:
            self._begin_data(self._line[6 if self._line[5:6] == b" " else 5 :])
            self._in_data = True
            self._cut_line(0)
        elif len(self._line) > self._head_bytes:
            self._cut_line(self._head_bytes if self._line.startswith(b":") else 1)

    def _begin_data(self, value: bytes | bytearray) -> None:
        assert self._skipped is not None
        self._skipped.add(b"\n" if self._has_data else b"")
        self._skipped.add(value)
        self._has_data = True

    def _cut_line(self, kept_bytes: int) -> None:
        self._gone_bytes += len(self._line) - kept_bytes
        del self._line[kept_bytes:]

    def _field(self, line: str, frames: list[Frame]) -> None:
        # "Collect the characters on the line before the first colon ... If value starts with a U+0020 SPACE character,
        # remove it from value." A line without a colon is a field whose value is the empty string.
        # Cut once: a value may have 16 MB.
        colon = line.find(":")
        field = line if colon < 0 else line[:colon]
        value = "" if colon < 0 else line[colon + (2 if line.startswith(" ", colon + 1) else 1) :]
        if field == "data":
            # "Append the field value to the data buffer, then append a single U+000A LINE FEED (LF) character."
            self._data.append(value)
        elif field == "event":
            self._name = value
        elif field == "id":
            # "If the field value does not contain U+0000 NULL, then set the last event ID buffer to the field value."
            if "\0" not in value:
                self._own_id = self._id_buffer = value
        elif field == "retry":
            self._retry(value)
        elif not field and self._comments:
            # "If the line starts with a U+003A COLON character (:): Ignore the line." It is returned, but not an event.
            frames.append(Frame(value, is_comment=True))

    def _retry(self, value: str) -> None:
        # "If the field value consists of only ASCII digits": no sign, no underscore, no other script's digits.
        if value.isascii() and value.isdigit():
            digits = value.lstrip("0") or "0"
            wish_ms = int(digits) if len(digits) < 10 else MAX_RECONNECTION_MS
            self.reconnection_ms = min(wish_ms, MAX_RECONNECTION_MS)

    def _dispatch(self, frames: list[Frame]) -> None:
        # "Set the last event ID string of the event source to the value of the last event ID buffer. The buffer does
        # not get reset": it is set also by a block that dispatches nothing.
        self.last_event_id = self._id_buffer
        # "If the data buffer is an empty string, set the data buffer and the event type buffer to the empty string and
        # return." A block with one empty `data` has a buffer of one LF, and is an event.
        if self._skipped is not None and self._has_data:
            oversize = self._skipped.result(is_whole=True)
            frames.append(Frame(oversize, self._own_id, self._name or None, self.last_event_id))
        elif self._data:
            frames.append(Frame("\n".join(self._data), self._own_id, self._name or None, self.last_event_id))
        self._forget_block()

    def unfinished_oversize(self) -> Frame | None:
        if self._skipped is None or not self._has_data:
            return None
        return Frame(self._skipped.result(is_whole=False), self._own_id, self._name or None)

    def _forget_block(self) -> None:
        self._skipped = self._own_id = None
        self._block_bytes = 0
        self._data = []
        self._name = ""


def _whole_lines(text: str) -> list[str]:
    """The lines of `text`, each of which a LF ends.

    Splitting reads each character. Searching does not, but takes a call a line: it is faster for long lines.
    """
    middle = len(text) // 2
    if len(text) <= LONG or text.find("\n", middle, middle + LONG) >= 0:
        lines = text.split("\n")
        lines.pop()
        return lines
    lines, at = [], 0
    while at < len(text):
        end = text.find("\n", at)
        lines.append(text[at:end])
        at = end + 1
    return lines

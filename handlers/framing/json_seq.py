"""Decodes JSON text sequences (RFC 7464): RS begins a text, LF ends it.

A text may contain line ends, if its JSON is laid out over several lines, so a LF ends it only if every bracket is
closed. Then it is returned at once, without waiting for the next RS. A text is not checked for valid JSON beyond that.
If it is too long, it is skipped up to the next RS, because its brackets are not counted; blanks before that RS do not
belong to it. The invariant is that of handlers/framing/frames.py.
"""

import re

from handlers.framing.frames import BLANK, BadFrame, Body, Decoder, FramingError, Head, text_or_bytes

RS = b"\x1e"
# A JSON string on one line; or an unclosed quote, with everything after it. Possessive, so that none backtracks.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(").*', re.DOTALL)
# How many bytes at the end of a text are searched for blanks in one step.
TAIL_BYTES = 4096
_OPENS_ITSELF = (b"{", b"[", b'"')


class JsonSeqDecoder(Decoder):
    """JSON text sequences; a text that was cut off is dropped and counted, and the next one follows."""

    def __init__(self, max_frame_bytes: int, *, comments: bool = False, skips: bool = False) -> None:
        super().__init__(max_frame_bytes, comments=comments, skips=skips)
        self._head = Head(markup_within=max_frame_bytes)
        self._began = False
        self._failure: FramingError | None = None
        self._dropped_bytes = 0
        # The text since the last RS, without leading blanks; b"" once it was returned.
        self._text = bytearray()
        self._counted = 0  # how many bytes of it are whole lines, whose brackets _depth counts
        self._depth = 0
        self._is_broken = False  # a string was not closed on its line
        self._is_done = False

    @property
    def held_bytes(self) -> int:
        return len(self._text) + super().held_bytes

    @property
    def is_inside_frame(self) -> bool:
        return self._skipped is None and bool(self._text)

    def feed(self, data: bytes) -> list[Body]:
        frames: list[Body] = []
        if self._failure is not None:
            raise type(self._failure)(str(self._failure), frames)
        first, *rest = self._head.strip(data).split(RS)
        if self._began:
            self._take(first, frames)
        elif first.strip(BLANK):
            self._failure = BadFrame("the body does not begin with a record separator", frames)
            raise self._failure
        for piece in rest:
            self._end(frames)
            self._began = True
            self._take(piece, frames)
        return frames

    def close(self) -> int:
        self._drop()
        return self._dropped_bytes + self._skipped_bytes + self._head.held_bytes

    def _take(self, piece: bytes, frames: list[Body]) -> None:
        if self._skipped is not None:
            self._skipped.add(piece)
            return
        if not self._text:
            piece = piece.lstrip(BLANK)
        at = 0
        while not self._is_done and at < len(piece):
            end = piece.find(b"\n", at)
            self._text += piece[at:] if end < 0 else piece[at:end]
            self._check(frames)
            if self._skipped is not None:
                self._skipped.add(piece[end:] if end >= 0 else b"")
                return
            if end < 0:
                return
            self._text += b"\n"
            at = end + 1
            if self._is_whole_after_line():
                self._emit(frames)
        # Bytes between a text and the next RS belong to no text.
        self._dropped_bytes += len(piece[at:].translate(None, BLANK))

    def _check(self, frames: list[Body]) -> None:
        if len(self._text) > self._max_frame_bytes:
            if self._skips:
                self._skipped = self._begin_skipping(BLANK)
                self._skipped.add(self._text)
                self._forget()
                return
            self._text.clear()
            self._failure = self._too_long_error(frames)
            raise self._failure

    def _is_whole_after_line(self) -> bool:
        """Returns whether the text may end here; counts the brackets that were not counted before."""
        # A text may have 16 MB, so one that is a single line is not copied.
        opened, is_broken = brackets(self._text[self._counted :] if self._counted else self._text)
        self._counted = len(self._text)
        self._depth += opened
        self._is_broken = self._is_broken or is_broken
        return self._depth <= 0 and not self._is_broken

    def _end(self, frames: list[Body]) -> None:
        """Ends a text at the next RS, if no LF has ended it."""
        if self._skipped is not None:
            frames.append(self._skipped.result(is_whole=True))
            self._skipped = None
        # Section 2.4: "parsers MUST drop JSON-text sequence elements consisting of non-self-delimited top-level values
        # that may have been truncated (that are not delimited by whitespace)": numbers, true, false and null.
        is_delimited = self._text.startswith(_OPENS_ITSELF) or self._text.endswith((b" ", b"\t", b"\r", b"\n"))
        if self._text and is_delimited and self._is_whole_after_line():
            self._emit(frames)
        self._drop()
        self._is_done = False

    def _emit(self, frames: list[Body]) -> None:
        while (tail := self._text[-TAIL_BYTES:]) != (kept := tail.rstrip(BLANK)):
            del self._text[len(self._text) - len(tail) + len(kept) :]
        frames.append(text_or_bytes(self._text))
        self._text.clear()
        self._drop()
        self._is_done = True

    def _drop(self) -> None:
        self._dropped_bytes += len(self._text.strip(BLANK))
        self._forget()

    def _forget(self) -> None:
        self._text.clear()
        self._counted = self._depth = 0
        self._is_broken = False


def brackets(lines: bytes | bytearray) -> tuple[int, bool]:
    """Returns how many more brackets the lines of a JSON text open than close, and whether a string is not closed."""
    rest = _STRING.sub(rb"\1", lines)
    return rest.count(b"{") + rest.count(b"[") - rest.count(b"}") - rest.count(b"]"), b'"' in rest

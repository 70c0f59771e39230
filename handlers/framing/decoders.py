"""Decodes the framings of known lengths, `length` and `raw`, and makes the decoder of each framing of a profile.

`length` keeps the invariant of handlers/framing/frames.py. `raw` cannot: its frames are the chunks. Each other framing
has a module, which knows where a frame ends.
"""

from typing import Literal

from handlers.framing.frames import BadFrame, Body, Decoder, FramingError, text_or_bytes
from handlers.framing.json_seq import JsonSeqDecoder
from handlers.framing.ndjson import NdjsonDecoder
from handlers.framing.sse import SseDecoder
from handlers.framing.websocket import WebSocketDecoder
from handlers.values import dataclass

# A length with more digits could never be accepted.
MAX_DIGITS = 12
NO_LENGTH = BadFrame(f"a line in place of a length is not a decimal number of at most {MAX_DIGITS} digits", [])


class LengthDecoder(Decoder):
    """A line with a decimal number, then that many bytes; an empty line in place of a number is a heartbeat.

    As in X's streams (`delimited=length`), the number counts the line end after the message: one CRLF or LF at the end
    of a text is not content. Bytes that are not UTF-8 are returned whole.
    """

    def __init__(self, max_frame_bytes: int, *, comments: bool = False, skips: bool = False) -> None:
        super().__init__(max_frame_bytes, comments=comments, skips=skips)
        self._held = bytearray()
        self._wanted: int | None = None
        self._failure: FramingError | None = None

    @property
    def held_bytes(self) -> int:
        return super().held_bytes if self._skipped is not None else max(len(self._held), self._wanted or 0)

    @property
    def is_inside_frame(self) -> bool:
        return self._skipped is None and (self._wanted is not None or bool(self._held.strip(b"\r")))

    def feed(self, data: bytes) -> list[Body]:
        frames: list[Body] = []
        self._held += self._head.strip(data)
        at = 0
        while self._failure is None:
            if self._wanted is None:
                end = self._held.find(b"\n", at, at + MAX_DIGITS + 2)
                if end < 0:
                    if len(self._held) - at >= MAX_DIGITS + 2:
                        self._failure = NO_LENGTH
                    break
                self._read_length(bytes(self._held[at:end]).removesuffix(b"\r"))
                at = end + 1
            elif self._skipped is not None:
                piece = self._held[at : at + self._wanted - self._skipped.seen_bytes]
                self._skipped.add(piece)
                at += len(piece)
                if self._skipped.seen_bytes < self._wanted:
                    break
                frames.append(self._skipped.result(is_whole=True))
                self._skipped = self._wanted = None
            elif len(self._held) - at < self._wanted:
                break
            else:
                if self._wanted:
                    with memoryview(self._held) as held, held[at : at + self._wanted] as message:
                        frames.append(_without_line_end(message))
                at += self._wanted
                self._wanted = None
        del self._held[:at]
        if self._failure is not None:
            self._held.clear()
            raise type(self._failure)(str(self._failure), frames)
        return frames

    def close(self) -> int:
        # The length line of an incomplete message does not count.
        tail = bytes(self._held)
        self._held.clear()
        if self._skipped is not None:
            return self._skipped.seen_bytes
        return len(tail if self._wanted is not None else tail.strip(b"\r")) + self._head.held_bytes

    def _read_length(self, line: bytes) -> None:
        if not line:
            return
        if not line.isdigit() or len(line) > MAX_DIGITS:
            self._failure = NO_LENGTH
            return
        self._wanted = int(line)
        if self._wanted > self._max_frame_bytes and self._skips:
            self._skipped = self._begin_skipping()
        elif self._wanted > self._max_frame_bytes:
            self._failure = self._too_long_error([])


class RawDecoder(Decoder):
    """Makes each chunk a frame, as it was read: for upstreams whose messages are the chunks of the transfer coding."""

    _failed = False

    def feed(self, data: bytes) -> list[Body]:
        if len(data) > self._max_frame_bytes and self._skips:
            skipped = self._begin_skipping()
            skipped.add(data)
            return [skipped.result(is_whole=True)]
        if self._failed or len(data) > self._max_frame_bytes:
            self._failed = True
            raise self._too_long_error([])
        return [text_or_bytes(data)] if data else []


def _without_line_end(message: memoryview) -> str | bytes:
    """Returns the message as text if it is UTF-8; it is copied once only, because it may have 16 MB."""
    line_end = bytes(message[-2:])
    end = len(message) - (2 if line_end == b"\r\n" else line_end.endswith(b"\n"))
    try:
        return str(message[:end], "utf-8")
    except UnicodeDecodeError:
        return bytes(message)


Framing = Literal["sse", "ndjson", "json-seq", "length", "raw", "websocket"]


@dataclass(frozen=True, slots=True)
class FramingSpec:
    """A framing: its decoder, the Accept header that requests it, whether its frames may carry ids."""

    decoder: type[Decoder]
    accept: str
    has_ids: bool = False


FRAMINGS: dict[Framing, FramingSpec] = {
    "sse": FramingSpec(SseDecoder, "text/event-stream", has_ids=True),
    "ndjson": FramingSpec(NdjsonDecoder, "application/x-ndjson, application/json"),
    # RFC 7464, section 4.
    "json-seq": FramingSpec(JsonSeqDecoder, "application/json-seq"),
    "length": FramingSpec(LengthDecoder, "application/json, */*;q=0.1"),
    "raw": FramingSpec(RawDecoder, "*/*"),
    "websocket": FramingSpec(WebSocketDecoder, "*/*"),
}
# An answer of these types is a page for people: a login, an error, a maintenance notice.
_PAGES = frozenset({"text/html", "application/xhtml+xml"})
# Types that name a framing. application/json and text/plain do not: streams of all framings have them.
_FRAMED: dict[str, Framing] = {
    "text/event-stream": "sse",
    "application/json-seq": "json-seq",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/x-jsonl": "ndjson",
    "application/jsonlines": "ndjson",
    "application/x-jsonlines": "ndjson",
    "application/stream+json": "ndjson",
    "application/x-json-stream": "ndjson",
}
# Further types that a framing reads: `length` may put its lengths between JSON lines, and `raw` reads anything.
_READS: dict[Framing, frozenset[Framing]] = {"length": frozenset({"ndjson"}), "raw": frozenset(FRAMINGS)}


def make_decoder(framing: Framing, max_frame_bytes: int, *, comments: bool = False, skips: bool = False) -> Decoder:
    """A new decoder for one connection.

    With `skips`, a frame longer than `max_frame_bytes` comes as an `Oversize` once it has ended, and the next frames
    follow; without it, such a frame is an error that ends the stream.

    With `comments`, each comment of an event stream comes as a frame of its own as soon as its line ends
    (`Frame.is_comment`), because a profile may search there for an announcement. Its `data` is the text after the colon
    without one leading space. Comments are not events. Without `comments`, and in every other framing, there are none.
    """
    return FRAMINGS[framing].decoder(max_frame_bytes, comments=comments, skips=skips)


def framing_of(content_type: str) -> Framing | None:
    """Returns the framing that a Content-Type names; None if it names none."""
    return _FRAMED.get(content_type.partition(";")[0].strip().lower())


def content_type_problem(framing: Framing, content_type: str | None) -> str:
    """Returns in a phrase why a response of this Content-Type is not a stream of this framing; "" if it may be one.

    A response without the header (None) is accepted: its body shows what it is.
    """
    if content_type is None:
        return ""
    media_type = content_type.partition(";")[0].strip().lower()
    is_framed = framing_of(content_type) or framing
    if is_framed != framing and is_framed not in _READS.get(framing, ()):
        return f'{media_type}, which framing = "{framing}" cannot read: write framing = "{is_framed}" in the profile'
    # WHATWG, "processing model": any other Content-Type than text/event-stream fails the connection.
    if framing == "sse" and media_type != "text/event-stream":
        hint = ': for JSON lines write framing = "ndjson" in the profile' if media_type == "application/json" else ""
        return f"a content type other than text/event-stream{hint}"
    return "an HTML page instead of a stream" if media_type in _PAGES else ""

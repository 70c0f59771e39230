"""Lists the framings that a profile may name, and makes their decoders; each framing's module knows where a frame
ends.
"""

from typing import Literal

from handlers.framing.frames import Decoder
from handlers.framing.json_seq import JsonSeqDecoder
from handlers.framing.length_and_raw import LengthDecoder, RawDecoder
from handlers.framing.ndjson import NdjsonDecoder
from handlers.framing.sse import SseDecoder
from handlers.framing.websocket import WebSocketDecoder
from handlers.values import dataclass

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

"""Lists the framings of a profile, and makes the decoder of one; each framing's own module says where a frame ends."""

from dataclasses import dataclass
from typing import Literal

from handlers.framing.frames import Decoder
from handlers.framing.json_seq import JsonSeqDecoder
from handlers.framing.length_and_raw import LengthDecoder, RawDecoder
from handlers.framing.ndjson import NdjsonDecoder
from handlers.framing.sse import SseDecoder
from handlers.framing.websocket import WebSocketDecoder

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
# An answer of these types is a page for people: a login, an error, a notice of maintenance.
_PAGES = frozenset({"text/html", "application/xhtml+xml"})
# Types that name a framing. application/json and text/plain do not: all sorts of streams have them.
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
# Further types that a framing reads: the lengths of `length` may be between JSON lines, and `raw` reads anything.
_READS: dict[Framing, frozenset[Framing]] = {"length": frozenset({"ndjson"}), "raw": frozenset(FRAMINGS)}


def decoder(framing: Framing, max_frame_bytes: int, *, comments: bool = False, skips: bool = False) -> Decoder:
    """A new decoder for one connection.

    With `skips`, a frame longer than `max_frame_bytes` comes as an `Oversize` once it has ended, and the next frames
    follow; without, it is an error that ends the stream.

    With `comments` the comments of an event stream come as frames of their own (`Frame.is_comment`, the text behind the
    colon in `data` without one leading space), in their place among the events and as soon as their line ends: a
    profile may find an announcement in one. They are not events. Without `comments`, and in every other framing, there
    are none.
    """
    return FRAMINGS[framing].decoder(max_frame_bytes, comments=comments, skips=skips)


def framing_of(content_type: str) -> Framing | None:
    """The framing that a Content-Type names; None where it names none."""
    return _FRAMED.get(content_type.partition(";")[0].strip().lower())


def refuses(framing: Framing, content_type: str | None) -> str:
    """Why a response of this Content-Type is not a stream of this framing, as a phrase; "" where it may be one.

    None, a response without the header, is accepted: its body shows what it is.
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
        return f"something else than text/event-stream{hint}"
    return "an HTML page instead of a stream" if media_type in _PAGES else ""

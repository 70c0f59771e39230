"""Lists the framings of a profile, and makes the decoder of one.

Each framing's own module says where a frame ends; this one says which framings there are, and which Accept header asks
an upstream for each.
"""

from dataclasses import dataclass
from typing import Literal

from handlers.framing.frames import BadFrame, Decoder, Frame, FrameTooLong, FramingError, as_frames
from handlers.framing.json_seq import JsonSeqDecoder
from handlers.framing.length_and_raw import LengthDecoder, RawDecoder
from handlers.framing.ndjson import NdjsonDecoder
from handlers.framing.sse import SseDecoder

__all__ = [
    "FRAMINGS",
    "BadFrame",
    "Decoder",
    "Frame",
    "FrameTooLong",
    "Framing",
    "FramingError",
    "as_frames",
    "decoder",
    "refuses",
]

Framing = Literal["sse", "ndjson", "json-seq", "length", "raw"]


@dataclass(frozen=True, slots=True)
class FramingSpec:
    """A framing: its decoder, the Accept header that asks for it, whether its frames may carry ids."""

    decoder: type[SseDecoder | NdjsonDecoder | JsonSeqDecoder | LengthDecoder | RawDecoder]
    accept: str
    has_ids: bool = False


FRAMINGS: dict[Framing, FramingSpec] = {
    "sse": FramingSpec(SseDecoder, "text/event-stream", has_ids=True),
    "ndjson": FramingSpec(NdjsonDecoder, "application/x-ndjson, application/json"),
    # RFC 7464, section 4.
    "json-seq": FramingSpec(JsonSeqDecoder, "application/json-seq"),
    "length": FramingSpec(LengthDecoder, "application/json, */*;q=0.1"),
    "raw": FramingSpec(RawDecoder, "*/*"),
}
# An answer of these types is a page for people: a login, an error, a notice of maintenance.
_PAGES = frozenset({"text/html", "application/xhtml+xml"})


def decoder(framing: Framing, max_frame_bytes: int, *, comments: bool = False) -> Decoder:
    """A new decoder for one connection.

    With `comments` the comments of an event stream come as frames of their own (`Frame.is_comment`, the text behind the
    colon in `data` without one leading space), in their place among the events and as soon as their line ends: a
    profile may find an announcement in one. They are not events. Without `comments`, and in every other framing, there
    are none.
    """
    if framing == "sse":
        return SseDecoder(max_frame_bytes, comments=comments)
    return FRAMINGS[framing].decoder(max_frame_bytes)


def refuses(framing: Framing, content_type: str | None) -> str:
    """Why a response of this Content-Type is not a stream of this framing, as a phrase; "" where it may be one.

    None, a response without the header, is accepted: its body shows what it is.
    """
    if content_type is None:
        return ""
    media_type = content_type.partition(";")[0].strip().lower()
    # WHATWG, "processing model": any other Content-Type than text/event-stream fails the connection.
    if framing == "sse" and media_type != "text/event-stream":
        return "something else than text/event-stream"
    return "a page (HTML) in place of a stream" if media_type in _PAGES else ""

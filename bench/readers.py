"""Wraps the readers of SSE and NDJSON that `bench.framing` compares, so that each reads chunks without a network.

A reader gets its bytes as its own HTTP library delivers them, or in larger pieces if it requests very small ones, which
is to its advantage; most readers of NDJSON read a file, whose reads are the chunks. `work` is what a reader does with
an event: `text` if it can return the line itself, and otherwise JSON by the standard library or by orjson. Ours is
measured with the same work. A wrapper imports its reader when it is called. Invariant: it returns all that the reader
returns, unchanged; that is checked after the clock is stopped.
"""

import importlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from types import SimpleNamespace
from typing import Any, NamedTuple

from handlers.framing.events import parse_json
from handlers.framing.ndjson import NdjsonDecoder
from handlers.framing.sse import SseDecoder
from handlers.framing.websocket import WebSocketDecoder

OURS = "streamkeeper"
MAX_FRAME_BYTES = 1 << 20
BUFFER_BYTES = 1 << 16
TYPE = "text/event-stream"
URL = "http://stream.test/events"
Chunks = Sequence[bytes]


class Outcome(NamedTuple):
    """What a reader makes of the chunks: its events, and the reconnection time that they set."""

    events: Iterable[Any]
    retry: Callable[[list[Any]], Any] = lambda events: events[-1].retry if events else None


class Reader(NamedTuple):
    """A reader; `parts` returns an event's text and the event ID from which a client would resume."""

    name: str
    work: str
    read: Callable[[Chunks], Outcome]
    parts: Callable[[Any], tuple[Any, Any]]


class EndOfChunks(Exception):
    """Raised at the end of the chunks, when a reader would connect again."""


class RawBody:
    """A body like those of http.client and urllib3: a read returns what has arrived, whatever its size."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)

    def read(self, _size: int = -1) -> bytes:
        """Return the next chunk; raises Over at the end."""
        for chunk in self._chunks:
            return chunk
        raise EndOfChunks

    def stream(self, _size: int = -1, **_: Any) -> Iterable[bytes]:
        return self._chunks


def _raise_over() -> None:
    raise EndOfChunks


def _until_over(source: Iterable[Any]) -> Iterator[Any]:
    with suppress(EndOfChunks):
        yield from source


def _changed(source: Any) -> Callable[[list[Any]], Any]:
    before = source._reconnection_time
    return lambda _: None if source._reconnection_time == before else source._reconnection_time


_module: Callable[[str], Any] = importlib.import_module


# --- server-sent events -----------------------------------------------------------------------------------------------


def _ours(chunks: Chunks) -> Outcome:
    decoder = SseDecoder(MAX_FRAME_BYTES)
    return Outcome(chain.from_iterable(map(decoder.feed, chunks)), lambda _: decoder.reconnection_ms)


def _httpx_sse(chunks: Chunks) -> Outcome:
    answer = _module("httpx").Response(200, headers={"content-type": TYPE}, content=iter(chunks))
    return Outcome(_module("httpx_sse").EventSource(answer).iter_sse())


def _requests_sse(chunks: Chunks) -> Outcome:
    answer = _module("requests").Response()
    answer.status_code, answer.url, answer.raw = 200, URL, RawBody(chunks)
    answer.headers["Content-Type"] = TYPE
    session = SimpleNamespace(request=lambda **_: answer)
    source = _module("requests_sse").EventSource(URL, session=session, on_error=_raise_over)
    source.connect()
    return Outcome(_until_over(source), _changed(source))


def _launchdarkly(chunks: Chunks) -> Outcome:
    module, times = _module("ld_eventsource.reader"), list[int]()
    lines = module._BufferedLineReader.lines_from(iter(chunks))
    events = module._SSEReader(lines, set_retry=times.append).events_and_comments()
    return Outcome(events, lambda _: times[-1] if times else None)


def _sse(name: str, read: Callable[[Chunks], Outcome], last_id: str = "last_event_id") -> Reader:
    return Reader(name, "events", read, lambda event: (event.data, getattr(event, last_id)))


SSE = (
    _sse(OURS, _ours, "last_id"),
    _sse("sseclient-py", lambda chunks: Outcome(_module("sseclient").SSEClient(iter(chunks)).events()), "id"),
    _sse("httpx-sse", _httpx_sse, "id"),
    _sse("requests-sse", _requests_sse),
    _sse("launchdarkly-eventsource", _launchdarkly),
)


# --- WebSocket: a server's frames, each a message of text, behind the handshake ---------------------------------------


def _own_messages(chunks: Chunks) -> Outcome:
    return Outcome(chain.from_iterable(map(WebSocketDecoder(MAX_FRAME_BYTES).feed, chunks)))


def _by_websockets(chunks: Chunks) -> Outcome:
    module = _module("websockets.protocol")
    made = module.Protocol(module.Side.CLIENT, state=module.State.OPEN, max_size=MAX_FRAME_BYTES)

    def messages() -> Iterator[str]:
        for chunk in chunks:
            made.receive_data(chunk)
            yield from (str(frame.data, "utf-8") for frame in made.events_received())

    return Outcome(messages())


def _by_wsproto(chunks: Chunks) -> Outcome:
    module = _module("wsproto.connection")
    made = module.Connection(module.ConnectionType.CLIENT)

    def messages() -> Iterator[str]:
        held: list[str] = []
        for chunk in chunks:
            made.receive_data(chunk)
            for event in made.events():
                held.append(event.data)
                if event.message_finished:
                    yield "".join(held)
                    held.clear()

    return Outcome(messages())


def _by_aiohttp(chunks: Chunks) -> Outcome:
    held: list[Any] = []
    queue = SimpleNamespace(feed_data=lambda message, _size: held.append(message.data), _size=0, _limit=MAX_FRAME_BYTES)
    made = _module("aiohttp._websocket.reader_py").WebSocketReader(queue, MAX_FRAME_BYTES, False, True)

    def messages() -> Iterator[str]:
        for chunk in chunks:
            made.feed_data(chunk)
            yield from held
            held.clear()

    return Outcome(messages())


def _websocket(name: str, read: Callable[[Chunks], Outcome]) -> Reader:
    return Reader(name, "messages", read, lambda message: (message, None))


WEBSOCKET = (
    _websocket(OURS, _own_messages),
    _websocket("websockets, sans-I/O", _by_websockets),
    _websocket("wsproto", _by_wsproto),
    _websocket("aiohttp, in Python", _by_aiohttp),
)


# --- NDJSON -----------------------------------------------------------------------------------------------------------


class _File(io.RawIOBase):
    """A file whose reads are the chunks."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read as much of the next chunk as fits, and return the number of bytes; 0 at the end."""
        chunk = self._rest or next(self._chunks, b"")
        count = min(len(chunk), len(buffer))
        buffer[:count] = chunk[:count]
        self._rest = chunk[count:]
        return count


def _file(chunks: Chunks) -> io.BufferedReader:
    return io.BufferedReader(_File(chunks), BUFFER_BYTES)


def _own_lines(chunks: Chunks) -> Iterable[Any]:
    return chain.from_iterable(map(NdjsonDecoder(MAX_FRAME_BYTES).feed, chunks))


def _text_file(chunks: Chunks) -> io.TextIOWrapper:
    return io.TextIOWrapper(_file(chunks), "utf-8", newline="\n")


def _by_requests(chunks: Chunks) -> Any:
    answer = _module("requests").Response()
    answer.status_code, answer.encoding, answer.raw = 200, "utf-8", RawBody(chunks)
    return answer.iter_lines(decode_unicode=True)


def _line(line: Any) -> tuple[Any, None]:
    """Return the text of a line, even if the reader has parsed it."""
    content = getattr(line, "data", line)
    return json.dumps(content) if isinstance(content, dict) else content.removesuffix("\n"), None


def _ndjson(name: str, work: str, read: Callable[[Chunks], Iterable[Any]]) -> Reader:
    return Reader(name, work, lambda chunks: Outcome(read(chunks)), _line)


# A reader that takes a parser gets one that leaves a line as it is; for ijson the fastest backend counts.
NDJSON = (
    _ndjson(OURS, "text", _own_lines),
    _ndjson("jsonlines", "text", lambda chunks: _module("jsonlines").Reader(_file(chunks), loads=str)),
    _ndjson("requests, iter_lines", "text", _by_requests),
    _ndjson(
        "httpx, iter_lines", "text", lambda chunks: _module("httpx").Response(200, content=iter(chunks)).iter_lines()
    ),
    _ndjson(OURS, "json", lambda chunks: map(parse_json, _own_lines(chunks))),
    _ndjson("ndjson", "json", lambda chunks: _module("ndjson").reader(_text_file(chunks))),
    _ndjson(OURS, "orjson", lambda chunks: map(_module("orjson").loads, _own_lines(chunks))),
    _ndjson(
        "ijson", "orjson",
        lambda chunks: _module("ijson").items(_file(chunks), "", multiple_values=True, use_float=True),
    ),
    _ndjson("orjson, a loop over a file", "orjson", lambda chunks: map(_module("orjson").loads, _file(chunks))),
)  # fmt: skip

"""Wraps the SSE readers that `bench.framing` compares, so that each reads chunks without a network.

A reader gets its bytes as its own HTTP library delivers them, or in larger pieces where it asks for very small ones,
which is to its advantage.
Invariant: a wrapper returns all events of the reader, unchanged; they are examined after the clock is stopped.
"""

import asyncio
import importlib
import importlib.util
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from handlers.framing.sse import SseDecoder

MAX_FRAME_BYTES = 1 << 20
TYPE = "text/event-stream"
URL = "http://stream.test/events"


@dataclass(frozen=True)
class Outcome:
    """What a reader makes of the chunks: its events, and after them the reconnection time that it has set."""

    events: Iterable[Any]
    retry: Callable[[list[Any]], Any]


@dataclass(frozen=True)
class Reader:
    """A reader; `look` returns an event's data and the last event ID with which a client would resume."""

    name: str
    read: Callable[[Sequence[bytes]], Outcome]
    look: Callable[[Any], tuple[Any, Any]]


class Over(Exception):
    """Raised at the end of the chunks, where a reader would connect again."""


class Raw:
    """A body like http.client's and urllib3's: a read returns what has arrived, whatever its size."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)

    def read(self, _size: int = -1) -> bytes:
        """Return the next chunk; raises Over at the end."""
        for chunk in self._chunks:
            return chunk
        raise Over

    def stream(self, _size: int = -1, **_: Any) -> Iterable[bytes]:
        """Return the chunks."""
        return self._chunks


def _raise_over() -> None:
    raise Over


def ours() -> Reader:
    """The product's decoder."""

    def read(chunks: Sequence[bytes]) -> Outcome:
        decoder = SseDecoder(MAX_FRAME_BYTES)
        return Outcome(chain.from_iterable(map(decoder.feed, chunks)), lambda _: decoder.reconnection_ms)

    return Reader("streamkeeper", read, lambda event: (event.data, event.last_id))


def sseclient_py() -> Reader:
    """sseclient-py."""
    module = importlib.import_module("sseclient")

    def read(chunks: Sequence[bytes]) -> Outcome:
        return Outcome(module.SSEClient(iter(chunks)).events(), _of_the_last)

    return Reader("sseclient-py", read, lambda event: (event.data, event.id))


def sseclient() -> Reader:
    """sseclient; its module has the name of sseclient-py's package, so it is loaded by its path."""
    beside = importlib.import_module("six").__file__ or ""
    module = _load("sseclient_module", beside.replace("six.py", "sseclient.py"))

    def read(chunks: Sequence[bytes]) -> Outcome:
        answer = SimpleNamespace(raw=Raw(chunks), encoding="utf-8", raise_for_status=lambda: None)
        source = module.SSEClient(URL, session=SimpleNamespace(get=lambda *_, **__: answer))
        return Outcome(_until_over(source), _of_the_last)

    return Reader("sseclient", read, lambda event: (event.data, event.id))


def httpx_sse() -> Reader:
    """httpx-sse with a response of httpx."""
    module, httpx = importlib.import_module("httpx_sse"), importlib.import_module("httpx")

    def read(chunks: Sequence[bytes]) -> Outcome:
        answer = httpx.Response(200, headers={"content-type": TYPE}, content=iter(chunks))
        return Outcome(module.EventSource(answer).iter_sse(), _of_the_last)

    return Reader("httpx-sse", read, lambda event: (event.data, event.id))


def requests_sse() -> Reader:
    """requests-sse with a response of requests."""
    module, requests = importlib.import_module("requests_sse"), importlib.import_module("requests")

    def read(chunks: Sequence[bytes]) -> Outcome:
        answer = requests.Response()
        answer.status_code, answer.url, answer.raw = 200, URL, Raw(chunks)
        answer.headers["Content-Type"] = TYPE
        session = SimpleNamespace(request=lambda **_: answer)
        source = module.EventSource(URL, session=session, on_error=_raise_over)
        source.connect()
        return Outcome(_until_over(source), _changed(source))

    return Reader("requests-sse", read, lambda event: (event.data, event.last_event_id))


def launchdarkly() -> Reader:
    """launchdarkly-eventsource: the two readers inside its client."""
    module = importlib.import_module("ld_eventsource.reader")

    def read(chunks: Sequence[bytes]) -> Outcome:
        times: list[int] = []
        lines = module._BufferedLineReader.lines_from(iter(chunks))
        events = module._SSEReader(lines, set_retry=times.append).events_and_comments()
        return Outcome(events, lambda _: times[-1] if times else None)

    return Reader("launchdarkly-eventsource", read, lambda event: (event.data, event.last_event_id))


def ssec() -> Reader:
    """ssec, which calls a listener for each event."""
    module = importlib.import_module("ssec")

    def read(chunks: Sequence[bytes]) -> Outcome:
        answer = SimpleNamespace(
            raw=Raw(chunks),
            status_code=200,
            headers={"Content-Type": TYPE},
            raise_for_status=lambda: None,
            close=lambda: None,
        )
        source = module.EventSource(URL, session=SimpleNamespace(get=lambda *_, **__: answer))
        events: list[Any] = []
        retry = _changed(source)
        for name in ("message", "update"):
            source.add_event_listener(name, lambda event: events.append((event, source._last_event_id)))
        with suppress(Over):
            source.open()
        return Outcome(events, retry)

    return Reader("ssec", read, lambda event: (event[0].data, event[1]))


def aiosseclient() -> Reader:
    """aiosseclient with a stream of aiohttp."""
    module, aiohttp = importlib.import_module("aiosseclient"), importlib.import_module("aiohttp")

    async def consume(chunks: Sequence[bytes]) -> Outcome:
        answer = SimpleNamespace(status=200, content=stream_of(chunks), close=lambda: None)
        session = _AioSession(answer)
        with patch.object(aiohttp, "ClientSession", lambda **_: session):
            events = [event async for event in module.aiosseclient(URL)]
        return Outcome(events, _of_the_last)

    return Reader("aiosseclient", in_loop(consume), lambda event: (event.data, event.id))


def aiohttp_sse(package: str) -> Reader:
    """aiohttp-sse-client, or its successor, with a stream of aiohttp."""
    module = importlib.import_module(f"{package}.client")

    async def consume(chunks: Sequence[bytes]) -> Outcome:
        origin = SimpleNamespace(origin=lambda: URL)
        answer = SimpleNamespace(
            status=200, content=stream_of(chunks), content_type=TYPE, real_url=origin, close=lambda: None
        )
        source = module.EventSource(URL, session=_AioSession(answer), on_error=_raise_over)
        events: list[Any] = []
        retry = _changed(source)
        await source.connect()
        with suppress(Over):
            async for event in source:
                events.append(event)
        return Outcome(events, retry)

    return Reader(package.replace("_", "-"), in_loop(consume), lambda event: (event.data, event.last_event_id))


READERS: tuple[Callable[[], Reader], ...] = (
    ours,
    sseclient,
    sseclient_py,
    httpx_sse,
    requests_sse,
    launchdarkly,
    ssec,
    aiosseclient,
    lambda: aiohttp_sse("aiohttp_sse_client"),
    lambda: aiohttp_sse("aiohttp_sse_client2"),
)


class _AioSession:
    """As much of aiohttp's session as the readers use."""

    def __init__(self, answer: Any) -> None:
        self._answer, self.closed = answer, False

    async def __aenter__(self) -> "_AioSession":
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def get(self, *_: Any, **__: Any) -> Any:
        return self._answer

    async def request(self, *_: Any, **__: Any) -> Any:
        return self._answer

    async def close(self) -> None:
        self.closed = True


def stream_of(chunks: Sequence[bytes]) -> AsyncIterator[bytes]:
    """Return a stream of aiohttp that has received the chunks and its end."""
    protocol = importlib.import_module("aiohttp.base_protocol").BaseProtocol(asyncio.get_running_loop())
    stream: Any = importlib.import_module("aiohttp.streams").StreamReader(protocol, 1 << 26)
    for chunk in chunks:
        stream.feed_data(chunk)
    stream.feed_eof()
    iterator: AsyncIterator[bytes] = stream
    return iterator


def in_loop(consume: Callable[[Sequence[bytes]], Any]) -> Callable[[Sequence[bytes]], Outcome]:
    """Return `consume` for callers without an event loop; one loop serves all calls, so making it is not measured."""
    runner = asyncio.Runner()

    def read(chunks: Sequence[bytes]) -> Outcome:
        outcome: Outcome = runner.run(consume(chunks))
        return outcome

    return read


def _until_over(source: Iterable[Any]) -> Iterator[Any]:
    with suppress(Over):
        yield from source


def _of_the_last(events: list[Any]) -> Any:
    return events[-1].retry if events else None


def _changed(source: Any) -> Callable[[list[Any]], Any]:
    before = source._reconnection_time
    return lambda _: None if source._reconnection_time == before else source._reconnection_time


def _load(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

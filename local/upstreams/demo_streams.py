"""Serves the demonstration streams, as an ASGI application: one for each way of taking a second connection.

Invariants: a path of `demo` (server-sent events) has one connection, the newest, and the older one ends right after the
newer was answered; a path of `demo-exclusive` (the same events) has one connection, the oldest, and refuses others
while it lives; `demo-ndjson` (JSON lines) tolerates any number, and resets each at a random moment. A path of more than
one part is a provider's, which `players` plays.
"""

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from handlers.profile.behaviour import Profile
from local.listener import HOST, Listener, bind
from local.upstreams.behaviours import BEHAVIOURS, Behaviour
from local.upstreams.clockwork import Clockwork, now_ms
from local.upstreams.players import Players
from local.upstreams.presence import Client, Presence, Watch


class _DemoStream(StringConvertor):
    """The path of a demonstration stream: its name may hold slashes, which come percent-encoded."""

    regex = "(?s:(?:demo|demo-exclusive|demo-ndjson)(?::.*)?)"


register_url_convertor("demo", _DemoStream())
# The time between the answer of `demo`'s newer connection and the end of the older one.
EVICT_AFTER_S = 0.1
# A connection of demo-ndjson lives between these two.
DROP_AFTER_S = (20.0, 60.0)
Reset = Callable[[Client], None]


class Upstreams:
    """All streams; `reset` ends the TCP connection of a client address abruptly. `seed` makes the drops repeatable.

    `presence` counts the connections; `watch` is called at each change.
    """

    def __init__(
        self,
        reset: Reset,
        seed: int | None = None,
        drop_after_s: tuple[float, float] = DROP_AFTER_S,
        watch: Watch | None = None,
        behaviours: Mapping[str, Behaviour] = BEHAVIOURS,
    ) -> None:
        self.presence = Presence(watch)
        self._reset = reset
        self._random = random.Random(seed)
        self._drop_after_s = drop_after_s
        self._newest: dict[str, asyncio.Event] = {}
        self._open: set[asyncio.Event] = set()
        self._players = Players(self.presence, behaviours)
        played = Route("/{provider}/{place:path}", self._players.answer, methods=["GET", "POST"])
        demo = Route("/{stream_id:demo}", self._stream)
        self.app = Starlette(routes=[demo, Route("/{stream_id}", self._stream), played])

    def close(self) -> None:
        """Ends every connection cleanly."""
        for end in self._open:
            end.set()
        self._players.close()

    def drop(self, stream_id: str) -> bool:
        """Resets the newest connection of the stream; returns whether there was one."""
        clients = self.presence.clients(stream_id)
        if clients:
            self._reset(clients[-1])
        return bool(clients)

    async def _stream(self, request: Request) -> Response:
        """The part of the stream id before the first colon selects the stream."""
        kinds = {"demo": self._demo, "demo-exclusive": self._demo_exclusive, "demo-ndjson": self._demo_ndjson}
        kind = kinds.get(request.path_params["stream_id"].split(":")[0])
        clockwork = _clockwork(request)
        if kind is None:
            return JSONResponse({"message": "There is no such demonstration stream."}, 404)
        return _BAD_QUERY if clockwork is None else kind(request, clockwork)

    def _demo(self, request: Request, clockwork: Clockwork) -> Response:
        end = asyncio.Event()
        path = request.url.path

        async def body() -> AsyncIterator[bytes]:
            # The newer is answered here. The older ends a moment later, as with providers that evict.
            if (older := self._newest.get(path)) is not None:
                asyncio.get_running_loop().call_later(EVICT_AFTER_S, older.set)
            self._newest[path] = end
            self._open.add(end)
            try:
                yield b": demo, one connection at a time\n\n"
                async for numbers in clockwork.run(first, end):
                    yield b"".join(_sse(clockwork, number) for number in numbers) or b": heartbeat\n\n"
            finally:
                self._open.discard(end)
                if self._newest.get(path) is end:
                    del self._newest[path]

        first = clockwork.first_after(request.headers.get("last-event-id"), now_ms())
        return self._answer(request, body(), "text/event-stream")

    def _demo_exclusive(self, request: Request, clockwork: Clockwork) -> Response:
        # Nothing is awaited between this check and the new connection's entry, so that two requests cannot both pass.
        if self.presence.clients(request.path_params["stream_id"]):
            return JSONResponse({"message": "Another connection is open."}, 429)
        end = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            self._open.add(end)
            try:
                yield b": demo-exclusive, a second connection is refused\n\n"
                async for numbers in clockwork.run(first, end):
                    yield b"".join(_sse(clockwork, number) for number in numbers) or b": heartbeat\n\n"
            finally:
                self._open.discard(end)

        first = clockwork.first_after(request.headers.get("last-event-id"), now_ms())
        return self._answer(request, body(), "text/event-stream")

    def _demo_ndjson(self, request: Request, clockwork: Clockwork) -> Response:
        end = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            drop = asyncio.get_running_loop().call_later(self._random.uniform(*self._drop_after_s), self._drop, request)
            self._open.add(end)
            try:
                yield b"\n"
                async for numbers in clockwork.run(first, end):
                    yield b"".join(_line(clockwork, number) for number in numbers) or b"\n"
            finally:
                self._open.discard(end)
                drop.cancel()

        first = clockwork.first_after(request.query_params.get("since"), now_ms())
        return self._answer(request, body(), "application/x-ndjson")

    def _answer(self, request: Request, body: AsyncIterator[bytes], media_type: str) -> Response:
        return self.presence.answer(request, body, media_type, request.path_params["stream_id"])

    def _drop(self, request: Request) -> None:
        if request.client is not None:
            self._reset((request.client.host, request.client.port))


_BAD_QUERY = JSONResponse({"message": "interval_ms and heartbeat_ms must be whole numbers from 1 to 3600000."}, 400)


def _clockwork(request: Request) -> Clockwork | None:
    values = {"interval_ms": "100", "heartbeat_ms": "5000"}
    for name in values:
        values[name] = request.query_params.get(name, values[name])
        if not (values[name].isascii() and values[name].isdigit() and 1 <= int(values[name]) <= 3_600_000):
            return None
    return Clockwork(int(values["interval_ms"]), int(values["heartbeat_ms"]))


def _record(clockwork: Clockwork, number: int) -> str:
    return json.dumps({"n": number, "at_ms": clockwork.at_ms(number), "text": f"Event number {number}."})


def _sse(clockwork: Clockwork, number: int) -> bytes:
    return f"id: {number}\nevent: tick\ndata: {_record(clockwork, number)}\n\n".encode()


def _line(clockwork: Clockwork, number: int) -> bytes:
    return f"{_record(clockwork, number)}\n".encode()


def moved(profile: Profile, origin: str) -> Profile:
    """Returns the profile at the player of its name; `origin` is http://host:port."""
    base, parts = urlsplit(origin), urlsplit(profile.address)
    address = urlunsplit((base.scheme, base.netloc, f"/{profile.name}{parts.path}", parts.query, ""))
    return replace(profile, address=address, allow_private=True)


@contextlib.contextmanager
def playing(behaviours: Mapping[str, Behaviour] = BEHAVIOURS) -> Iterator[tuple[str, Upstreams]]:
    """Serves the providers from a thread; yields the origin and the upstreams, which count the connections."""
    loop = asyncio.new_event_loop()
    listening = bind(0, "the played providers")
    upstreams = Upstreams(lambda client: listener.reset(client), behaviours=behaviours)
    listener = Listener(upstreams.app, listening)
    thread = threading.Thread(target=loop.run_forever, name="played providers", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(listener.start(), loop).result()
        yield f"http://{HOST}:{listener.port}", upstreams
    finally:
        asyncio.run_coroutine_threadsafe(_closed(upstreams, listener), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _closed(upstreams: Upstreams, listener: Listener) -> None:
    upstreams.close()
    await listener.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)

"""Serves the demonstration streams and plays providers, each by its row in `behaviours`, as an ASGI application.

A path of one part is a demonstration stream; a longer path is a provider's, whose name is the first part. Invariants:
event n is the same for every reader, so a reader that resumes misses only what is announced as lost. If a second
connection is refused, only one is open at a time; if it evicts the older one, that ends right after the newer one was
answered.
"""

import asyncio
import contextlib
import json
import math
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from handlers.aws.lambda_environment import now_ms
from local.upstreams.auth_servers import PlayedAuth
from local.upstreams.behaviours import BEHAVIOURS, DEMOS, TRADE, TRADES, TRADES_LATE_MS, TRADES_LIMIT, Behaviour
from local.upstreams.event_schedule import due_numbers, first_number, oldest_number
from local.upstreams.open_connections import Client, OpenConnections, Watch
from local.upstreams.socket_conversations import accept_subscription, converse


class _DemoStream(StringConvertor):
    """The path of a demonstration stream; its name may contain percent-encoded slashes."""

    regex = f"(?s:(?:{'|'.join(DEMOS)})(?::.*)?)"


register_url_convertor("demo", _DemoStream())
# The time between the newer connection's answer and the older one's end.
EVICT_AFTER_S = 0.1
# A connection is reset after a random time between these two.
DROP_AFTER_S = (20.0, 60.0)
Reset = Callable[[Client], None]


@dataclass(eq=False)
class _Connection:
    """One connection; `last_words` are sent when `end` is set."""

    end: asyncio.Event = field(default_factory=asyncio.Event)
    last_words: str = ""

    def end_with(self, last_words: str) -> None:
        self.last_words = last_words
        self.end.set()


class Upstreams:
    """All streams; `reset` resets the TCP connection of a client address. `seed` makes the random resets repeatable.

    `open_connections` counts the connections by stream id, or by provider and path; `watch` is called at each change.
    """

    def __init__(
        self,
        reset: Reset,
        seed: int | None = None,
        drop_after_s: tuple[float, float] = DROP_AFTER_S,
        watch: Watch | None = None,
        behaviours: Mapping[str, Behaviour] = BEHAVIOURS,
    ) -> None:
        self.open_connections = OpenConnections(watch)
        self._reset = reset
        self._random = random.Random(seed)
        self._drop_after_s = drop_after_s
        self._behaviours = behaviours
        self._connections: dict[str, list[_Connection]] = {}
        self._sessions: set[str] = set()
        self.auth = PlayedAuth(now_ms)
        asked = [
            Route(f"/oauth/{name}", self._answer_auth, methods=["POST"], name=name) for name in ("token", "ticket")
        ]
        played = "/{provider}/{place:path}"
        streams = [Route(f"/{{stream_id{of}}}", self._answer_http) for of in (":demo", "")]
        streams += [*asked, Route(played, self._answer_http, methods=["GET", "POST"])]
        sockets = [WebSocketRoute(path, self._serve_socket) for path in ("/{stream_id:demo}", played)]
        self.app = Starlette(routes=[Route(TRADES, self._answer_trades), *streams, *sockets])

    def close(self) -> None:
        """Ends every connection without last words."""
        for connections in self._connections.values():
            for connection in connections:
                connection.end_with("")

    def drop(self, stream_id: str) -> bool:
        """Resets the newest connection of the stream; returns whether there was one."""
        clients = self.open_connections.clients(stream_id)
        if clients:
            self._reset(clients[-1])
        return bool(clients)

    async def _answer_auth(self, request: Request) -> Response:
        """Answers as the token server or as the ticket server."""
        if request.url.path.endswith("/token"):
            status, said = self.auth.answer_token_request(request.headers, await request.body())
        else:
            status, said = self.auth.answer_ticket_request(request.headers)
        return JSONResponse(said, status, {"Cache-Control": "no-store"})

    def _behaviour_at(self, connection: HTTPConnection) -> tuple[Behaviour, str] | Response:
        """Returns the behaviour that the path names and the common name of its connections, or the refusal."""
        stream_id = connection.path_params.get("stream_id")
        if stream_id is None:
            behaviour = self._behaviours.get(connection.path_params["provider"])
            no_provider = JSONResponse({"message": "There is no such provider here."}, 404)
            return no_provider if behaviour is None else (behaviour, connection.url.path[1:])
        behaviour = DEMOS.get(stream_id.split(":")[0])
        if behaviour is None:
            return JSONResponse({"message": "There is no such demonstration stream."}, 404)
        try:
            interval_ms, heartbeat_ms = (
                _milliseconds(connection.query_params.get(name, usual))
                for name, usual in (("interval_ms", "100"), ("heartbeat_ms", "5000"))
            )
        except ValueError:
            sentence = "interval_ms and heartbeat_ms must be whole numbers from 1 to 3600000."
            return JSONResponse({"message": sentence}, 400)
        return replace(behaviour, interval_ms=interval_ms, heartbeat_ms=heartbeat_ms), stream_id

    async def _answer_trades(self, request: Request) -> Response:
        """Returns a page of the trades after `after` and before `before`, and the key before the next page."""
        behaviour, at_ms = DEMOS["demo-trades"], now_ms() - TRADES_LATE_MS
        try:
            after = int(request.query_params.get("after", 0))
            before = int(request.query_params.get("before", 1 << 60))
        except ValueError:
            return JSONResponse({"message": "after and before must be whole numbers."}, 400)
        first = max(after + 1, oldest_number(behaviour, at_ms))
        numbers = range(first, min(before, at_ms // behaviour.interval_ms + 1))
        page = numbers[:TRADES_LIMIT]
        trades = ",".join(_fill_in(behaviour, TRADE, number).decode() for number in page)
        following = f'"{page[-1]}"' if len(page) < len(numbers) else "null"
        return Response(f'{{"trades": [{trades}], "next": {following}}}', media_type="application/json")

    async def _answer_http(self, request: Request) -> Response:
        """Answers a request for a stream, or for the session that a stream needs."""
        if isinstance(found := self._behaviour_at(request), Response):
            return found
        behaviour, name = found
        if behaviour.session_header and request.method == "POST":
            self._sessions.add(session := f"session-{len(self._sessions)}")
            return JSONResponse({"jsonrpc": "2.0", "id": 0, "result": {}}, headers={behaviour.session_header: session})
        session = request.query_params.get(behaviour.session, "") if behaviour.session else ""
        return await self._answer(request, behaviour, f"{name}{':' if session else ''}{session}")

    async def _serve_socket(self, websocket: WebSocket) -> None:
        """Serves one WebSocket; a refused request gets the same answer as over HTTP."""
        found = self._behaviour_at(websocket)
        refusal = found if isinstance(found, Response) else self._refusal(websocket, found[0])
        if refusal is not None or isinstance(found, Response):
            await websocket.send_denial_response(refusal or JSONResponse({}))
            return
        behaviour, name = found
        conversation = behaviour.conversation
        assert conversation is not None
        await websocket.accept()
        with contextlib.suppress(WebSocketDisconnect), self.open_connections.count_connection(websocket.client, name):
            has_asked, cursor = await accept_subscription(websocket, conversation)
            if has_asked:
                at_ms = now_ms()
                cursor = cursor if conversation.cursor_member else await _cursor(websocket, behaviour)
                first = max(first_number(behaviour, cursor, at_ms), oldest_number(behaviour, at_ms))
                await converse(websocket, conversation, self._body(websocket, behaviour, name, first))

    def _refusal(self, connection: HTTPConnection, behaviour: Behaviour) -> Response | None:
        """Returns the answer to a refused request; None if the request is accepted."""
        if (behaviour.conversation is not None) != (connection.scope["type"] == "websocket"):
            return JSONResponse(
                {"message": "This is a WebSocket." if behaviour.conversation else "This is no WebSocket."}, 426
            )
        if behaviour.has_key and not connection.headers.get("authorization"):
            return JSONResponse({"message": "Who are you?"}, 401)
        if behaviour.needs_token and not self.auth.use_ticket(
            connection.headers, connection.query_params.get("ticket", "")
        ):
            return JSONResponse({"message": "Who are you?"}, 401)
        if behaviour.session_header and connection.headers.get(behaviour.session_header) not in self._sessions:
            return JSONResponse({"message": "There is no such session."}, 404)
        if behaviour.status == 200:
            return None
        retry = {"Retry-After": str(behaviour.retry_after_s)} if behaviour.retry_after_s else None
        return JSONResponse({"message": "Not now."}, behaviour.status, retry)

    async def _answer(self, request: Request, behaviour: Behaviour, name: str) -> Response:
        if request.method != behaviour.method:
            return JSONResponse({"message": f"Only {behaviour.method} is answered."}, 405)
        if (refusal := self._refusal(request, behaviour)) is not None:
            return refusal
        at_ms = now_ms()
        try:
            cursor = await _cursor(request, behaviour)
            wanted, oldest = first_number(behaviour, cursor, at_ms), oldest_number(behaviour, at_ms)
        except ValueError:
            return JSONResponse({"message": "That is not a request of mine."}, 400)
        # Nothing is awaited between this check and the new connection's entry, so that two requests cannot both pass.
        if behaviour.second_connection == "refuses" and self.open_connections.clients(name):
            return JSONResponse({"title": "ConnectionException", "connection_issue": "TooManyConnections"}, 429)
        if wanted < oldest and behaviour.expired:
            if isinstance(behaviour.expired, int):
                return JSONResponse({"message": "That is too long ago."}, behaviour.expired)
            return Response(_fill_in(behaviour, behaviour.expired, oldest), media_type=behaviour.media_type)
        confirms = behaviour.confirming_header and cursor is not None
        headers = (
            {behaviour.confirming_header: cursor if cursor and wanted >= oldest else "earliest"} if confirms else {}
        )
        body = self._body(request, behaviour, name, max(wanted, oldest))
        return self.open_connections.counted_response(request, body, behaviour.media_type, name, headers)

    async def _body(self, request: HTTPConnection, behaviour: Behaviour, name: str, first: int) -> AsyncIterator[bytes]:
        connections, connection = self._connections.setdefault(name, []), _Connection()
        later = asyncio.get_running_loop().call_later
        if behaviour.second_connection == "evicts":
            for older in connections:
                later(EVICT_AFTER_S, older.end_with, behaviour.eviction_text)
        connections.append(connection)
        ends = (
            [later(behaviour.ends_after_s, connection.end_with, behaviour.last_text)] if behaviour.ends_after_s else []
        )
        if behaviour.resets and request.client is not None:
            client = request.client.host, request.client.port
            ends.append(later(self._random.uniform(*self._drop_after_s), self._reset, client))
        last = first - 1
        try:
            # Over HTTP the first bytes also send the head of the answer; a socket has been answered already.
            yield _fill_in(
                behaviour, behaviour.greeting or ("" if behaviour.conversation else behaviour.heartbeat), last
            )
            async for numbers in due_numbers(behaviour, first, connection.end):
                if behaviour.length:
                    numbers = range(numbers.start, min(numbers.stop, first + behaviour.length))
                last = numbers[-1] if numbers else last
                chunk = b"".join(_frame(behaviour, number) for number in numbers)
                yield chunk or _fill_in(behaviour, behaviour.heartbeat, last)
                if last == first + behaviour.length - 1 and behaviour.length:
                    connection.end_with(behaviour.ending)
            yield _fill_in(behaviour, connection.last_words, last)
        finally:
            connections.remove(connection)
            for end in ends:
                end.cancel()


def _milliseconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= 3_600_000):
        raise ValueError(text)
    return int(text)


async def _cursor(request: HTTPConnection, behaviour: Behaviour) -> str | None:
    """Returns the cursor in the request, or None; raises ValueError for a body that is not JSON."""
    place, name = behaviour.resume
    if place == "body" and isinstance(request, Request):
        value = json.loads(await request.body())
        for step in name.split("/")[1:]:
            value = value.get(step) if isinstance(value, dict) else None
        return None if value is None else str(value)
    return {"header": request.headers, "query": request.query_params}.get(place, {}).get(name)


def _frame(behaviour: Behaviour, number: int) -> bytes:
    is_lost = behaviour.loses_every and number % behaviour.loses_every == 0
    return _fill_in(behaviour, behaviour.loss_text if is_lost else behaviour.event, number)


def _fill_in(behaviour: Behaviour, text: str, number: int) -> bytes:
    at_ms = number * behaviour.interval_ms
    if "<at>" in text:
        text = text.replace("<at>", datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds"))
    if "<price>" in text:
        text = text.replace("<price>", f"{1.1 + 0.05 * math.sin(number / 600):.5f}")
    return text.replace("<at_ms>", str(at_ms)).replace("<n>", str(number)).encode()

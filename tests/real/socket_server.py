"""The feed of `socket-server.mjs` on `websockets` or `aiohttp`, packages of PyPI: `python socket_server.py NAME`."""

import asyncio
import contextlib
import json
import sys
from typing import Any

from aiohttp import WSMsgType, web
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

COUNT = 20


def say(line: str) -> None:
    print(line, flush=True)


async def feed(socket: Any, said: str, send: Any, ping: Any, close: Any) -> None:
    """Answers one message."""
    message = json.loads(said)
    if message["op"] != "subscribe":
        say(f"said {said}")
        return
    say(f"subscribed since {message.get('since', 'now')}")
    await send(json.dumps({"op": "subscribed"}))
    first = int(message.get("since", 0)) + 1
    last = COUNT // 2 if first <= COUNT // 2 else COUNT
    for n in range(first, last + 1):
        await send(json.dumps({"n": n, "text": "short" if n % 5 else "long" * 20_000}))
    await ping(socket)
    if last < COUNT:
        await close(4000, "half-way")


async def by_websockets() -> None:
    """Serves with `websockets`, which compresses what it sends if the client allows it."""

    async def ping(socket: Any) -> None:
        await (await socket.ping(b"are you there"))
        say("ponged")

    async def live(socket: Any) -> None:
        running = set()
        with contextlib.suppress(ConnectionClosed):
            async for said in socket:
                running.add(asyncio.create_task(feed(socket, said, socket.send, ping, socket.close)))
        await asyncio.gather(*running)
        say(f"closed with {socket.close_code}")

    async with serve(live, "127.0.0.1", 0) as server:
        say(f"listens on ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await asyncio.get_running_loop().create_future()


async def by_aiohttp() -> None:
    """Serves with `aiohttp`, which shows pongs if `autoping` is off."""

    async def handler(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)

        async def ping(_socket: Any) -> None:
            await socket.ping(b"are you there")

        async def close(code: int, reason: str) -> None:
            ends.append((code, reason))

        ends: list[tuple[int, str]] = []
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await feed(socket, message.data, socket.send_str, ping, close)
            elif message.type is WSMsgType.PONG:
                say("ponged")
                if ends:
                    code, reason = ends.pop()
                    await socket.close(code=code, message=reason.encode())
        say(f"closed with {socket.close_code}")
        return socket

    app = web.Application()
    app.add_routes([web.get("/{path:.*}", handler)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    say(f"listens on ws://127.0.0.1:{site._server.sockets[0].getsockname()[1]}")
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(by_websockets() if sys.argv[1] == "websockets" else by_aiohttp())

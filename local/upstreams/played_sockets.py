"""Decides how a played socket answers: the first message that it expects, and pings.

    {"op": "subscribe", "channel": "eur-usd", "since": 41}     {"op": "subscribed", "channel": "eur-usd"}, then 42 …
    {"op": "ping"}                                             {"op": "pong"}
    anything else first, or nothing for ten seconds            the refusal, and a close

Invariant: an event is sent only once the first message is answered, where one is wanted.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.websockets import WebSocket

FIRST_WITHIN_S = 10.0
# Codes that nobody has registered are a server's own: RFC 6455, section 7.4.2.
SUBSCRIBE_FIRST, SILENT = 4001, 4008
GOING_AWAY = 1001


@dataclass(frozen=True)
class Talk:
    """A provider's conversation on its socket; texts are as on the wire, "" for none.

    The first message must have the members of `asks`, if there are any; `answer` answers it, and `refusal` any other.
    `since` is the member of it that holds the cursor. `pong` answers a message with the members of `ping`; a client
    that sends nothing for `silent_s` is closed, 0 for never.
    """

    asks: Mapping[str, Any] = field(default_factory=dict)
    answer: str = ""
    refusal: str = ""
    since: str = ""
    ping: Mapping[str, Any] = field(default_factory=dict)
    pong: str = ""
    silent_s: float = 0


async def subscribed(websocket: WebSocket, talk: Talk) -> tuple[bool, str | None]:
    """Whether the client's message has the members of `asks`, and its cursor; closes if it has not."""
    if not talk.asks:
        return True, None
    try:
        async with asyncio.timeout(FIRST_WITHIN_S):
            message = await _heard(websocket)
    except TimeoutError:
        message = {}
    if not _has(message, talk.asks):
        if talk.refusal:
            await websocket.send_text(talk.refusal)
        await websocket.close(SUBSCRIBE_FIRST, "subscribe first")
        return False, None
    if talk.answer:
        channel = json.dumps(message.get("channel"))
        await websocket.send_text(talk.answer.replace('"<channel>"', channel))
    since = message.get(talk.since) if talk.since else None
    return True, None if since is None else str(since)


async def converses(websocket: WebSocket, talk: Talk, body: AsyncIterator[bytes]) -> None:
    """Sends each line of `body` as a message, and answers pings, until either side ends it."""
    tasks = [asyncio.create_task(_sends(websocket, body)), asyncio.create_task(_hears(websocket, talk))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        # A client that is gone raises in either, and is no news.
        await asyncio.gather(*tasks, return_exceptions=True)


async def _hears(websocket: WebSocket, talk: Talk) -> None:
    """Answers pings; closes a client that is silent for too long."""
    while True:
        try:
            async with asyncio.timeout(talk.silent_s or None):
                message = await _heard(websocket)
        except TimeoutError:
            await websocket.close(SILENT, "say something now and then")
            return
        if talk.ping and _has(message, talk.ping):
            await websocket.send_text(talk.pong)


async def _sends(websocket: WebSocket, body: AsyncIterator[bytes]) -> None:
    async with contextlib.aclosing(body) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            for line in chunk.decode().splitlines():
                await websocket.send_text(line)
    await websocket.close(GOING_AWAY)


async def _heard(websocket: WebSocket) -> dict[str, Any]:
    """The next message; {} if it is binary or no JSON object."""
    try:
        message = json.loads(await websocket.receive_text())
    except (KeyError, TypeError, ValueError):
        return {}
    return message if isinstance(message, dict) else {}


def _has(message: Mapping[str, Any], members: Mapping[str, Any]) -> bool:
    return all(message.get(name) == value for name, value in members.items())

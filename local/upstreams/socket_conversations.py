"""Decides how a played WebSocket answers: the first message that it expects, and pings.

    {"op": "subscribe", "channel": "eur-usd", "since": 41}     {"op": "subscribed", "channel": "eur-usd"}, then 42 …
{"op": "ping"}                                             {"op": "pong"}     anything else first, or nothing for ten
seconds            the refusal, and a close

Invariant: if a first message is expected, no event is sent before that is answered.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.websockets import WebSocket

FIRST_WITHIN_S = 10.0
# Codes from 4000 on are for private use: RFC 6455, section 7.4.2.
SUBSCRIBE_FIRST, SILENT = 4001, 4008
GOING_AWAY = 1001


@dataclass(frozen=True)
class Conversation:
    """A provider's conversation on its WebSocket; texts are as on the wire, "" for none.

    The client's first message must have the members of `first_message`, if there are any; `answer` answers it, and
    `refusal` any other message. `cursor_member` is the member that holds the cursor. `pong` answers a message with the
    members of `ping`. A client that sends nothing for `silent_s` is closed; 0 means never.
    """

    first_message: Mapping[str, Any] = field(default_factory=dict)
    answer: str = ""
    refusal: str = ""
    cursor_member: str = ""
    ping: Mapping[str, Any] = field(default_factory=dict)
    pong: str = ""
    silent_s: float = 0


async def accept_subscription(websocket: WebSocket, conversation: Conversation) -> tuple[bool, str | None]:
    """Returns whether the client's message has the members of `first_message`, and its cursor; closes if it has not."""
    if not conversation.first_message:
        return True, None
    try:
        async with asyncio.timeout(FIRST_WITHIN_S):
            message = await _read_message(websocket)
    except TimeoutError:
        message = {}
    if not _has_members(message, conversation.first_message):
        if conversation.refusal:
            await websocket.send_text(conversation.refusal)
        await websocket.close(SUBSCRIBE_FIRST, "subscribe first")
        return False, None
    if conversation.answer:
        channel = json.dumps(message.get("channel"))
        await websocket.send_text(conversation.answer.replace('"<channel>"', channel))
    since = message.get(conversation.cursor_member) if conversation.cursor_member else None
    return True, None if since is None else str(since)


async def converse(websocket: WebSocket, conversation: Conversation, body: AsyncIterator[bytes]) -> None:
    """Sends each line of `body` as a message, and answers pings, until either side ends the connection."""
    tasks = [
        asyncio.create_task(_send_lines(websocket, body)),
        asyncio.create_task(_answer_pings(websocket, conversation)),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        # A client that has gone raises in either task, which needs no report.
        await asyncio.gather(*tasks, return_exceptions=True)


async def _answer_pings(websocket: WebSocket, conversation: Conversation) -> None:
    """Answers pings; closes a client that is silent for too long."""
    while True:
        try:
            async with asyncio.timeout(conversation.silent_s or None):
                message = await _read_message(websocket)
        except TimeoutError:
            await websocket.close(SILENT, "say something now and then")
            return
        if conversation.ping and _has_members(message, conversation.ping):
            await websocket.send_text(conversation.pong)


async def _send_lines(websocket: WebSocket, body: AsyncIterator[bytes]) -> None:
    async with contextlib.aclosing(body) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            for line in chunk.decode().splitlines():
                await websocket.send_text(line)
    await websocket.close(GOING_AWAY)


async def _read_message(websocket: WebSocket) -> dict[str, Any]:
    """Returns the next message; {} if it is binary or no JSON object."""
    try:
        message = json.loads(await websocket.receive_text())
    except (KeyError, TypeError, ValueError):
        return {}
    return message if isinstance(message, dict) else {}


def _has_members(message: Mapping[str, Any], members: Mapping[str, Any]) -> bool:
    return all(message.get(name) == value for name, value in members.items())

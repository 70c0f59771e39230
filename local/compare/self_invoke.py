"""A function that keeps a stream connected by invoking its successor, without a state machine. For comparison only.

Each life connects, and when it is due, or the connection is lost, invokes the same function anew; the older leaves as
at any handover. Nobody outside holds the chain. Lambda calls a function whose process died again, after a minute and
after two more: until then the stream is unconnected, and where the successor had been invoked already there are two
chains from then on. Where an invocation is not accepted, the stream stays unconnected for good.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from states_language import TaskFailure

PAUSE_S = 1
"""Between a lost connection and the next life."""


class Lambda(Protocol):
    """What a function has of its platform."""

    def connect(self, event: Mapping[str, Any]) -> Awaitable[Any]:
        """Runs the connection manager in this function; its errors are TaskFailures."""

    async def due(self, connected: Awaitable[Any]) -> bool:
        """Returns once the successor is due (False) or the connection is over (True)."""

    async def sleep(self, seconds: float) -> None:
        """Returns after that time."""

    def invoke(self, event: Mapping[str, Any]) -> None:
        """Invokes the same function asynchronously (InvocationType Event)."""


async def handler(event: Mapping[str, Any], platform: Lambda) -> Any:
    """Returns the connection manager's answer at the stream's end; None where a successor was invoked."""
    connected = platform.connect(event)
    if await platform.due(connected):
        try:
            return await connected
        except TaskFailure:
            await platform.sleep(PAUSE_S)
    platform.invoke(event)
    try:
        return await connected
    except TaskFailure:
        return None

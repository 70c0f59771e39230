"""Plays Lambda for a function that invokes itself (`self_invoke.py`), in virtual time.

Invariant: nothing of a function whose process died goes on, and Lambda calls it again as it does after an asynchronous
invocation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any

from local.compare import self_invoke
from local.compare.played_world import World
from local.compare.result import Result
from local.simulation.scenario import Scenario
from local.simulation.virtual_stage import INPUT
from states_language import TaskFailure

KILLED = ("Sandbox.Timedout", "Runtime.ExitError")
# "two more times, with a one-minute wait … and two minutes" (AWS Lambda, asynchronous invocation, error handling).
AGAIN_S = (60, 120)


def killed(connected: asyncio.Future[Any]) -> bool:
    """Returns whether the function in which a connection was has died."""
    failure = None if connected.cancelled() else connected.exception()
    return isinstance(failure, TaskFailure) and failure.error in KILLED


class Chain:
    """Functions that call one another."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: set[asyncio.Future[Any]] = set()
        self._killed: set[asyncio.Future[Any]] = set()

    def connect(self, event: Mapping[str, Any]) -> asyncio.Future[Any]:
        """Runs the connection manager."""
        connected = self._world.connect(event, "BA"[len(self._world.tasks) % 2])
        life = asyncio.current_task()

        def ended(done: asyncio.Future[Any]) -> None:
            if killed(done) and life is not None:
                self._killed.add(life)
                life.cancel()  # nothing of a killed function goes on

        connected.add_done_callback(ended)
        return connected

    async def due(self, connected: Awaitable[Any]) -> bool:
        """Returns whether the connection is over before `wait_s` is."""
        return await ended_within(self._world, connected, self._world.source.settings["wait_s"])

    async def sleep(self, seconds: float) -> None:
        """Returns after that time."""
        await self._world.clock.sleep_until(self._world.after(round(seconds * 1000)))

    def invoke(self, event: Mapping[str, Any]) -> None:
        """Starts another function once Lambda has taken the event from its queue."""
        at_ms = self._world.after(self._world.latencies.wait_to_task_ms())
        self._world.clock.call_at(at_ms, partial(self.begin, event))

    def begin(self, event: Mapping[str, Any], attempt: int = 0) -> None:
        """Starts a function now; one whose process dies is called again, as Lambda does."""
        life = asyncio.ensure_future(self_invoke.handler(event, self))
        self._running.add(life)

        def ended(_: asyncio.Future[Any]) -> None:
            self._running.discard(life)
            if life in self._killed and attempt < len(AGAIN_S):
                at_ms = self._world.after(AGAIN_S[attempt] * 1000)
                self._world.clock.call_at(at_ms, partial(self.begin, event, attempt + 1))

        life.add_done_callback(ended)


async def ended_within(world: World, connected: Awaitable[Any], seconds: float) -> bool:
    """Returns whether the connection is over before that time is."""
    rest = asyncio.ensure_future(world.clock.sleep_until(world.after(round(seconds * 1000))))
    done, _ = await asyncio.wait({asyncio.ensure_future(connected), rest}, return_when=asyncio.FIRST_COMPLETED)
    rest.cancel()
    return rest not in done


def run(name: str, source: Scenario) -> Result:
    """Returns what functions came to that invoke each other."""
    world = World(source)
    chain = Chain(world)

    async def begin() -> None:
        chain.begin(INPUT)

    world.run(begin())
    return world.result(name)

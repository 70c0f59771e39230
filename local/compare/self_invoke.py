"""A function that keeps a stream connected by invoking its successor, without a state machine. For comparison only.

Each life connects, and when it is due, or the connection is lost, invokes the same function anew; the older leaves as
at any handover. Nobody outside holds the chain. Lambda calls a function whose process died again, after a minute and
after two more: until then the stream is unconnected, and where the successor had been invoked already there are two
chains from then on. Where an invocation is not accepted, the stream stays unconnected for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from local.compare.played_world import World
from local.compare.result import Result
from local.simulation.scenario import Scenario
from local.simulation.virtual_stage import INPUT
from states_language import TaskFailure

# Between a lost connection and the next life.
PAUSE_S = 1
# "two more times, with a one-minute wait … and two minutes" (AWS Lambda, asynchronous invocation, error handling).
AGAIN_S = (60, 120)


class Chain:
    """Functions that call one another."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def handler(self, event: Mapping[str, Any]) -> Any:
        """Returns the connection manager's answer at the stream's end; None where a successor was invoked."""
        world = self._world
        connected = world.connect(event, "BA"[len(world.tasks) % 2])
        if await world.ended_within(connected, world.source.settings["wait_s"]):
            try:
                return await connected
            except TaskFailure:
                await world.sleep(PAUSE_S)
        # Lambda takes the event from its queue a little later.
        world.call_after(world.latencies.wait_to_task_ms(), partial(self.begin, event))
        try:
            return await connected
        except TaskFailure:
            return None

    def begin(self, event: Mapping[str, Any], attempt: int = 0) -> None:
        """Starts a function now; one whose process dies is called again, as Lambda does."""

        def ended(function: asyncio.Future[Any]) -> None:
            if function.cancelled() and attempt < len(AGAIN_S):
                self._world.call_after(AGAIN_S[attempt] * 1000, partial(self.begin, event, attempt + 1))

        self._world.start(self.handler(event), ended)


def run(name: str, source: Scenario) -> Result:
    """Returns what functions came to that invoke each other."""
    world = World(source)
    world.run(partial(Chain(world).begin, INPUT))
    return world.result(name)

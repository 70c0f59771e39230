"""A function that keeps a stream connected by invoking its successor, without a state machine. For comparison only.

Each invocation connects, and when its time is over or the connection is lost, it invokes the same function again; the
older one leaves as at any handover. Nothing outside watches the chain. Lambda repeats the call of a function whose
process died, after one minute and after two more: until then the stream is not connected, and if the successor had
already been invoked, there are two chains from then on. If an invocation is not accepted, the stream stays unconnected
for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from local.compare.strategy_world import StrategyResult, StrategyWorld
from local.simulation.scenario import Scenario
from local.simulation.virtual_stage import INPUT
from states_language import TaskFailure

# The pause between a lost connection and the next invocation.
PAUSE_S = 1
# "two more times, with a one-minute wait … and two minutes" (AWS Lambda, asynchronous invocation, error handling).
REPEATED_AFTER_S = (60, 120)


class InvocationChain:
    """Functions that invoke each other."""

    def __init__(self, world: StrategyWorld) -> None:
        self._world = world

    async def run_function(self, event: Mapping[str, Any]) -> Any:
        """Returns the connection manager's answer at the stream's end; None if a successor was invoked."""
        world = self._world
        connected = world.connect(event, "BA"[len(world.tasks) % 2])
        if await world.has_ended_within(connected, world.source.settings["wait_s"]):
            try:
                return await connected
            except TaskFailure:
                await world.sleep(PAUSE_S)
        # Lambda takes the event from its queue after a moment.
        world.call_after(world.latencies.wait_to_task_ms(), partial(self.start_function, event))
        try:
            return await connected
        except TaskFailure:
            return None

    def start_function(self, event: Mapping[str, Any], attempt: int = 0) -> None:
        """Starts a function now; if its process dies it is called again, as Lambda does."""

        def on_end(function: asyncio.Future[Any]) -> None:
            if function.cancelled() and attempt < len(REPEATED_AFTER_S):
                self._world.call_after(
                    REPEATED_AFTER_S[attempt] * 1000, partial(self.start_function, event, attempt + 1)
                )

        self._world.start_function(self.run_function(event), on_end)


def run(name: str, source: Scenario) -> StrategyResult:
    """Returns the result of functions that invoke each other."""
    world = StrategyWorld(source)
    world.run(partial(InvocationChain(world).start_function, INPUT))
    return world.make_result(name)

"""The world in which handlers without a state machine run: the stage of a replay, and functions that may die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from local.compare.result import Result
from local.simulation.scenario import Scenario
from local.simulation.virtual_sandbox import VirtualSandbox
from local.simulation.virtual_stage import VirtualStage
from states_language import TaskCall, TaskFailure
from timeline.coverage import deliveries, gaps
from timeline.spans import Span

KILLED = ("Sandbox.Timedout", "Runtime.ExitError")


class World(VirtualStage):
    """`tasks` has a span for each call of the connection manager, in order; strategies add `waits`."""

    def __init__(self, source: Scenario) -> None:
        super().__init__(source)
        self.waits: list[Span] = []
        self.tasks: list[Span] = []
        self.sandbox = VirtualSandbox(self)
        self._functions: set[asyncio.Future[Any]] = set()

    def call_after(self, wait_ms: int, callback: Callable[[], object]) -> None:
        """Calls back so many milliseconds from now."""
        self.clock.call_at(self.clock.now_ms() + wait_ms, callback)

    async def sleep(self, seconds: float) -> None:
        """Returns after that time."""
        await self.clock.sleep_until(self.clock.now_ms() + round(seconds * 1000))

    def start(self, handler: Coroutine[Any, Any, Any], ended: Callable[[asyncio.Future[Any]], object]) -> None:
        """Starts a function; `ended` gets it when it is over, cancelled if its process died."""
        function = asyncio.ensure_future(handler)
        self._functions.add(function)
        function.add_done_callback(self._functions.discard)
        function.add_done_callback(ended)

    def connect(self, event: Mapping[str, Any], lane: str) -> asyncio.Future[Any]:
        """Runs the connection manager in the calling function; its errors are TaskFailures."""
        name, function = self.names["connection_manager"], asyncio.current_task()
        call = TaskCall("", "lambda", "invoke", False, name, None, event, "", "", self.clock.now_ms(), None)
        connected = asyncio.ensure_future(self.sandbox.perform(call))
        place, from_ms = len(self.tasks), self.clock.now_ms() - self.origin_ms
        self.tasks.append(Span(lane, "task", from_ms, None))

        def ended(done: asyncio.Future[Any]) -> None:
            self.tasks[place] = Span(lane, "task", from_ms, self.clock.now_ms() - self.origin_ms)
            failure = None if done.cancelled() else done.exception()
            if function in self._functions and isinstance(failure, TaskFailure) and failure.error in KILLED:
                function.cancel()  # a killed function does nothing more

        connected.add_done_callback(ended)
        return connected

    async def ended_within(self, connected: asyncio.Future[Any], seconds: float) -> bool:
        """Returns whether the connection is over before that time is."""
        rest = asyncio.ensure_future(self.sleep(seconds))
        done, _ = await asyncio.wait({connected, rest}, return_when=asyncio.FIRST_COMPLETED)
        rest.cancel()
        return rest not in done

    def run(self, begin: Callable[[], object]) -> None:
        """Runs until the scenario's end; `begin` starts the work."""

        async def main() -> None:
            begin()
            await self.clock.sleep_until(self.origin_ms + self.source.run_for_ms)

        self.clock.run(main())

    def result(self, name: str, besides_ms: int = 0, besides: int = 0, **charges: Any) -> Result:
        """Returns the strategy's result; `besides` counts the calls of other functions, `besides_ms` is their time."""
        until_ms, upstream = self.source.run_for_ms, self.source.upstream
        connections = self.sandbox.connections({"": [span.lane for span in self.tasks]}, self.origin_ms, until_ms)
        lengths = (
            (until_ms if task.to_ms is None else min(task.to_ms, until_ms)) - task.from_ms for task in self.tasks
        )
        found = deliveries(connections, upstream.events_every_ms, until_ms, resumes=upstream.resumes)
        missed, ran = gaps(connections, until_ms), (0, sum(lengths) + besides_ms, len(self.tasks) + besides)
        return Result(name, [*self.tasks, *self.waits], connections, missed, found, *ran, until_ms, **charges)

"""The world in which handlers without a state machine run: a clock, an upstream, and the connection manager to call.

It is the stage of a replay, with the same sandbox of functions and tables. It knows no strategy. Invariant: what was
connected, and by which call, is written down for every call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from local.compare.result import Result
from local.simulation.scenario import Scenario
from local.simulation.virtual_sandbox import VirtualSandbox
from local.simulation.virtual_stage import VirtualStage
from states_language import TaskCall
from timeline.coverage import deliveries, gaps
from timeline.spans import Span


class World(VirtualStage):
    """`tasks` has a span for each call of the connection manager, in their order, `waits` what a strategy adds."""

    def __init__(self, source: Scenario) -> None:
        super().__init__(source)
        self.waits: list[Span] = []
        self.tasks: list[Span] = []
        self.sandbox = VirtualSandbox(self)
        self.sandbox.meet_faults(self)

    @property
    def at_ms(self) -> int:
        """Returns the time since the beginning."""
        return self.clock.now_ms() - self.origin_ms

    def after(self, wait_ms: int) -> int:
        """Returns the instant so many milliseconds from now."""
        return self.clock.now_ms() + wait_ms

    def connect(self, event: Mapping[str, Any], lane: str) -> asyncio.Future[Any]:
        """Calls the connection manager; its errors are TaskFailures."""
        now_ms, function = self.clock.now_ms(), self.names["connection_manager"]
        call = TaskCall("", "lambda", "invoke", False, function, None, event, "", "", now_ms, None)
        connected = asyncio.ensure_future(self.sandbox.perform(call))
        place, from_ms = len(self.tasks), self.at_ms
        self.tasks.append(Span(lane, "task", from_ms, None))

        def ended(_: asyncio.Future[Any]) -> None:
            self.tasks[place] = Span(lane, "task", from_ms, self.at_ms)

        connected.add_done_callback(ended)
        return connected

    def run(self, strategy: Coroutine[Any, Any, None]) -> None:
        """Runs until the scenario's end; the coroutine only begins what there is to do."""

        async def main() -> None:
            await strategy
            await self.clock.sleep_until(self.origin_ms + self.source.run_for_ms)

        self.clock.run(main())

    def result(self, name: str, besides_ms: int = 0, besides: int = 0, **charges: Any) -> Result:
        """Returns what a strategy came to; `besides` counts the calls of other functions, `besides_ms` their time."""
        until_ms, upstream = self.source.run_for_ms, self.source.upstream
        connections = self.sandbox.connections({"": [span.lane for span in self.tasks]}, self.origin_ms, until_ms)
        lengths = (
            (until_ms if task.to_ms is None else min(task.to_ms, until_ms)) - task.from_ms for task in self.tasks
        )
        return Result(
            strategy=name,
            spans=[*self.tasks, *self.waits],
            connections=connections,
            gaps=gaps(connections, until_ms),
            deliveries=deliveries(connections, upstream.events_every_ms, until_ms, resumes=upstream.resumes),
            transitions=0,
            billed_ms=sum(lengths) + besides_ms,
            invocations=len(self.tasks) + besides,
            until_ms=until_ms,
            **charges,
        )

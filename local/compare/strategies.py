"""Runs a strategy in virtual time and says what it came to; the strategies by their names.

Each is a state machine's file that the interpreter runs, or a handler that a played platform runs. All have the same
functions, upstream and latencies. Invariant: two strategies differ by who calls the functions, and when, alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from local import stages
from local.checkout import ROOT
from local.compare import self_invoke
from local.costs.prices import Prices
from local.replay.command import INPUT, STAGE, Latencies, machine_in, profile_of, replay
from local.replay.scenario import Scenario
from local.replay.scripted_upstream import ScriptedUpstream
from local.replay.started_executions import VirtualExecutions
from local.replay.tasks import VirtualSandbox
from states_language import TaskCall, TaskFailure
from states_language.clock import VirtualClock
from timeline.coverage import Connection, Deliveries, Gap, deliveries, gaps, overlap_ms
from timeline.spans import Span

MONTH_MS = 2_628_000_000
KILLED = ("Sandbox.Timedout", "Runtime.ExitError")
# "two more times, with a one-minute wait … and two minutes" (AWS Lambda, asynchronous invocation, error handling).
AGAIN_S = (60, 120)
MACHINES = ROOT / "statemachines"


@dataclass(frozen=True, slots=True)
class Result:
    """What a strategy came to in `until_ms`; `billed_ms` is the time of its functions."""

    strategy: str
    spans: list[Span]
    connections: list[Connection]
    gaps: list[Gap]
    deliveries: Deliveries
    transitions: int
    billed_ms: int
    invocations: int
    until_ms: int

    @property
    def gap_ms(self) -> int:
        """Returns the time without a connection since the first opening."""
        return sum(gap.to_ms - gap.from_ms for gap in self.gaps)

    @property
    def coverage_percent(self) -> float:
        """Returns the share of the time since the first opening in which the stream was connected; 0 without any."""
        whole_ms = self.until_ms - min((c.from_ms for c in self.connections), default=self.until_ms)
        return 100 * (1 - self.gap_ms / whole_ms) if whole_ms else 0.0

    def usd_month(self, memory_mb: int, prices: Prices) -> float:
        """Returns what calling the functions and their time cost a month; events' writes cost the same for all."""
        gb_s = self.billed_ms / 1000 * memory_mb / 1024
        usd = gb_s * prices.usd("lambda", "gb_second_arm64") + self.invocations * prices.usd(
            "lambda", "million_requests"
        )
        return (usd + self.transitions * prices.usd("step_functions", "million_transitions")) * MONTH_MS / self.until_ms

    def as_json(self, memory_mb: int, prices: Prices) -> dict[str, Any]:
        """Returns the strategy's object in what `--json` prints."""
        return {
            "strategy": self.strategy,
            "coverage_percent": self.coverage_percent,
            "gap_ms": self.gap_ms,
            "gaps": len(self.gaps),
            "overlap_ms": overlap_ms(self.connections),
            "lost": self.deliveries.lost,
            "duplicates": self.deliveries.duplicates,
            "connections": len(self.connections),
            "transitions": self.transitions,
            "usd_month": self.usd_month(memory_mb, prices),
        }


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to keep a stream connected; `says` is a sentence for those who do not know it."""

    name: str
    says: str
    run: Callable[[Scenario], Result]


def by_machine(name: str, path: Path, source: Scenario) -> Result:
    """Returns what a state machine came to."""
    found = replay(replace(source, machine=path))
    tasks = [span for span in found.spans if span.kind == "task"]
    return Result(
        strategy=name,
        spans=found.spans,
        connections=found.connections,
        gaps=found.gaps,
        deliveries=found.deliveries,
        transitions=found.transitions,
        billed_ms=sum((found.until_ms if task.to_ms is None else task.to_ms) - task.from_ms for task in tasks),
        invocations=len(tasks),
        until_ms=found.until_ms,
    )


class Chain:
    """A played Lambda for functions that call one another; what they did is in `spans`."""

    def __init__(self, source: Scenario, clock: VirtualClock, sandbox: VirtualSandbox, latencies: Latencies) -> None:
        self._source = source
        self._clock = clock
        self._sandbox = sandbox
        self._latencies = latencies
        self._origin_ms = clock.now_ms()
        self._running: set[asyncio.Future[Any]] = set()
        self._killed: set[asyncio.Future[Any]] = set()
        self.spans: list[Span] = []

    def connect(self, event: Mapping[str, Any]) -> asyncio.Future[Any]:
        """Runs the connection manager."""
        function = stages.names(STAGE)["connection_manager"]
        call = TaskCall("", "lambda", "invoke", False, function, None, event, "", "", self._clock.now_ms(), None)
        connected = asyncio.ensure_future(self._sandbox.perform(call))
        place, lane = len(self.spans), "BA"[len(self.spans) % 2]
        from_ms = self._clock.now_ms() - self._origin_ms
        self.spans.append(Span(lane, "task", from_ms, None))

        life = asyncio.current_task()

        def ended(done: asyncio.Future[Any]) -> None:
            self.spans[place] = Span(lane, "task", from_ms, self._clock.now_ms() - self._origin_ms)
            failure = None if done.cancelled() else done.exception()
            if isinstance(failure, TaskFailure) and failure.error in KILLED and life is not None:
                self._killed.add(life)
                life.cancel()  # nothing of a killed function goes on

        connected.add_done_callback(ended)
        return connected

    async def due(self, connected: Awaitable[Any]) -> bool:
        """Returns whether the connection is over before `wait_s` is."""
        rest = asyncio.ensure_future(self.sleep(self._source.settings["wait_s"]))
        both = {asyncio.ensure_future(connected), rest}
        done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        rest.cancel()
        return rest not in done

    async def sleep(self, seconds: float) -> None:
        """Returns after that time."""
        await self._clock.sleep_until(self._clock.now_ms() + round(seconds * 1000))

    def invoke(self, event: Mapping[str, Any]) -> None:
        """Starts another function once Lambda has taken the event from its queue."""
        self._clock.call_at(self._clock.now_ms() + self._latencies.wait_to_task_ms(), partial(self.begin, event))

    def begin(self, event: Mapping[str, Any], attempt: int = 0) -> None:
        """Starts a function now; one whose process dies is called again, as Lambda does."""
        life = asyncio.ensure_future(self_invoke.handler(event, self))
        self._running.add(life)

        def ended(_: asyncio.Future[Any]) -> None:
            self._running.discard(life)
            if life in self._killed and attempt < len(AGAIN_S):
                at_ms = self._clock.now_ms() + AGAIN_S[attempt] * 1000
                self._clock.call_at(at_ms, partial(self.begin, event, attempt + 1))

        life.add_done_callback(ended)

    def stop(self) -> None:
        """Ends what runs."""
        for life in self._running:
            life.cancel()


def by_chain(name: str, source: Scenario) -> Result:
    """Returns what functions came to that invoke each other."""
    clock = VirtualClock(seed=source.seed)
    latencies = Latencies(source)
    names, origin_ms = stages.names(STAGE), clock.now_ms()
    executions = VirtualExecutions(machine_in(source, source.machine, names), clock, latencies)

    async def run() -> tuple[VirtualSandbox, Chain]:
        upstream = ScriptedUpstream(clock, source.upstream, origin_ms, latencies.connect_ms)
        sandbox = VirtualSandbox(clock, profile_of(source), upstream, source.settings, names, executions)
        chain = Chain(source, clock, sandbox, latencies)
        for at_ms in source.kills_ms:
            sandbox.kill_at(origin_ms + at_ms)
        chain.begin(INPUT)
        await clock.sleep_until(origin_ms + source.run_for_ms)
        chain.stop()
        return sandbox, chain

    sandbox, chain = clock.run(run())
    until_ms = source.run_for_ms
    connections = sandbox.connections({"": [span.lane for span in chain.spans]}, origin_ms, until_ms)
    upstream = source.upstream
    return Result(
        strategy=name,
        spans=chain.spans,
        connections=connections,
        gaps=gaps(connections, until_ms),
        deliveries=deliveries(connections, upstream.events_every_ms, until_ms, resumes=upstream.resumes),
        transitions=0,
        billed_ms=sum((until_ms if span.to_ms is None else span.to_ms) - span.from_ms for span in chain.spans),
        invocations=len(chain.spans),
        until_ms=until_ms,
    )


def _machine(name: str, file: str, says: str) -> Strategy:
    return Strategy(name, says, partial(by_machine, name, MACHINES / file))


STRATEGIES = (
    _machine("retry", "retry.asl.yml", "one Task, called again after each end"),
    _machine("staggered-join", "staggered-join.asl.yml", "a Parallel of a Task and of a Wait before a Task, looped"),
    _machine("staggered", "staggered.asl.yml", "two branches that alternate between a Wait and a Task"),
    _machine("streamkeeper", "connections.asl.yml", "the machine that is deployed"),
    Strategy(
        "self-invoke", "a function that invokes its successor, without a machine", partial(by_chain, "self-invoke")
    ),
)

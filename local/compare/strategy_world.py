"""Runs handlers without a state machine in virtual time, and computes a strategy's result with its cost per month.

The world is the stage of a replay, with functions that may die. Invariant: the cost follows only from the counts of a
run and from the price list.
"""

import asyncio
import os
import random
import tomllib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from handlers.api.verdict import plural
from local.costs.prices import FILE, MONTH_S, Prices
from local.simulation.scenario import Scenario, Upstream, Window, faults_of
from local.simulation.virtual_sandbox import VirtualSandbox
from local.simulation.virtual_stage import VirtualStage
from local.terminal import UserError
from states_language import TaskCall, TaskFailure
from timeline.coverage import Connection, Deliveries, Gap, connected_percent, deliveries, gap_ms, gaps, overlap_ms
from timeline.spans import Span

KILLED = ("Sandbox.Timedout", "Runtime.ExitError")


@dataclass(frozen=True, slots=True)
class StrategyResult:
    """A strategy's result in `until_ms`; `billed_ms` is the time of its functions.

    If streams share functions, the counts are the stream's part, its `share` of a function. `charges` has other costs:
    the number of units by the price's table and name in the price list.
    """

    strategy: str
    spans: list[Span]
    connections: list[Connection]
    gaps: list[Gap]
    deliveries: Deliveries
    transitions: float
    billed_ms: float
    invocations: float
    until_ms: int
    charges: Mapping[tuple[str, str], float] = field(default_factory=dict)
    share: float = 1.0

    @property
    def gap_ms(self) -> int:
        """Returns the time without a connection since the first opening."""
        return gap_ms(self.gaps)

    @property
    def connected_percent(self) -> float:
        """Returns the connected share of the time since the first opening; 0 without an opening."""
        return connected_percent(self.connections, self.gaps)

    def usd_month(self, memory_mb: int, prices: Prices) -> float:
        """Returns the monthly cost of the functions' calls and time; writing events costs the same for all."""
        units = {
            ("lambda", "gb_second_arm64"): self.billed_ms / 1000 * memory_mb / 1024,
            ("lambda", "million_requests"): self.invocations,
            ("step_functions", "million_transitions"): self.transitions,
            **self.charges,
        }
        return sum(count * prices.usd(*price) for price, count in units.items()) * MONTH_S * 1000 / self.until_ms

    def as_json(self, memory_mb: int, prices: Prices) -> dict[str, Any]:
        """Returns the strategy's object in what `--json` prints."""
        return {
            "strategy": self.strategy,
            "connected_percent": self.connected_percent,
            "gap_ms": self.gap_ms,
            "gaps": len(self.gaps),
            "overlap_ms": overlap_ms(self.connections),
            "lost": self.deliveries.lost,
            "duplicates": self.deliveries.duplicates,
            "connections": len(self.connections),
            "transitions": self.transitions,
            "usd_month": self.usd_month(memory_mb, prices),
        }

    def lanes(self) -> dict[str, Any]:
        """Returns what each lane did, as `--lanes` prints it; the end of what goes on is null."""
        return {
            "strategy": self.strategy,
            "spans": [asdict(span) for span in sorted(self.spans, key=lambda s: (s.from_ms, s.lane))],
            "connections": [asdict(connection) for connection in self.connections],
            "gaps": [{"from_ms": gap.from_ms, "to_ms": gap.to_ms, "cause": gap.cause} for gap in self.gaps],
        }


class StrategyWorld(VirtualStage):
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

    def start_function(
        self, handler: Coroutine[Any, Any, Any], on_end: Callable[[asyncio.Future[Any]], object]
    ) -> None:
        """Starts a function; `on_end` gets it when it is over, cancelled if its process died."""
        function = asyncio.ensure_future(handler)
        self._functions.add(function)
        function.add_done_callback(self._functions.discard)
        function.add_done_callback(on_end)

    def connect(self, event: Mapping[str, Any], lane: str) -> asyncio.Future[Any]:
        """Runs the connection manager in the calling function; its errors are TaskFailures."""
        name, function = self.names["connection_manager"], asyncio.current_task()
        call = TaskCall("", "lambda", "invoke", False, name, None, event, "", "", self.clock.now_ms(), None)
        connected = asyncio.ensure_future(self.sandbox.perform(call))
        place, from_ms = len(self.tasks), self.clock.now_ms() - self.origin_ms
        self.tasks.append(Span(lane, "task", from_ms, None))

        def on_end(done: asyncio.Future[Any]) -> None:
            self.tasks[place] = Span(lane, "task", from_ms, self.clock.now_ms() - self.origin_ms)
            failure = None if done.cancelled() else done.exception()
            if function in self._functions and isinstance(failure, TaskFailure) and failure.error in KILLED:
                function.cancel()  # a killed function does nothing more

        connected.add_done_callback(on_end)
        return connected

    async def has_ended_within(self, connected: asyncio.Future[Any], seconds: float) -> bool:
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

    def make_result(self, name: str, other_ms: int = 0, other_calls: int = 0, **charges: Any) -> StrategyResult:
        """Returns the strategy's result; `other_calls` and `other_ms` are those of other functions."""
        until_ms, upstream = self.source.run_for_ms, self.source.upstream
        connections = self.sandbox.connections({"": [span.lane for span in self.tasks]}, self.origin_ms, until_ms)
        lengths = (
            (until_ms if task.to_ms is None else min(task.to_ms, until_ms)) - task.from_ms for task in self.tasks
        )
        found = deliveries(connections, upstream.events_every_ms, until_ms, resumes=upstream.resumes)
        missed, ran = gaps(connections, until_ms), (0, sum(lengths) + other_ms, len(self.tasks) + other_calls)
        return StrategyResult(name, [*self.tasks, *self.waits], connections, missed, found, *ran, until_ms, **charges)


CHANGES = (("gaps", 1, ",.0f"), ("gap_ms", 1000, ",.1f"), ("lost", 1, ",.0f"), ("usd_month", 1, ",.2f"))
HEADS = ("strategy", "gaps", "gap s", "lost", "$ a month")


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A runtime whose functions live for at most `most_s`. `instances` run all the time; else `vcpus` are paid by time.

    Longer lifetimes were never tried on AWS: the comparison uses the strategies and latencies of functions, with
    another limit and another price of their time. Invariant: every limit and price is in prices.toml, with its sources
    and the day on which they were read.
    """

    name: str
    most_s: int
    read_on: str
    sources: tuple[str, ...]
    known: str
    unknown: str
    instances: int = 0
    vcpus: float = 0
    gb: float = 0
    invocations_per_vcpu: int = 0

    def replace_prices(self, listed: Prices, memory_mb: int) -> Prices:
        """Returns the prices of this runtime's functions; those of Lambda itself are in the list."""
        if self.instances:
            return listed.with_price("lambda", "gb_second_arm64", 0)
        if not self.gb:
            return listed
        hour = self.vcpus * listed.usd("microvm", "vcpu_hour") + self.gb * listed.usd("microvm", "gb_hour")
        by_second = listed.with_price("lambda", "gb_second_arm64", hour / 3600 * 1024 / memory_mb)
        return by_second.with_price("lambda", "million_requests", 0)

    def add_instances(self, result: StrategyResult, listed: Prices) -> StrategyResult:
        """Returns a strategy's result with the cost of its instances, as if no other stream used them."""
        if not self.instances:
            return result
        hours = self.instances * result.until_ms / 3_600_000 * (1 + listed.usd("managed_instances", "management_fee"))
        charges = {("managed_instances", "instance_hour"): hours * result.share}
        return replace(result, charges={**result.charges, **charges})

    def notes(self) -> list[str]:
        """Returns lines about this runtime."""
        lines = [f"{self.name} (read on {self.read_on}): {self.known}"]
        if self.instances:
            at_once = self.instances * self.vcpus * self.invocations_per_vcpu
            lines.append(
                f"the dollars are for a stream that has the {self.instances} instances to itself; "
                f"they hold about {plural(round(at_once), 'connection')} at once"
            )
        return [*lines, f"not known: {self.unknown}"]

    def as_json(self) -> dict[str, Any]:
        """Returns the object that `--json` prints for it."""
        shown = ("name", "most_s", "read_on", "sources", "known", "unknown")
        return {name: getattr(self, name) for name in shown}


def read_lifetimes(path: Path = FILE) -> list[Lifetime]:
    """Returns all lifetimes, the shortest first."""
    return [
        Lifetime(**{**life, "sources": tuple(life["sources"])})
        for life in tomllib.loads(path.read_text(encoding="utf-8"))["lives"]
    ]


def shortest_lifetime(limit_s: int) -> Lifetime:
    return next(life for life in read_lifetimes() if life.most_s >= limit_s)


def table_of_changes(found: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Returns a table that compares the results with today's functions and with longer ones."""
    lines = [list(HEADS)]
    for now, was in zip(found, before, strict=True):
        cells = [f"{was[name] / unit:{form}} → {now[name] / unit:{form}}" for name, unit, form in CHANGES]
        lines.append([now["strategy"], *cells])
    return lines


MINUTE_MS, HOUR_MS = 60_000, 3_600_000
SILENCE_MS, REFUSED_MS = 5 * MINUTE_MS, MINUTE_MS
FAULT_KINDS = ("none", "calm", "rough")


def with_faults(source: Scenario, kind: str) -> Scenario:
    """Returns the scenario with the faults of a kind, or of the file at that path; UserError if it is invalid.

    They are the same for every strategy: none, calm, rough, or those of a file.

        calm    a reset about every six hours
        rough   a reset every twenty minutes, a peer that falls silent every three hours, 503 for a minute every five,
                and functions whose processes die every eight

    Invariant: the same kind, length and seed give the same faults, so that only the strategies differ.
    """
    draw, until_ms, upstream = random.Random(f"{kind} {source.seed}"), source.run_for_ms, source.upstream
    kills_ms: tuple[int, ...] = ()
    if kind == "calm":
        upstream = replace(upstream, drops_ms=tuple(_instants(draw, 6 * HOUR_MS, until_ms)))
    elif kind == "rough":
        upstream = replace(
            upstream,
            drops_ms=tuple(_instants(draw, 20 * MINUTE_MS, until_ms)),
            stalls=tuple(Window(at, at + SILENCE_MS) for at in _instants(draw, 3 * HOUR_MS, until_ms)),
            refusals=tuple(Window(at, at + REFUSED_MS) for at in _instants(draw, 5 * HOUR_MS, until_ms)),
        )
        kills_ms = tuple(_instants(draw, 8 * HOUR_MS, until_ms))
    elif kind != "none":
        if not os.path.exists(kind):  # Path.exists raises OSError for a name that is too long
            raise UserError(f"--faults must be {', '.join(FAULT_KINDS)}, or a YAML file: there is none at {kind}.")
        said, kills_ms = faults_of(Path(kind))
        if replace(said, drops_ms=(), stalls=(), refusals=()) != Upstream():
            raise UserError(f"{kind}: upstream: the faults of a comparison can only be drops, stalls and refusals.")
        upstream = replace(upstream, drops_ms=said.drops_ms, stalls=said.stalls, refusals=said.refusals)
    return replace(source, upstream=upstream, kills_ms=kills_ms)


def _instants(draw: random.Random, mean_ms: int, until_ms: int) -> Iterator[int]:
    """Independent instants, on average `mean_ms` apart."""
    at_ms = 0
    while (at_ms := at_ms + 1 + round(draw.expovariate(1 / mean_ms))) < until_ms:
        yield at_ms

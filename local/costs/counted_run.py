"""Runs the deployed machine with its functions in virtual time and counts all their requests to DynamoDB.

Only time, the upstream and DynamoDB's server are simulated. Invariant: the same stage, stream and length of time, or
number of cycles, give the same counts.
"""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import chain

from handlers.connection.steps import Report
from handlers.profile.behaviour import Profile
from handlers.run.group_ports import Needs
from handlers.run.ports import LogReport
from local import stages
from local.costs.request_meter import Counts, Meter, MeteredDynamoDb, control_table, events_table
from local.costs.steady_upstream import SteadyUpstream
from local.simulation import groups
from local.simulation.groups import Group
from local.simulation.scenario import Scenario
from local.simulation.shared_tasks import store_on
from local.simulation.slots import Slot, Upstream, stream_needs
from local.simulation.virtual_function import VirtualFunction
from local.simulation.virtual_sandbox import VirtualSandbox
from local.simulation.virtual_stage import INPUT, VirtualStage, machine_in
from states_language import Machine
from states_language.clock import Clock

NAMES = stages.names("cost")
# Counting begins once the first connection is open and has made its first requests.
WARM_UP_MS = 20_000
_CHECK_MS = 1_000


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The requests in `length_ms`, the upstreams' events meanwhile, and how connections ended.

    All counts are of `streams` streams together.
    """

    counts: Counts
    length_ms: int
    events: int
    reports: list[Report]
    streams: int = 1

    def subtract(self, base: "RunCounts") -> "RunCounts":
        """The requests minus those of another run of the same length."""
        return replace(self, counts=self.counts - base.counts, events=self.events - base.events)


@dataclass(frozen=True, slots=True)
class CountedStream:
    """A counted stream: its events per second, their size, and its profile.

    Events come at random, or by a clock, and a share of `kept_share` is stored.
    """

    profile: Profile
    events_per_s: float
    event_bytes: int
    is_clocked: bool = False
    kept_share: float = 1

    def upstream(self, clock: Clock, connect_ms: int, seed: int = 1) -> SteadyUpstream:
        """An upstream that sends the events."""
        played = self.events_per_s, self.event_bytes, connect_ms, seed, self.is_clocked, self.kept_share
        return SteadyUpstream(clock, *played)


class CountedSandbox(VirtualSandbox):
    """The functions and tables of a counted run, in which no step of a function is left out."""

    def __init__(self, stage: VirtualStage, profile: Profile, upstream: Upstream) -> None:
        super().__init__(stage, profile, upstream)
        names = stage.names
        self.meter = Meter({names["events_table"]: events_table(), names["control_table"]: control_table()})
        self.tables = MeteredDynamoDb(self.meter)  # type: ignore[assignment]  # both have boto3's methods
        self._store = store_on(self.tables, names, ledger_keep_days=self._settings["ledger_keep_days"])
        self.reports: list[list[Report]] = []  # the connections of each function
        self._started: list[Needs] = []

    async def aclose(self) -> None:
        """Ends what still runs; a generator that the garbage collector ends deep in a stack may go on instead."""
        for execution in self._executions.all:
            execution.stop()
        self._kill_all()
        await asyncio.sleep(0)
        for needs in self._started:
            needs.close()

    def _needs(self, function: VirtualFunction) -> Needs:
        self._started.append(self._steps(function))
        return self._started[-1]

    def _steps(self, function: VirtualFunction) -> Needs:
        """What a function does."""
        slot = Slot(function, self._upstream)
        return stream_needs(function, slot, self._profile, self._store, log_report=self._new_report_log())

    def _new_report_log(self) -> LogReport:
        reports: list[Report] = []
        self.reports.append(reports)
        return lambda _profile, _invocation, report, _blocked_ms: reports.append(report)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    at_ms: int
    counts: Counts
    events: int


class GroupSandbox(CountedSandbox):
    def __init__(self, stage: VirtualStage, stream: CountedStream, upstreams: Mapping[str, SteadyUpstream]) -> None:
        super().__init__(stage, stream.profile, next(iter(upstreams.values())))
        self._upstreams = upstreams
        self._group = Group(lambda _: stream.profile, upstreams, self._settings, stage.names, self.tables)
        groups.join(self.tables, stage.names["control_table"], upstreams)
        self.ends: list[_Snapshot] = []
        self._began_ms: list[int] = []

    def _steps(self, function: VirtualFunction) -> Needs:
        """What a function of the group does."""
        self._began_ms.append(self._clock.now_ms())
        outcome = yield from self._group.needs(function, log_report=self._new_report_log())
        events = sum(upstream.count_sent() for upstream in self._upstreams.values())
        self.ends.append(_Snapshot(self._clock.now_ms(), self.meter.counts.copy(), events))
        return outcome

    def busy_ms(self, from_ms: int, to_ms: int) -> int:
        """The running time of all functions between two instants, added up; they end in their order."""
        ends_ms = [moment.at_ms for moment in self.ends] + [to_ms] * len(self._began_ms)
        spans = zip(self._began_ms, ends_ms, strict=False)
        return sum(max(0, min(end_ms, to_ms) - max(began_ms, from_ms)) for began_ms, end_ms in spans)


def resolve_machine(source: Scenario) -> Machine:
    """The machine of a scenario, with its settings filled in."""
    return machine_in(source.machine, source, NAMES)


def count(source: Scenario, machine: Machine, stream: CountedStream, length_ms: int) -> RunCounts:
    """The requests of a connected stream in `length_ms`, with the settings and latencies of `source`."""
    stage = VirtualStage(source, machine, NAMES)
    clock = stage.clock

    async def run() -> RunCounts:
        upstream = stream.upstream(clock, stage.latencies.connect_ms())
        async with aclosing(CountedSandbox(stage, stream.profile, upstream)) as sandbox:
            stage.executions.begin(INPUT, sandbox.perform)
            await clock.sleep_until(clock.now_ms() + WARM_UP_MS)
            before, sent = sandbox.meter.counts.copy(), upstream.count_sent()
            await clock.sleep_until(clock.now_ms() + length_ms)
            reports = list(chain.from_iterable(sandbox.reports))
            return RunCounts(sandbox.meter.counts - before, length_ms, upstream.count_sent() - sent, reports)

    return clock.run(run())


def count_group(
    source: Scenario, machine: Machine, stream: CountedStream, streams: int, cycles: int
) -> tuple[RunCounts, float]:
    """The requests of a group of streams in so many cycles after the first one, and the mean number of functions.

    A cycle lasts from the end of a function to the end of the next one, so handovers are as frequent as in a month. The
    number of functions is a little above one, because two run during a handover.
    """
    stage = VirtualStage(source, machine, NAMES)
    clock = stage.clock

    async def run() -> tuple[RunCounts, float]:
        connect_ms = stage.latencies.connect_ms()
        upstreams = {f"replay:{number:03d}": stream.upstream(clock, connect_ms, number) for number in range(streams)}
        async with aclosing(GroupSandbox(stage, stream, upstreams)) as sandbox:
            stage.executions.begin(groups.INPUT, sandbox.perform)
            while len(sandbox.ends) <= cycles:
                await clock.sleep_until(clock.now_ms() + _CHECK_MS)
            first, last = sandbox.ends[0], sandbox.ends[cycles]
            reports = list(chain.from_iterable(sandbox.reports[1 : cycles + 1]))
            length_ms = last.at_ms - first.at_ms
            counted = RunCounts(last.counts - first.counts, length_ms, last.events - first.events, reports, streams)
            return counted, sandbox.busy_ms(first.at_ms, last.at_ms) / length_ms

    return clock.run(run())

"""Runs the deployed machine for a group in virtual time, with functions that keep all its streams, and counts.

As `counted_run.py` does for a stream alone. It counts whole cycles, each from the end of a function to the end of the
next one: so there are as many handovers in what is counted as there are in a month. Invariant: the same stage, streams
and number of cycles give the same counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handlers.connection.steps import Invocation, Report
from handlers.profile.behaviour import Profile
from handlers.run.group_ports import Needs
from local.costs.counted_run import NAMES, Counted, CountedSandbox, Stream
from local.costs.metered import Counts
from local.costs.steady_upstream import SteadyUpstream
from local.replay.command import Latencies
from local.simulation.groups import INPUT, Group
from local.simulation.scenario import Scenario
from local.simulation.started_executions import VirtualExecutions
from local.simulation.virtual_function import VirtualFunction
from states_language import Machine
from states_language.clock import VirtualClock

_CHECK_MS = 1_000


@dataclass(frozen=True, slots=True)
class _Moment:
    """What had been requested at an instant."""

    at_ms: int
    counts: Counts
    events: int


class GroupSandbox(CountedSandbox):
    """The functions of a group and its tables; `ends` has a moment for each function that has ended."""

    def __init__(
        self,
        clock: VirtualClock,
        stream: Stream,
        upstreams: Mapping[str, SteadyUpstream],
        settings: Mapping[str, Any],
        executions: VirtualExecutions,
    ) -> None:
        super().__init__(clock, stream.profile, next(iter(upstreams.values())), settings, NAMES, executions)
        self._upstreams = upstreams
        self._group = Group(lambda _stream_id: stream.profile, upstreams, settings, NAMES, self.tables)
        self._group.joins()
        self.ends: list[_Moment] = []
        self._began_ms: list[int] = []
        self._reports_of: dict[VirtualFunction, list[Report]] = {}

    def _needs(self, function: VirtualFunction) -> Needs:
        """What a function of the group does; nothing is left out."""
        reports = self._reports_of[function] = []
        self._began_ms.append(self._clock.now_ms())

        def log(_profile: Profile, _invocation: Invocation, report: Report, _blocked_ms: int) -> None:
            reports.append(report)

        outcome = yield from self._group.needs(function, log_report=log)
        self.ends.append(self._moment())
        return outcome

    def reports_of(self, first: int, last: int) -> list[Report]:
        """How the connections of functions ended, of the one numbered `first` to that before `last`, from 0."""
        return [report for reports in list(self._reports_of.values())[first:last] for report in reports]

    def busy_ms(self, from_ms: int, to_ms: int) -> int:
        """For how long functions ran between two instants, each counted for itself; they end in their order."""
        ends_ms = [moment.at_ms for moment in self.ends] + [to_ms] * len(self._began_ms)
        spans = zip(self._began_ms, ends_ms, strict=False)
        return sum(max(0, min(end_ms, to_ms) - max(began_ms, from_ms)) for began_ms, end_ms in spans)

    def _moment(self) -> _Moment:
        events = sum(upstream.sent() for upstream in self._upstreams.values())
        return _Moment(self._clock.now_ms(), self.meter.counts.copy(), events)


def count_group(source: Scenario, machine: Machine, stream: Stream, streams: int, cycles: int) -> tuple[Counted, float]:
    """What so many streams request in so many cycles of their group, the first not counted, and how many functions ran.

    That is a mean: one, and a little for the time in which two of them hand over.
    """
    clock = VirtualClock(seed=source.seed)
    latencies = Latencies(source)
    executions = VirtualExecutions(machine, clock, latencies)

    async def run() -> tuple[Counted, float]:
        connect_ms = latencies.connect_ms()
        upstreams = {f"replay:{number:03d}": stream.upstream(clock, connect_ms, number) for number in range(streams)}
        sandbox = GroupSandbox(clock, stream, upstreams, source.settings, executions)
        executions.begin(INPUT, sandbox.perform)
        while len(sandbox.ends) <= cycles:
            await clock.sleep_until(clock.now_ms() + _CHECK_MS)
        first, last = sandbox.ends[0], sandbox.ends[cycles]
        reports = sandbox.reports_of(1, cycles + 1)
        length_ms = last.at_ms - first.at_ms
        counted = Counted(last.counts - first.counts, length_ms, last.events - first.events, reports, streams)
        return counted, sandbox.busy_ms(first.at_ms, last.at_ms) / length_ms

    return clock.run(run())

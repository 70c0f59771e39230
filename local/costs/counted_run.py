"""Runs the deployed machine with its functions in virtual time and counts all that they request of DynamoDB.

The definition, the connection's steps, the store and the client's requests are those that are deployed. Only time, the
upstream and what lies behind the client's socket are played. Invariant: the same stage, stream and stretch of time give
the same counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from handlers.connection.steps import Invocation, Report
from handlers.profile.behaviour import Profile
from handlers.run.group_ports import Needs
from handlers.store.connection_store import Store
from local import stages
from local.costs.deployed_tables import control_table, events_table
from local.costs.metered import Counts, Meter, MeteredDynamoDb
from local.costs.steady_upstream import SteadyUpstream
from local.replay.command import INPUT, Latencies
from local.simulation.sandbox import VirtualSandbox
from local.simulation.scenario import Scenario
from local.simulation.slots import Slot, Upstream, no_client, stream_needs
from local.simulation.started_executions import VirtualExecutions
from local.simulation.virtual_function import VirtualFunction
from local.simulation.virtual_ports import PromptPool
from states_language import Machine, load
from states_language.clock import Clock, VirtualClock

NAMES = stages.names("cost")
# Counting begins when the first connection is open and its first requests are made.
WARM_UP_MS = 20_000


@dataclass(frozen=True, slots=True)
class Counted:
    """What was requested in `length_ms`, how many events the upstreams had meanwhile, and how connections ended.

    All that is of so many `streams` together.
    """

    counts: Counts
    length_ms: int
    events: int
    reports: list[Report]
    streams: int = 1

    def minus(self, base: "Counted") -> "Counted":
        """What was requested beside what another run of the same length requested."""
        return replace(self, counts=self.counts - base.counts, events=self.events - base.events)


class CountedSandbox(VirtualSandbox):
    """The functions and tables of a counted run."""

    def __init__(
        self,
        clock: VirtualClock,
        profile: Profile,
        upstream: Upstream,
        settings: Mapping[str, Any],
        names: Mapping[str, str],
        executions: VirtualExecutions,
    ) -> None:
        super().__init__(clock, profile, upstream, settings, names, executions)
        self.meter = Meter({names["events_table"]: events_table(), names["control_table"]: control_table()})
        self.tables = MeteredDynamoDb(self.meter)  # type: ignore[assignment]  # both have boto3's methods
        self._store = Store(
            self.tables,
            no_client,
            events_table=names["events_table"],
            control_table=names["control_table"],
            dead_letter_queue_url="",
            ledger_keep_days=settings["ledger_keep_days"],
        )
        self.reports: list[Report] = []

    def _needs(self, function: VirtualFunction) -> Needs:
        """What a function does; nothing is left out."""
        slot, pool = Slot(function, self._upstream), PromptPool(function.bell, "the store")
        return stream_needs(function, slot, self._profile, self._store, pool, self._log)

    def _log(self, _profile: Profile, _invocation: Invocation, report: Report, _blocked_ms: int) -> None:
        self.reports.append(report)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as it is counted: how many events a second it has, how large they are, and its profile.

    They come at random, or by a clock.
    """

    profile: Profile
    events_per_s: float
    event_bytes: int
    is_clocked: bool = False

    def upstream(self, clock: Clock, connect_ms: int, seed: int = 1) -> SteadyUpstream:
        """Who sends them."""
        return SteadyUpstream(clock, self.events_per_s, self.event_bytes, connect_ms, seed, self.is_clocked)


def machine_of(source: Scenario) -> Machine:
    """The machine of a scenario, its placeholders filled from its settings."""
    return load(stages.resolve(stages.definition(source.machine), source.settings, NAMES))


def count(source: Scenario, machine: Machine, stream: Stream, length_ms: int) -> Counted:
    """What the stream requests in `length_ms` once it is connected, with the settings and latencies of `source`."""
    clock = VirtualClock(seed=source.seed)
    latencies = Latencies(source)
    executions = VirtualExecutions(machine, clock, latencies)

    async def run() -> Counted:
        upstream = stream.upstream(clock, latencies.connect_ms())
        sandbox = CountedSandbox(clock, stream.profile, upstream, source.settings, NAMES, executions)
        executions.begin(INPUT, sandbox.perform)
        await clock.sleep_until(clock.now_ms() + WARM_UP_MS)
        before, sent = sandbox.meter.counts.copy(), upstream.sent()
        await clock.sleep_until(clock.now_ms() + length_ms)
        return Counted(sandbox.meter.counts - before, length_ms, upstream.sent() - sent, sandbox.reports)

    return clock.run(run())

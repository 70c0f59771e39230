"""Runs the deployed machine with its functions in virtual time and counts all that they request of DynamoDB.

The definition, the connection's steps, the store and the client's requests are those that are deployed. Only time, the
upstream and what lies behind the client's socket are played. Invariant: the same stage, stream and stretch of time give
the same counts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from handlers.connection.effects import Outcome
from handlers.connection.steps import Invocation, Report
from handlers.profile.behaviour import Profile
from handlers.store.connection_store import Store
from local import stages
from local.costs.counted_invocation import CountedInvocation
from local.costs.deployed_tables import control_table, events_table
from local.costs.metered import Counts, Meter, MeteredDynamoDb
from local.costs.steady_upstream import SteadyUpstream
from local.replay.command import INPUT, Latencies
from local.replay.scenario import Scenario, Upstream
from local.replay.scripted_upstream import ScriptedUpstream
from local.replay.tasks import RunningInvocation, VirtualSandbox
from local.simulation.started_executions import VirtualExecutions
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
        upstream: SteadyUpstream,
        settings: Mapping[str, Any],
        names: Mapping[str, str],
        executions: VirtualExecutions,
    ) -> None:
        script = ScriptedUpstream(clock, Upstream(), clock.now_ms(), lambda: 0)  # nobody opens it
        super().__init__(clock, profile, script, settings, names, executions)
        self.meter = Meter({names["events_table"]: events_table(), names["control_table"]: control_table()})
        self._steady = upstream
        self.tables = MeteredDynamoDb(self.meter)  # type: ignore[assignment]  # both have boto3's methods
        self._store = Store(
            self.tables,
            _none,
            events_table=names["events_table"],
            control_table=names["control_table"],
            dead_letter_queue_url="",
            ledger_keep_days=settings["ledger_keep_days"],
        )
        self.counted: list[CountedInvocation] = []

    def _begin(self, who: Invocation, on_end: Callable[[Outcome], None]) -> RunningInvocation:
        self.counted.append(CountedInvocation(self._clock, self._profile, self._store, self._steady, who, on_end))
        return self.counted[-1]


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
        reports = [report for one in sandbox.counted for report in one.reports]
        return Counted(sandbox.meter.counts - before, length_ms, upstream.sent() - sent, reports)

    return clock.run(run())


def _none() -> Any:
    raise RuntimeError("a counted stream has no event that is too large for an item")

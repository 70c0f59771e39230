"""The strategies by name, and how those that are state machines run.

Invariant: strategies differ only in what calls the functions, and when.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from handlers.run.group_ports import Needs
from local.checkout import ROOT
from local.compare import queue_strategy
from local.compare.strategy_world import StrategyResult, StrategyWorld
from local.replay.command import ReplayResult, replay
from local.simulation import groups
from local.simulation.groups import Group
from local.simulation.scenario import Scenario
from local.simulation.skipping import SkippingSlot, VirtualConnection
from local.simulation.virtual_function import VirtualFunction
from local.simulation.virtual_sandbox import VirtualSandbox
from local.simulation.virtual_stage import INPUT, Latencies, VirtualStage
from states_language import TaskFailure

# The pause between a lost connection and the next invocation.
PAUSE_S = 1
# "two more times, with a one-minute wait … and two minutes" (AWS Lambda, asynchronous invocation, error handling).
REPEATED_AFTER_S = (60, 120)


class InvocationChain:
    """Functions that each invoke their successor, without a state machine.

    Each invocation connects, and when its time is over or the connection is lost, it invokes the same function again;
    the older one leaves as at any handover. Nothing outside watches the chain. Lambda repeats the call of a function
    whose process died, after one minute and after two more: until then the stream is not connected, and if the
    successor had already been invoked, there are two chains from then on. If an invocation is not accepted, the stream
    stays unconnected for good.
    """

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


def run_chain(name: str, source: Scenario) -> StrategyResult:
    """Returns the result of functions that invoke each other."""
    world = StrategyWorld(source)
    world.run(partial(InvocationChain(world).start_function, INPUT))
    return world.make_result(name)


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to keep a stream connected; `description` is a sentence about it.

    `needs` names a package that it needs and that may be missing.
    """

    name: str
    description: str
    run: Callable[[Scenario], StrategyResult]
    required_package: str = ""

    @property
    def missing_package(self) -> str:
        """Returns the name of the missing package, "" if there is none."""
        return self.required_package if self.required_package and find_spec(self.required_package) is None else ""


MACHINES = ROOT / "statemachines"
# Of a group.
STREAMS = 100


def run_machine(name: str, path: Path, source: Scenario) -> StrategyResult:
    return _result_of_replay(name, replay(replace(source, machine=path)))


class GroupSandbox(VirtualSandbox):
    """The functions of a group of so many streams and their tables.

    Each stream has its own upstream with the given faults. The compared stream is in the middle of the order in which a
    function opens them. As in a replay, unchanged leases are not read again: a group's function notifies a connection
    of each change of its lease.
    """

    def __init__(self, streams: int, stage: VirtualStage) -> None:
        super().__init__(stage)
        ids = [f"replay:{number:03d}" for number in range(streams)]
        self._compared = ids[streams // 2]
        upstreams = {one: stage.upstream(Latencies(stage.source)) for one in ids}
        self._group = Group(lambda _: self._profile, upstreams, self._settings, stage.names, self.tables)
        groups.join(self.tables, stage.names["control_table"], upstreams)

    def _needs(self, function: VirtualFunction) -> Needs:
        """What a function of the group does."""
        return self._group.needs(function, partial(SkippingSlot, is_notified=True))

    def _connections_of(self, function: VirtualFunction) -> Sequence[VirtualConnection]:
        slot = function.slots.get(self._compared)
        return [] if slot is None else slot.connections


def run_group(name: str, path: Path, source: Scenario, streams: int = STREAMS) -> StrategyResult:
    """Returns the result of a stream of a group: its connections, and its share of the group's functions."""
    whole = _result_of_replay(name, replay(replace(source, machine=path), partial(GroupSandbox, streams), groups.INPUT))
    shares = {field: getattr(whole, field) / streams for field in ("transitions", "billed_ms", "invocations")}
    return replace(whole, share=1 / streams, **shares)


def _result_of_replay(name: str, result: ReplayResult) -> StrategyResult:
    ran = result.transitions, result.billed_ms, result.invocations
    return StrategyResult(name, result.spans, result.connections, result.gaps, result.deliveries, *ran, result.until_ms)


def run_durable(name: str, source: Scenario) -> StrategyResult:
    """Returns the result of a durable function; AWS's packages for that must be installed."""
    from local.compare import durable  # the packages are optional

    return durable.run(name, source)


def _machine_strategy(name: str, file: str, description: str) -> Strategy:
    return Strategy(name, description, partial(run_machine, name, MACHINES / file))


STRATEGIES = (
    _machine_strategy("retry", "retry.asl.yml", "one Task, called again after each end"),
    _machine_strategy(
        "staggered-join", "staggered-join.asl.yml", "a Parallel of a Task and of a Wait before a Task, looped"
    ),
    _machine_strategy("staggered", "staggered.asl.yml", "two branches that alternate between a Wait and a Task"),
    _machine_strategy("streamkeeper", "connections.asl.yml", "the machine that is deployed"),
    Strategy(
        "streamkeeper-group",
        f"one of {STREAMS} streams that the same machine keeps in a function",
        partial(run_group, "streamkeeper-group", MACHINES / "connections.asl.yml"),
    ),
    Strategy(
        "self-invoke", "a function that invokes its successor, without a machine", partial(run_chain, "self-invoke")
    ),
    Strategy(
        "durable",
        "a Lambda durable function of two branches",
        partial(run_durable, "durable"),
        required_package="aws_durable_execution_sdk_python_testing",
    ),
    Strategy("queue", "SQS and DynamoDB by hand: one message per lane", partial(queue_strategy.run, "queue")),
)

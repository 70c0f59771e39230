"""The strategies by name, and how those that are state machines run.

Invariant: strategies differ only in what calls the functions, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from handlers.run.group_ports import Needs
from local.checkout import ROOT
from local.compare import queue_strategy, self_invoke
from local.compare.strategy_world import StrategyResult
from local.replay.command import ReplayResult, replay
from local.simulation import groups
from local.simulation.groups import Group
from local.simulation.scenario import Scenario
from local.simulation.skipping import SkippingSlot, VirtualConnection
from local.simulation.virtual_function import VirtualFunction
from local.simulation.virtual_sandbox import VirtualSandbox
from local.simulation.virtual_stage import Latencies, VirtualStage


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
    """Returns the result of a state machine."""
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
        "self-invoke",
        "a function that invokes its successor, without a machine",
        partial(self_invoke.run, "self-invoke"),
    ),
    Strategy(
        "durable",
        "a Lambda durable function of two branches",
        partial(run_durable, "durable"),
        required_package="aws_durable_execution_sdk_python_testing",
    ),
    Strategy("queue", "SQS and DynamoDB by hand: one message per lane", partial(queue_strategy.run, "queue")),
)

"""The strategies by their names, and how those run that are state machines.

Each is a state machine's file that the interpreter runs, or a handler that a played platform runs. All have the same
functions, upstream and latencies. Invariant: two strategies differ by who calls the functions, and when, alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from local.checkout import ROOT
from local.compare import played_group, played_lambda, played_queue
from local.compare.result import Result, Strategy
from local.replay.command import Replay, replay
from local.simulation import groups
from local.simulation.scenario import Scenario

MACHINES = ROOT / "statemachines"


def by_machine(name: str, path: Path, source: Scenario) -> Result:
    """Returns what a state machine came to."""
    return _of(name, replay(replace(source, machine=path)))


def by_group(name: str, path: Path, source: Scenario, streams: int = played_group.STREAMS) -> Result:
    """Returns what a stream of a group came to: its own connections, and its share of the group's functions."""
    source = replace(source, machine=path)
    found = replay(source, partial(played_group.GroupSandbox, source, streams), groups.INPUT)
    whole = _of(name, found)
    shares = {field: getattr(whole, field) / streams for field in ("transitions", "billed_ms", "invocations")}
    return replace(whole, **shares)


def _of(name: str, found: Replay) -> Result:
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


def by_durable(name: str, source: Scenario) -> Result:
    """Returns what a durable function came to; AWS's packages for that must be installed."""
    from local.compare import played_durable  # the packages are optional

    return played_durable.run(name, source)


def _machine(name: str, file: str, says: str) -> Strategy:
    return Strategy(name, says, partial(by_machine, name, MACHINES / file))


STRATEGIES = (
    _machine("retry", "retry.asl.yml", "one Task, called again after each end"),
    _machine("staggered-join", "staggered-join.asl.yml", "a Parallel of a Task and of a Wait before a Task, looped"),
    _machine("staggered", "staggered.asl.yml", "two branches that alternate between a Wait and a Task"),
    _machine("streamkeeper", "connections.asl.yml", "the machine that is deployed"),
    Strategy(
        "streamkeeper-group",
        f"the same machine for {played_group.STREAMS} streams in a function, and one of those",
        partial(by_group, "streamkeeper-group", MACHINES / "connections.asl.yml"),
    ),
    Strategy(
        "self-invoke",
        "a function that invokes its successor, without a machine",
        partial(played_lambda.run, "self-invoke"),
    ),
    Strategy(
        "durable",
        "a Lambda durable function of two branches",
        partial(by_durable, "durable"),
        needs="aws_durable_execution_sdk_python_testing",
    ),
    Strategy("queue", "SQS and DynamoDB by hand: a message a lane", partial(played_queue.run, "queue")),
)

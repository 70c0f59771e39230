"""The machine before it was written in JSONata, and the deployed one: each renews the other, whoever's code runs.

A definition takes effect at a renewal, so an execution of the former one is renewed by the deployed one, and the other
way round where a deployment is taken back. The code of functions takes effect at once.
"""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from local.bounds import ALLOWED
from local.chaos.deployments import Version
from local.chaos.schedule import generate
from local.chaos.simulate import DEPLOYED as DEPLOYED_MACHINE
from local.chaos.simulate import run_schedule
from local.replay.command import Replay
from states_language import load
from states_language.machine import Machine
from tests.statemachines.connections import DATA, INPUT, MINE, OTHER, ROOT, Aws, after, definition, former
from tests.statemachines.test_connections import ended, entered, scripted
from tests.timelines.test_replay import run_table, short
from timeline import spans

FORMER = str(DATA / "connections-jsonpath.asl.yml")
LONG = pytest.mark.long
DEPLOYED = str(ROOT / "statemachines" / "connections.asl.yml")


@pytest.mark.parametrize("policy", ["evicts", *(pytest.param(one, marks=LONG) for one in ("tolerates", "forbids"))])
@pytest.mark.parametrize("machines", [(FORMER, DEPLOYED), (DEPLOYED, FORMER)], ids=["deployed", "taken back"])
def test_each_renews_the_other_with_the_stream_connected(
    tmp_path: Path, policy: str, machines: tuple[str, str]
) -> None:
    """What runs goes on under its own definition, its successor runs the other; a handover is what it always is."""
    first, second = machines
    table = short(policy, machine=first, redeployments=[{"at_ms": 100_000, "machine": second}])
    result = run_table(tmp_path, table)
    assert (result.status, result.deliveries.lost == 0 or policy == "forbids") == ("RUNNING", True)
    assert max((gap.to_ms - gap.from_ms for gap in result.gaps), default=0) <= (1_100 if policy == "forbids" else 0)
    assert [run.output for run in result.runs[:-1]] == [{"status": "superseded"}] * (len(result.runs) - 1)
    assert len(result.runs) >= 4
    # A cycle of the former machine is four transitions, one of the deployed two.
    costs = [cost(result, number) for number in (0, 1)]
    assert (costs[0] > costs[1]) == (first == FORMER)


@pytest.mark.parametrize("count", [2, pytest.param(15, marks=LONG)])
@pytest.mark.parametrize("former_is_first", [True, False], ids=["deployed", "taken back"])
def test_no_fault_while_one_renews_the_other_breaks_the_promise(former_is_first: bool, count: int) -> None:
    """Chaos in which a redeployment changes the machine too, whatever else fails meanwhile."""
    drawn = (replace(generate(seed), renews=True) for seed in itertools.count())
    redeployed = (one for one in drawn if any(fault.kind == "redeploy" for fault in one.faults))

    def machine_of(version: Version) -> Machine:
        if (version.number == 1) != former_is_first:
            return DEPLOYED_MACHINE(version)
        return load(former("local", **version.settings))

    for schedule in itertools.islice(redeployed, count):
        assert run_schedule(schedule, machine_of).violations == []


def cost(result: Replay, number: int) -> float:
    """How many transitions an execution had for each connection."""
    run = result.runs[number]
    return run.transitions / sum(row.what == "task_started" for row in run.rows)


@pytest.mark.parametrize("renews", [None, OTHER])
def test_what_the_former_machine_delegates_is_claimed(aws: Aws, renews: str | None) -> None:
    """An execution of it could not claim its stream for hours: the input that it starts its successor with is taken."""
    aws.failures = {"updateItem": ["DynamoDB.InternalServerErrorException"] * 1000}
    aws.run(ended, renews=renews, machine=former())
    (started,) = aws.started
    assert set(started["Input"]) - set(INPUT) == {
        "renews",
        "asked_at",
        "after",
        "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID",
    }
    aws.failures = {}
    aws.put(execution={"S": MINE})  # the claim was made, and its answer lost
    assert aws.run(ended, input_=started["Input"]).output == {"status": "ended"}


def test_what_either_starts_its_successor_with_is_the_same(aws: Aws) -> None:
    """The renewal of the one is the renewal of the other, under the same name."""
    starts = []
    for machine in (former(), definition("connections")):
        aws.put()
        aws.started.clear()
        renewing = _limited(machine) if machine["StartAt"] == "Is it a request" else after(1)
        aws.run(scripted(*[ValueError("no function starts")] * 3, "superseded"), machine=renewing)
        starts.append(aws.started[0])
    assert starts[0] == starts[1]


def _limited(machine: Any) -> Any:
    """The former machine, which renews after one cycle."""
    for branch in machine["States"]["Lanes"]["Branches"]:
        for state in branch["States"].values():
            for rule in state.get("Choices", []):
                if rule.get("NumericGreaterThanEquals") == 115:
                    rule["NumericGreaterThanEquals"] = 1
    return machine


def test_a_timeline_reads_both(aws: Aws) -> None:
    """The same lanes, waits and Tasks, whatever the states are called and however many lie between."""
    lanes = []
    for machine in (former(), definition("connections")):
        aws.put()
        execution = aws.run(_at_once(), machine=machine)
        rows = spans.rows(execution.history)
        lanes.append([(span.lane, span.kind, span.from_ms, span.to_ms, span.error) for span in spans.spans(rows)])
        assert {name[-1] for _, name in entered(execution) if name[-2:] in (" A", " B")} <= {"A", "B"}
    assert lanes[0] == lanes[1]
    assert [row[:2] for row in lanes[0]][:4] == [("A", "wait"), ("B", "task"), ("B", "wait"), ("A", "task")]


def _at_once() -> Any:
    """A function that is taken over after a second, three times, and then sees the stream's end."""
    calls: list[Any] = []

    async def function(payload: Any, lambda_context: Any) -> Any:
        calls.append(payload)
        clock = lambda_context.clock
        await clock.sleep_until(clock.now_ms() + 1000)
        if len(calls) > 3:
            return {"status": "ended"}
        raise type("StreamTakenOver", (Exception,), {})

    return function


def test_the_deployed_machine_with_the_former_function_is_renewed(aws: Aws) -> None:
    """A deployment that is taken back may leave it with code that knows of no cycles: its history stays bounded."""

    async def function(_payload: Any, lambda_context: Any) -> Any:
        clock = lambda_context.clock
        await clock.sleep_until(clock.now_ms() + 1000)
        if aws.started:
            return {"status": "superseded"}
        raise type("StreamTakenOver", (Exception,), {})

    execution = aws.run(function, machine=definition("connections", "test"))
    assert execution.output == {"status": "superseded"}
    names = [name for _, name in entered(execution)]
    # One that called no function, for the lease was not read yet, and one that learned of the successor.
    assert names.count("Connect B") == 115 + 2
    assert len(execution.history) < ALLOWED

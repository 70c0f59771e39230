"""UpdateMapRun changes the bounds of a running Map Run and is refused for any other."""

import json
from typing import Any

import pytest

from endpoint import await_end, create_machine, distributed_map, line_of, refusal
from patience import until
from states_language.server import map_runs

BOUNDS = ("maxConcurrency", "toleratedFailureCount", "toleratedFailurePercentage")


def start_map_run(states: Any, name: str, **fields: Any) -> tuple[str, str]:
    """Return the ARNs of an execution and its Map Run of four executions that wait."""
    mapped = distributed_map(W={"Type": "Wait", "Seconds": 600, "End": True})
    arn = create_machine(states, name, line_of(M={**mapped, **fields}))
    execution = states.start_execution(stateMachineArn=arn, input="[1, 2, 3, 4]")["executionArn"]

    def begun() -> str:
        runs = states.list_map_runs(executionArn=execution)["mapRuns"]
        if not runs or not execution_statuses(states, runs[0]["mapRunArn"]):
            return ""
        return str(runs[0]["mapRunArn"])

    return execution, until(begun)


def execution_statuses(states: Any, run: str) -> list[str]:
    """Return the statuses of the executions of a Map Run, oldest first."""
    listed = states.list_executions(mapRunArn=run)["executions"]
    return [one["status"] for one in reversed(listed)]


def stop_first(states: Any, run: str) -> None:
    """Stop the oldest running execution."""
    listed = states.list_executions(mapRunArn=run, statusFilter="RUNNING")["executions"]
    states.stop_execution(executionArn=listed[-1]["executionArn"])


def test_concurrency_and_tolerance_change_while_a_map_run_runs(states: Any) -> None:
    """A higher concurrency starts more at once, a lower one waits for ends. The new tolerance judges each failure."""
    execution, run = start_map_run(states, "bounds", MaxConcurrency=1)
    assert execution_statuses(states, run) == ["RUNNING"]
    assert "ResponseMetadata" in states.update_map_run(mapRunArn=run, maxConcurrency=3, toleratedFailureCount=3)
    assert until(lambda: execution_statuses(states, run) == ["RUNNING"] * 3)
    described = states.describe_map_run(mapRunArn=run)
    assert [described[name] for name in BOUNDS] == [3, 3, 0.0]
    states.update_map_run(mapRunArn=run, maxConcurrency=1)
    for ended in (1, 2):
        stop_first(states, run)
        assert until(lambda: execution_statuses(states, run).count("ABORTED") == ended)  # noqa: B023
        assert len(execution_statuses(states, run)) == 3
    stop_first(states, run)
    assert until(lambda: execution_statuses(states, run) == ["ABORTED"] * 3 + ["RUNNING"])
    states.update_map_run(mapRunArn=run, toleratedFailureCount=2)
    assert await_end(states, execution)["error"] == "States.ExceedToleratedFailureThreshold"
    assert execution_statuses(states, run) == ["ABORTED"] * 4


def test_a_concurrency_of_0_starts_all_and_a_percentage_is_kept(states: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A maxConcurrency of 0 starts all executions, and DescribeMapRun returns the percentage as sent.

    An execution beyond those that are listed can be stopped all the same.
    """
    execution, run = start_map_run(states, "no-bound", MaxConcurrency=2)
    states.update_map_run(mapRunArn=run, maxConcurrency=0, toleratedFailurePercentage=49.5)
    assert until(lambda: execution_statuses(states, run) == ["RUNNING"] * 4)
    assert states.describe_map_run(mapRunArn=run)["toleratedFailurePercentage"] == 49.5
    last = states.list_executions(mapRunArn=run)["executions"][0]["executionArn"]
    with monkeypatch.context() as fewer:
        fewer.setattr(map_runs, "MOST_EXECUTIONS", 3)
        states.stop_execution(executionArn=last)
    assert until(lambda: execution_statuses(states, run).count("ABORTED") == 1)
    assert states.describe_execution(executionArn=execution)["status"] == "RUNNING"
    stop_first(states, run)
    assert await_end(states, execution)["status"] == "FAILED"


def test_an_ended_execution_keeps_a_bounded_amount_of_its_map_runs(
    states: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first child executions keep input and history; DescribeExecution marks the data of others as not included."""
    arn = create_machine(states, "bounded", line_of(M=distributed_map(P={"Type": "Pass", "End": True})))
    monkeypatch.setattr(map_runs, "MOST_KEPT", 10_000)
    items = json.dumps(["x" * 1000, "y" * 3000])
    execution = states.start_execution(stateMachineArn=arn, input=items)["executionArn"]
    assert await_end(states, execution)["status"] == "SUCCEEDED"
    run = states.list_map_runs(executionArn=execution)["mapRuns"][0]["mapRunArn"]
    last, first = (one["executionArn"] for one in states.list_executions(mapRunArn=run)["executions"])
    kept, cut = (states.describe_execution(executionArn=one) for one in (first, last))
    assert (json.loads(kept["input"])[:2], kept["inputDetails"]) == ("xx", {"included": True})
    assert ("input" in cut, cut["inputDetails"], cut["outputDetails"]) == (False, *[{"included": False}] * 2)
    assert len(states.get_execution_history(executionArn=first)["events"]) == 4
    assert refusal(states.get_execution_history, executionArn=last)[0] == "ExecutionDoesNotExist"


def test_a_percentage_above_a_hundred_is_refused(states: Any) -> None:
    """The message names the member and its bound (botocore itself refuses values that are too low)."""
    run = "arn:aws:states:us-east-1:000000000000:mapRun:m/l:n"
    assert refusal(states.update_map_run, mapRunArn=run, toleratedFailurePercentage=100.5) == (
        "ValidationException",
        "1 validation error detected: Value '100.5' at 'toleratedFailurePercentage' failed to satisfy constraint: "
        "Member must have value less than or equal to 100",
    )


def test_an_unknown_or_ended_map_run_is_not_updated(states: Any) -> None:
    """An unknown Map Run, an ended one and an ARN of another kind are refused with AWS's error names."""
    execution, run = start_map_run(states, "ended")
    states.stop_execution(executionArn=execution)
    ended = refusal(states.update_map_run, mapRunArn=run, maxConcurrency=1)
    assert ended == ("ValidationException", "The Map Run is ABORTED; only one that is RUNNING can be updated.")
    unknown = refusal(states.update_map_run, mapRunArn=run + "x", maxConcurrency=1)
    assert unknown == ("ResourceNotFound", f"Resource not found: '{run}x'")
    assert refusal(states.update_map_run, mapRunArn=execution, maxConcurrency=1)[0] == "InvalidArn"

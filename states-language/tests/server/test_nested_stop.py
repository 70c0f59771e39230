"""The end of a `.sync` Task or a Map Run stops the executions that it started, at any depth."""

from typing import Any

import pytest

from endpoint import await_end, create_machine, distributed_map, line_of, run_to_end
from patience import until

SYNC = "arn:aws:states:::states:startExecution.sync"
LAST = {"Type": "Wait", "Seconds": 600, "End": True}
LEAF = line_of(Wait=LAST)
FAIL = line_of(Pause={"Type": "Wait", "Seconds": 2, "Next": "F"}, F={"Type": "Fail"})


def nested_task(machine_arn: str, version: str = ":2") -> dict[str, Any]:
    """Return a state that starts the machine and waits for it."""
    return {"Type": "Task", "Resource": SYNC + version, "Parameters": {"StateMachineArn": machine_arn}, "End": True}


def parallel_with_failure(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a Parallel whose other branch fails after a while."""
    return {"Type": "Parallel", "Branches": [line_of(Beside=state), FAIL], **(more or {"End": True})}


def parent_definitions(middle: str) -> dict[str, dict[str, Any]]:
    """Return machines that start the middle machine, which starts the leaf."""
    mapped = {"Type": "Map", "ItemProcessor": line_of(Nest=nested_task(middle)), "End": True}
    apart = distributed_map(Nest=nested_task(middle))
    caught = parallel_with_failure(
        nested_task(middle), Catch=[{"ErrorEquals": ["States.ALL"], "Next": "Wait"}], Next="Wait"
    )
    late = {"TimeoutSeconds": 2}
    return {"stopped": line_of(Nest=nested_task(middle)), "stopped with .sync": line_of(Nest=nested_task(middle, "")),
            "stopped in a Map": line_of(Map=mapped), "stopped in a Map Run": line_of(Map=apart),
            "timed out": line_of(Nest=nested_task(middle)) | late, "timed out in a Map Run": line_of(Map=apart) | late,
            "failed beside": line_of(Both=parallel_with_failure(nested_task(middle))),
            "failed beside a Map Run": line_of(Both=parallel_with_failure(apart)),
            "caught": line_of(Both=caught, Wait=LAST)}  # fmt: skip


@pytest.mark.parametrize("case", parent_definitions("arn"))
def test_nested_executions_are_aborted_at_any_depth(states: Any, case: str) -> None:
    """Child and grandchild are ABORTED. Each history ends with ExecutionAborted, without error and cause."""
    name = case.replace(" ", "-")
    leaf = create_machine(states, f"leaf-{name}", LEAF)
    middle = create_machine(states, f"middle-{name}", line_of(Nest=nested_task(leaf)))
    parent = create_machine(states, f"parent-{name}", parent_definitions(middle)[case])
    execution = states.start_execution(stateMachineArn=parent, input="[1, 2]")["executionArn"]
    count = 2 if "Map" in case else 1

    def below() -> list[str]:
        return [
            one["executionArn"]
            for machine in (middle, leaf)
            for one in states.list_executions(stateMachineArn=machine)["executions"]
        ]

    assert until(lambda: len(below()) == 2 * count)
    if case.startswith("stopped"):
        states.stop_execution(executionArn=execution)
    for arn in below():
        assert await_end(states, arn)["status"] == "ABORTED"
        last = states.get_execution_history(executionArn=arn, reverseOrder=True, maxResults=1)["events"][0]
        assert (last["type"], last["previousEventId"], last["executionAbortedEventDetails"]) == (
            "ExecutionAborted", 0, {},
        )  # fmt: skip
    for run in states.list_map_runs(executionArn=execution)["mapRuns"]:
        described = states.describe_map_run(mapRunArn=run["mapRunArn"])
        assert (described["status"], described["executionCounts"]["aborted"]) == ("ABORTED", 2)
    if case == "caught":
        states.stop_execution(executionArn=execution)
    wanted = {"stopped": "ABORTED", "caught": "ABORTED", "timed": "TIMED_OUT", "failed": "FAILED"}
    assert await_end(states, execution)["status"] == wanted[case.split()[0]]


def test_one_execution_of_a_map_run_is_stopped_by_its_arn(states: Any) -> None:
    """A stopped child execution keeps error and cause; its nested execution is aborted and its Map Run fails."""
    leaf = create_machine(states, "leaf-of-run", LEAF)
    parent = create_machine(states, "runs", line_of(Map=distributed_map(Nest=nested_task(leaf))))
    execution = states.start_execution(stateMachineArn=parent, input="[1]")["executionArn"]
    assert until(lambda: states.list_executions(stateMachineArn=leaf)["executions"])
    (run,) = states.list_map_runs(executionArn=execution)["mapRuns"]
    (child,) = states.list_executions(mapRunArn=run["mapRunArn"])["executions"]
    stopped = states.stop_execution(executionArn=child["executionArn"], error="Enough", cause="of it")
    assert await_end(states, execution)["error"] == "States.ExceedToleratedFailureThreshold"
    described = states.describe_execution(executionArn=child["executionArn"])
    assert (described["status"], described["error"], described["cause"]) == ("ABORTED", "Enough", "of it")
    (below,) = states.list_executions(stateMachineArn=leaf)["executions"]
    assert await_end(states, below["executionArn"])["status"] == "ABORTED"
    assert states.stop_execution(executionArn=child["executionArn"])["stopDate"] == stopped["stopDate"]


@pytest.mark.parametrize("version", ["", ":2"])
def test_a_sync_task_cannot_start_an_express_machine(states: Any, version: str) -> None:
    """An Express execution cannot be described, so the Task fails with Step Functions' error name and starts none."""
    express = create_machine(states, f"express{version[1:]}", LEAF, type="EXPRESS")
    arn = create_machine(states, f"waits-for-express{version[1:]}", line_of(Nest=nested_task(express, version)))
    ended = run_to_end(states, arn)
    assert ended["error"] == "StepFunctions.StateMachineTypeNotSupportedException"
    assert ended["cause"].startswith("This operation is not supported by this type of state machine (")

"""The branches of a Parallel begin together and have their own event chains; the first failure ends the others."""

import asyncio
from typing import Any

from machines import error_class, event_chain, event_times_ms, event_types, line, machine, task
from states_language.clock import VirtualClock
from states_language.tasks.lambdas import Functions


async def sleep_for_payload(payload: Any, _lambda_context: Any) -> Any:
    await asyncio.sleep(payload["sleep_s"])
    if payload.get("error"):
        raise error_class(payload["error"])(payload["error"])
    return payload["sleep_s"]


def branch_of(sleep_s: int, error: str | None = None, **fields: Any) -> dict[str, Any]:
    state = task(ResultSelector={"slept.$": "$.Payload"}, **fields)
    state["Parameters"] = {"FunctionName": "work", "Payload": {"sleep_s": sleep_s, "error": error}}
    return state


WAIT: dict[str, Any] = {"Type": "Wait", "Seconds": 10}
PASS: dict[str, Any] = {"Type": "Pass"}


def test_the_output_is_the_branches_outputs_in_the_order_of_the_definition() -> None:
    """The output has the definition's order. The event chain goes on from the branch that ended last."""
    parallel = {"Type": "Parallel", "Branches": [line(("A", branch_of(3))), line(("B", branch_of(1)))]}
    execution = machine(("P", parallel)).execute(functions={"work": sleep_for_payload})
    assert execution.output == [{"slept": 3}, {"slept": 1}]
    assert event_chain(execution) == [
        (1, 0, "ExecutionStarted"),
        (2, 0, "ParallelStateEntered"),
        (3, 2, "ParallelStateStarted"),
        (4, 3, "TaskStateEntered"),
        (5, 4, "TaskScheduled"),
        (6, 5, "TaskStarted"),
        (7, 3, "TaskStateEntered"),
        (8, 7, "TaskScheduled"),
        (9, 8, "TaskStarted"),
        (10, 9, "TaskSucceeded"),
        (11, 10, "TaskStateExited"),
        (12, 6, "TaskSucceeded"),
        (13, 12, "TaskStateExited"),
        (14, 13, "ParallelStateSucceeded"),
        (15, 13, "ParallelStateExited"),
        (16, 15, "ExecutionSucceeded"),
    ]


def test_the_first_failure_aborts_the_siblings_at_once() -> None:
    """The first failure is the Parallel's error. Open states are aborted, then ParallelStateFailed follows."""
    inner = {"Type": "Parallel", "Branches": [line(("I", WAIT)), line(("J", PASS))]}
    branches = [line(("A", WAIT)), line(("B", branch_of(3, "Broken"))), line(("C", branch_of(60))), line(("D", inner))]
    execution = machine(("P", {"Type": "Parallel", "Branches": branches})).execute(
        functions={"work": sleep_for_payload}
    )
    assert (execution.status, execution.error) == ("FAILED", "Broken")
    failed = next(event["id"] for event in execution.history if event["type"] == "TaskFailed")
    assert event_chain(execution)[failed:] == [
        (failed + 1, failed, "TaskStateAborted"),
        (failed + 2, failed, "WaitStateAborted"),
        (failed + 3, failed, "TaskStateAborted"),
        (failed + 4, failed, "ParallelStateAborted"),
        (failed + 5, failed, "WaitStateAborted"),
        (failed + 6, failed, "ParallelStateFailed"),
        (failed + 7, failed + 6, "ExecutionFailed"),
    ]
    assert event_times_ms(execution, "ExecutionFailed") == [3000]


def test_an_aborted_branch_never_runs_on() -> None:
    """An aborted branch adds no events, even a minute later, and its function's answer is ignored."""
    clock = VirtualClock()
    answered: list[str] = []

    async def work(payload: Any, _lambda_context: Any) -> Any:
        result = await sleep_for_payload(payload, None)
        answered.append("the sibling's function")
        return result

    sandbox = Functions(clock, {"work": work})
    branches = [line(("A", branch_of(20)), ("Then", PASS)), line(("B", branch_of(1, "Broken")))]
    branches[0]["States"]["A"] = {**branch_of(20), "Next": "Then"}
    catch = [{"ErrorEquals": ["Broken"], "Next": "After"}]
    states = [("P", {"Type": "Parallel", "Branches": branches, "Catch": catch}), ("After", WAIT)]

    async def main() -> Any:
        execution = await machine(*states).start({}, clock=clock, perform=sandbox.perform).wait()
        await asyncio.sleep(60)
        return execution

    execution = clock.run(main())
    assert event_types(execution)[-6:] == ["TaskStateAborted", "ParallelStateFailed", "ParallelStateExited",
                                     "WaitStateEntered", "WaitStateExited", "ExecutionSucceeded"]  # fmt: skip
    assert answered == ["the sibling's function"]


def test_states_runtime_in_a_branch_fails_the_whole_execution() -> None:
    """States.Runtime in a branch fails the execution. No Catcher of the Parallel takes it, not even States.ALL."""
    broken = {"Type": "Pass", "InputPath": "$.no"}
    catch = [{"ErrorEquals": ["States.ALL"], "Next": "After"}]
    branches = [line(("A", WAIT)), line(("B", broken))]
    states = [("P", {"Type": "Parallel", "Branches": branches, "Catch": catch}), ("After", PASS)]
    execution = machine(*states).execute()
    assert (execution.status, execution.error) == ("FAILED", "States.Runtime")
    assert execution.cause == (
        "An error occurred while executing the state 'B' (entered at the event id #5). "
        "Invalid path '$.no' : No results for path: $['no']"
    )
    assert event_types(execution)[-1] == "ExecutionFailed"

"""Tasks that are answered later: by the holder of a task token, at the end of a job, or by an activity's worker."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from machines import event_times_ms, event_types, machine
from states_language import Behaviour, Execution, TaskCall, TaskFailure, Tokens
from states_language.tasks.callbacks import Ended, complete_from_execution, is_token
from states_language.testing import run_machine

SEND = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
STATE = {"Type": "Task", "Resource": SEND, "Parameters": {"QueueUrl": "q", "MessageBody": {"token.$": "$$.Task.Token"}}}
NESTED = {"Type": "Task", "Resource": "arn:aws:states:::states:startExecution.sync:2", "Parameters": {}}
Holder = Callable[[Tokens, str], Coroutine[Any, Any, None]]
NINE_SECONDS = [step for _ in range(5) for step in (9, ("heartbeat",))]


def scripted_holder(*steps: Any) -> Holder:
    """Return a token's holder. Each step is seconds to wait, or a method to call with the token and arguments."""

    async def holder(tokens: Tokens, token: str) -> None:
        for step in steps:
            if isinstance(step, int):
                await asyncio.sleep(step)
            else:
                getattr(tokens, step[0])(token, *step[1:])

    return holder


def run_with_holder(holder: Holder, caught: str | None = None, **fields: Any) -> Execution:
    """Return the execution of one callback Task whose message gives `holder` the token. `caught` adds a Catcher."""
    tokens = Tokens()
    works: list[asyncio.Task[None]] = []

    async def perform(call: TaskCall) -> Any:
        works.append(asyncio.get_running_loop().create_task(holder(tokens, call.parameters["MessageBody"]["token"])))
        return {"MessageId": "m"}

    catch = {"Catch": [{"ErrorEquals": [caught], "Next": "Caught"}]} if caught else {}
    states = [("S", {**STATE, **fields, **catch}), ("Caught", {"Type": "Succeed"})]
    return machine(*states[: 2 if caught else 1]).execute(perform=perform, tokens=tokens)


def test_heartbeats_keep_a_task_alive_until_they_stop() -> None:
    """Each heartbeat restarts HeartbeatSeconds; a missed one is States.Timeout. TimeoutSeconds is not extended."""
    execution = run_with_holder(scripted_holder(*NINE_SECONDS), HeartbeatSeconds=10, TimeoutSeconds=600)
    assert (execution.error, event_types(execution)[-2:]) == ("States.Timeout", ["TaskTimedOut", "ExecutionFailed"])
    assert event_times_ms(execution, "TaskTimedOut") == [55_000]
    assert event_times_ms(
        run_with_holder(scripted_holder(*NINE_SECONDS), HeartbeatSeconds=10, TimeoutSeconds=30), "TaskTimedOut"
    ) == [30_000]


@pytest.mark.parametrize(
    ("error", "caught"),
    [("States.HeartbeatTimeout", True), ("States.Timeout", True), ("States.ALL", True), ("States.TaskFailed", False)],
)
def test_a_missed_heartbeat_is_caught_under_both_names(error: str, caught: bool) -> None:
    """States.HeartbeatTimeout and States.Timeout catch a missed heartbeat. The first is no TimeoutSeconds."""
    execution = run_with_holder(scripted_holder(), error, HeartbeatSeconds=10, TimeoutSeconds=11)
    assert (event_types(execution)[5:7] == ["TaskTimedOut", "TaskStateExited"]) is caught
    assert (execution.status == "FAILED") is not caught
    late = run_with_holder(scripted_holder(), "States.HeartbeatTimeout", TimeoutSeconds=11)
    assert (late.status, late.error) == ("FAILED", "States.Timeout")


def test_each_attempt_has_its_own_token() -> None:
    """A retried Task waits for a new token."""
    tokens: list[str] = []

    async def holder(registry: Tokens, token: str) -> None:
        tokens.append(token)
        if len(tokens) == 1:
            registry.fail(token, "Again", "not yet")
        else:
            registry.succeed(token, tokens)

    assert len(set(run_with_holder(holder, Retry=[{"ErrorEquals": ["Again"]}]).output)) == 2
    assert all(map(is_token, tokens))


def test_a_service_that_refuses_the_request_fails_the_callback_task() -> None:
    """If the service refuses the request, the history has TaskSubmitFailed and the Task does not wait for the token."""

    async def perform(_call: TaskCall) -> Any:
        raise TaskFailure("SQS.QueueDoesNotExistException", "none")

    execution = machine(("S", STATE)).execute(perform=perform)
    assert event_types(execution)[-2:] == ["TaskSubmitFailed", "ExecutionFailed"]
    assert execution.error == "SQS.QueueDoesNotExistException"


def test_a_task_without_a_callback_has_no_token_in_its_context() -> None:
    """$$.Task.Token of a Task without .waitForTaskToken fails with States.Runtime."""
    plain = {**STATE, "Resource": "arn:aws:states:::sqs:sendMessage"}
    assert machine(("S", plain)).execute().error == "States.Runtime"


ENDED = Ended("arn:e", "arn:m", "e", "SUCCEEDED", '{"a":1}', 5, 7, output='{"b":2}')


def run_nested(resource: str, ended: Ended) -> Execution:
    """Return the execution of a Task that starts an execution and waits for its end."""

    async def perform(call: TaskCall) -> Any:
        assert call.pending is not None
        complete_from_execution(call.pending, call.pattern, ended)
        return {"ExecutionArn": "arn:e"}

    return machine(("S", {**NESTED, "Resource": f"arn:aws:states:::states:startExecution.{resource}"})).execute(
        perform=perform
    )


def test_a_nested_execution_gives_its_output_as_text_or_as_json() -> None:
    """.sync returns the nested execution's input and output as texts, .sync:2 as JSON."""
    whole = {"ExecutionArn": "arn:e", "InputDetails": {"Included": True}, "Name": "e",
             "OutputDetails": {"Included": True}, "StartDate": 5, "StateMachineArn": "arn:m", "Status": "SUCCEEDED",
             "StopDate": 7}  # fmt: skip
    assert run_nested("sync", ENDED).output == whole | {"Input": '{"a":1}', "Output": '{"b":2}'}
    assert run_nested("sync:2", ENDED).output == whole | {"Input": {"a": 1}, "Output": {"b": 2}}


@pytest.mark.parametrize("pattern", ["sync", "sync:2"])
def test_a_nested_execution_that_fails_fails_the_task(pattern: str) -> None:
    """The error is States.TaskFailed. The cause describes the execution, its input as text in both forms."""
    execution = run_nested(pattern, Ended("arn:e", "arn:m", "e", "FAILED", "{}", 5, 7, error="Bad"))
    assert (execution.error, execution.cause) == (
        "States.TaskFailed",
        '{"Error":"Bad","ExecutionArn":"arn:e","Input":"{}","InputDetails":{"Included":true},"Name":"e",'
        '"StartDate":5,"StateMachineArn":"arn:m","Status":"FAILED","StopDate":7}',
    )


APPROVE = {"Type": "Task", "Resource": "arn:aws:states:us-east-1:123456789012:activity:approve"}


@pytest.mark.parametrize(
    ("answer", "limits", "seconds", "events"),
    [
        (Behaviour(never=True), {"TimeoutSeconds": 10, "HeartbeatSeconds": 3}, 10, ["Scheduled", "TimedOut"]),
        (Behaviour(delay_ms=9000), {"HeartbeatSeconds": 3}, 3, ["Scheduled", "Started", "TimedOut"]),
        (Behaviour(answer=1, delay_ms=2000), {"HeartbeatSeconds": 3}, 2, ["Scheduled", "Started", "Succeeded"]),
        (TaskFailure(None, "no"), {"TimeoutSeconds": 10}, 0, ["Scheduled", "Started", "Failed"]),
    ],
)
def test_an_activity_is_scheduled_before_its_worker_starts(
    answer: Any, limits: dict[str, int], seconds: int, events: list[str]
) -> None:
    """An activity that no worker polls times out. HeartbeatSeconds counts from the worker's start."""
    run = run_machine(machine(("A", {**APPROVE, **limits})), {"n": 1}, functions={"activity:approve": answer})
    scheduled = run.history[2]["activityScheduledEventDetails"]
    assert (scheduled["resource"], scheduled["input"]) == (APPROVE["Resource"], '{"n":1}')
    assert (run.elapsed_s, [event["type"] for event in run.history if "Activity" in event["type"]]) == (
        seconds,
        [f"Activity{event}" for event in events],
    )


def test_an_activity_without_a_prepared_answer_fails_the_execution() -> None:
    """An activity without a prepared answer does not exist: the execution fails and nothing is scheduled (recorded)."""
    execution = machine(("A", APPROVE)).execute()
    assert (execution.error, event_types(execution)[2:]) == ("States.Runtime", ["ExecutionFailed"])


def test_a_worker_that_asserts_fails_the_test() -> None:
    """A worker's AssertionError fails the test. The worker runs beside the execution, so no Catcher hides the error."""

    def work(_payload: Any, _context: Any) -> None:
        raise AssertionError("not approved")

    with pytest.raises(AssertionError, match="not approved"):
        run_machine(machine(("A", APPROVE)), functions={"A": work})

"""A server in which Waits take no real time, in a thread of the test's process."""

import time
from typing import Any

import pytest

from endpoint import await_end, create_machine, line_of, task_definition
from states_language import Behaviour, TaskFailure
from states_language.server.threaded import Server

DAY_S = 86_400


def _wait(seconds: int, **more: Any) -> dict[str, Any]:
    return {"Type": "Wait", "Seconds": seconds, **more}


def _run(states: Any, definition: dict[str, Any], name: str = "m") -> tuple[dict[str, Any], list[dict[str, Any]]]:
    execution = states.start_execution(stateMachineArn=create_machine(states, name, definition))["executionArn"]
    return await_end(states, execution), states.get_execution_history(executionArn=execution)["events"]


def test_waits_of_branches_end_in_their_order_and_take_no_time() -> None:
    """Two branches wait two days and ten seconds. Each state leaves at its virtual time, in order, within a minute."""
    slow = line_of(A=_wait(DAY_S, Next="B"), B=_wait(DAY_S, End=True))
    quick = line_of(C=_wait(3, Next="D"), D=_wait(7, End=True))
    definition = line_of(P={"Type": "Parallel", "Branches": [slow, quick], "End": True})
    begun = time.monotonic()
    with Server() as server:
        done, events = _run(server.client(), definition)
        assert done["status"] == "SUCCEEDED"
    left = [(one["stateExitedEventDetails"]["name"], one["timestamp"]) for one in events if "stateExited" in str(one)]
    first = events[0]["timestamp"]
    assert [name for name, _ in left] == ["C", "D", "A", "B", "P"]
    assert [round((at - first).total_seconds() / 60) for _, at in left] == [0, 0, 1440, 2880, 2880]
    assert time.monotonic() - begun < 60


def test_virtual_time_stands_while_a_function_or_a_token_holder_works() -> None:
    """So a time-out is as long as it says. Retries take no real time."""
    task = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Parameters": {"FunctionName": "f"}}
    retry = [{"ErrorEquals": ["Busy"], "IntervalSeconds": 3600, "MaxAttempts": 2}]
    asks = {"Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken", "Parameters": {"QueueUrl": "q"}}
    held = {**task, **asks, "HeartbeatSeconds": 30, "End": True}
    definition = line_of(A={**task, "TimeoutSeconds": 60, "Retry": retry, "Next": "T"}, T=held)
    with Server() as server:
        states, attempts = server.client(), list[int]()
        server.functions["A"] = lambda _payload, context: attempts.append(context.attempt)
        server.functions["T"] = Behaviour(answer={"token": 1}, delay_ms=200)
        done, events = _run(states, definition)
        assert (done["status"], attempts) == ("SUCCEEDED", [1])
        server.functions["A"] = TaskFailure("Busy")
        done, events = _run(states, definition, "busy")
    assert (done["status"], done["error"]) == ("FAILED", "Busy")
    assert (done["stopDate"] - done["startDate"]).total_seconds() == pytest.approx(3 * 3600, abs=5)
    assert [one["type"] for one in events].count("TaskFailed") == 3


def test_a_nested_execution_and_an_express_machine_have_times_of_their_own() -> None:
    with Server() as server:
        states = server.client()
        nested = {"StateMachineArn": create_machine(states, "waits", line_of(W=_wait(DAY_S, End=True)))}
        outer = task_definition("arn:aws:states:::states:startExecution.sync:2", nested, End=True)
        done, _ = _run(states, outer)
        assert done["status"] == "SUCCEEDED"
        express = create_machine(states, "express", line_of(W=_wait(200, End=True)), type="EXPRESS")
        answer = states.start_sync_execution(stateMachineArn=express)
        assert answer["status"] == "SUCCEEDED"
        assert (answer["stopDate"] - answer["startDate"]).total_seconds() >= 200


def test_a_call_without_an_answer_is_a_mistake() -> None:
    with Server() as server:
        done, _ = _run(
            server.client(), task_definition("arn:aws:states:::dynamodb:getItem", {"TableName": "t"}, End=True)
        )
        assert done["status"] == "FAILED"
        (mistake,) = server.mistakes
    assert "'S' calls 'dynamodb:getItem', which has no answer" in str(mistake)

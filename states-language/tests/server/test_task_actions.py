"""Task tokens as their holder uses them."""

import json
from typing import Any

import pytest

from endpoint import (
    handed_over,
    over,
    refusal,
)
from patience import until


def test_the_holder_of_a_token_ends_the_task(states: Any) -> None:
    """A function gets the token; SendTaskSuccess sets the result, once."""
    execution, token = handed_over(states, "token-success")
    states.send_task_heartbeat(taskToken=token)
    assert refusal(states.send_task_success, taskToken=token, output="{")[0] == "InvalidOutput"
    states.send_task_success(taskToken=token, output='{"done": true}')
    assert json.loads(over(states, execution)["output"]) == {"done": True}
    closed = ("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
    assert refusal(states.send_task_success, taskToken=token, output="{}") == closed
    assert refusal(states.send_task_heartbeat, taskToken=token) == closed
    assert refusal(states.send_task_failure, taskToken="none") == ("InvalidToken", "Invalid Token: 'Invalid token'")


@pytest.mark.parametrize("output", ["{}", "not JSON", '"' + "x" * 300_000 + '"'])
def test_a_bad_token_is_refused_whatever_the_output(states: Any, output: str) -> None:
    """SendTaskSuccess looks at the token first."""
    refused = refusal(states.send_task_success, taskToken="none", output=output)
    assert refused == ("InvalidToken", "Invalid Token: 'Invalid token'")


def test_the_holder_of_a_token_fails_the_task(states: Any) -> None:
    """SendTaskFailure sets error and cause."""
    execution, token = handed_over(states, "token-failure")
    states.send_task_failure(taskToken=token, error="Bad", cause="It was.")
    ended = over(states, execution)
    assert (ended["status"], ended["error"], ended["cause"]) == ("FAILED", "Bad", "It was.")


def test_the_tokens_of_a_stopped_execution_are_closed(states: Any) -> None:
    """SendTaskSuccess is refused."""
    execution, token = handed_over(states, "token-stopped")
    states.stop_execution(executionArn=execution)
    assert until(lambda: refusal(states.send_task_success, taskToken=token, output="1")[0] == "TaskTimedOut")


def test_a_missed_heartbeat_times_the_task_out(states: Any) -> None:
    """HeartbeatSeconds without SendTaskHeartbeat is States.Timeout."""
    execution, _ = handed_over(states, "token-silence", HeartbeatSeconds=1)
    ended = over(states, execution)
    assert (ended["status"], ended["error"]) == ("FAILED", "States.Timeout")

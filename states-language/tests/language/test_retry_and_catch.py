"""What AWS documents of Retry and Catch, to the millisecond in virtual time.

The published examples are run from files, in tests/workbench/test_attempts.py.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from machines import at_ms, machine, raising, task, types
from states_language import Execution
from states_language.testing import run_machine

FACTS = json.loads((Path(__file__).parent / "data" / "retry-and-catch.json").read_text(encoding="utf-8"))
SCENARIOS = {scenario["name"]: scenario for scenario in FACTS["scenarios"]}
ALWAYS = 1000


def waits_s(execution: Execution) -> list[float]:
    """Return the seconds between the failure of one attempt and the start of the next."""
    ended = at_ms(execution, "TaskFailed") + at_ms(execution, "TaskTimedOut")
    begun = at_ms(execution, "TaskScheduled")[1:]
    return [(begin - end) / 1000 for end, begin in zip(sorted(ended), begun, strict=False)]


def attempts(execution: Execution) -> int:
    return types(execution).count("TaskScheduled")


def replayed(work: Callable[[Any, Any], Any], data: Any = None, **fields: Any) -> Execution:
    """Return an execution of one Task with fallback states for its Catchers."""
    names = {catcher["Next"] for catcher in fields.get("Catch", [])}
    fallbacks = [(name, {"Type": "Pass"}) for name in sorted(names)]
    return machine(("T", task(**fields)), *fallbacks).execute(data, functions={"work": work})


async def sleeps_10_s(payload: Any, _lambda_context: Any) -> Any:
    await asyncio.sleep(10)
    return payload


def test_a_retrier_that_retries_nothing_shields_a_time_out_from_the_next() -> None:
    scenario = SCENARIOS["retry all but a time-out"]
    timed_out = replayed(sleeps_10_s, TimeoutSeconds=2, Retry=scenario["retry"])
    assert attempts(timed_out) - 1 == scenario["on_timeout_retries"]
    other = replayed(raising(*["Other"] * ALWAYS), Retry=scenario["retry"])
    assert waits_s(other) == scenario["on_other_waits_s"]


def test_a_handled_error_is_caught() -> None:
    scenario = SCENARIOS["handled error, caught"]
    states = [
        ("T", task(Catch=scenario["catch"])),
        ("fallback", {"Type": "Pass", "Result": scenario["fallback_result"]}),
    ]
    execution = machine(*states).execute(functions={"work": raising("HandledError")})
    assert (execution.status, execution.output) == (scenario["status"], scenario["fallback_result"])


def test_a_time_out_is_caught() -> None:
    scenario = SCENARIOS["time-out, caught"]
    execution = replayed(sleeps_10_s, TimeoutSeconds=scenario["task_timeout_s"], Catch=scenario["catch"])
    assert at_ms(execution, "PassStateEntered") == [scenario["fallback_at_s"] * 1000]
    assert execution.status == scenario["status"]
    assert execution.output == {"Error": "States.Timeout", "Cause": ""}


def test_the_error_output_stands_beside_the_input_or_replaces_it() -> None:
    scenario = SCENARIOS["error output kept beside the input"]
    beside = replayed(raising("java.lang.Exception"), {"foo": 1}, Catch=scenario["catch"])
    assert beside.output["foo"] == 1
    assert beside.output["error-info"].keys() == {"Error", "Cause"}
    alone = replayed(raising("Other"), {"foo": 1}, Catch=scenario["catch"])
    assert alone.output.keys() == {"Error", "Cause"}


def test_the_defaults_are_three_retries_after_1_2_and_4_s() -> None:
    assert FACTS["defaults"] == {"IntervalSeconds": 1, "MaxAttempts": 3, "BackoffRate": 2.0}
    execution = replayed(raising(*["Any"] * ALWAYS), Retry=[{"ErrorEquals": ["States.ALL"]}])
    assert waits_s(execution) == [1, 2, 4]


def test_a_transition_back_resets_the_counts() -> None:
    """A Catch that leads back to the same Task gives its Retrier all attempts again."""
    retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    catch = [{"ErrorEquals": ["States.ALL"], "ResultPath": None, "Next": "T"}]
    execution = machine(("T", task(Retry=retry, Catch=catch))).execute(functions={"work": raising(*["E"] * 5)})
    assert at_ms(execution, "TaskScheduled") == [0, 1000, 1000, 2000, 2000, 3000]
    assert execution.transitions == 3 + 3


def test_a_null_result_path_of_a_catcher_drops_the_error() -> None:
    catch = [{"ErrorEquals": ["States.ALL"], "ResultPath": None, "Next": "P"}]
    execution = machine(("T", task(Catch=catch)), ("P", {"Type": "Pass"})).execute(7, functions={"work": raising("E")})
    assert execution.output == 7


def test_task_failed_does_not_match_a_time_out() -> None:
    catch = [{"ErrorEquals": ["States.TaskFailed"], "Next": "P"}]
    states = [("T", task(TimeoutSeconds=2, Catch=catch)), ("P", {"Type": "Pass"})]
    assert machine(*states).execute(functions={"work": sleeps_10_s}).error == "States.Timeout"


def test_states_runtime_cannot_be_caught_even_by_name() -> None:
    """A ResultSelector whose path leads nowhere fails the execution at once."""
    catch = [
        {"ErrorEquals": ["States.Runtime"], "Next": "P"},
        {"ErrorEquals": ["States.ALL"], "Next": "P"},
    ]
    states = [("T", task(ResultSelector={"x.$": "$.no"}, Catch=catch)), ("P", {"Type": "Pass"})]
    execution = machine(*states).execute(functions={"work": raising()})
    assert (execution.status, execution.error) == ("FAILED", "States.Runtime")
    assert types(execution)[-2:] == ["TaskSucceeded", "ExecutionFailed"]


OVERSIZED = {"text": "x" * 262_144}
LIMIT = "States.DataLimitExceeded"
OF_SERVICES = {
    "dynamodb:getItem": "arn:aws:states:::dynamodb:getItem",
    "aws-sdk:s3:getObject": "arn:aws:states:::aws-sdk:s3:getObject",
    "aws-sdk:lambda:invoke": "arn:aws:states:::aws-sdk:lambda:invoke",
    "activity:approve": "arn:aws:states:us-east-1:123456789012:activity:approve",
}


def oversized(name: str, resource: str, *error_equals: str) -> str | None:
    """What an answer over the limit comes to: "caught", or the error of the execution."""
    catch = [{"ErrorEquals": [error], "Next": "Caught"} for error in error_equals]
    work = {
        "Type": "Task",
        "Resource": resource,
        "Parameters": {"FunctionName": "work"},
        "Catch": catch,
        "Next": "Done",
    }
    states = {"Work": work, "Caught": {"Type": "Pass", "Result": "caught", "End": True}, "Done": {"Type": "Succeed"}}
    run = run_machine({"StartAt": "Work", "States": states}, {}, functions={name: OVERSIZED})
    return str(run.output) if run.status == "SUCCEEDED" else run.error


@pytest.mark.parametrize("resource", ["arn:aws:states:::lambda:invoke", "arn:aws:lambda:us-east-1:1:function:work"])
def test_states_all_catches_the_oversized_result_of_a_function(resource: str) -> None:
    """AWS recorded it for both ways to name a function."""
    resource = resource.replace(":1:", ":123456789012:")
    assert oversized("work", resource, "States.ALL") == oversized("work", resource, LIMIT) == "caught"


@pytest.mark.parametrize(("name", "resource"), OF_SERVICES.items())
def test_states_all_catches_no_other_oversized_result(name: str, resource: str) -> None:
    """Neither does States.TaskFailed; a Catcher that names the error does."""
    assert oversized(name, resource, "States.TaskFailed", "States.ALL") == LIMIT
    assert oversized(name, resource, LIMIT, "States.ALL") == "caught"

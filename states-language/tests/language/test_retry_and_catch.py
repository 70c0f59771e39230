"""AWS's documented rules of Retry and Catch, to the millisecond in virtual time.

The published examples are run from files, in tests/workbench/test_attempts.py.
"""

import pytest

from machines import event_times_ms, function_raising, machine, task
from states_language.testing import run_machine


def test_the_defaults_are_three_retries_after_1_2_and_4_s() -> None:
    retried = machine(("T", task(Retry=[{"ErrorEquals": ["States.ALL"]}])))
    execution = retried.execute(functions={"work": function_raising(*["Any"] * 9)})
    assert event_times_ms(execution, "TaskScheduled") == [0, 1000, 3000, 7000]


def test_a_transition_back_resets_the_counts() -> None:
    """If a Catcher leads back to its own Task, the Task's Retrier has all attempts again."""
    retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    catch = [{"ErrorEquals": ["States.ALL"], "ResultPath": None, "Next": "T"}]
    execution = machine(("T", task(Retry=retry, Catch=catch))).execute(functions={"work": function_raising(*["E"] * 5)})
    assert event_times_ms(execution, "TaskScheduled") == [0, 1000, 1000, 2000, 2000, 3000]
    assert execution.transitions == 3 + 3


OVERSIZED = {"text": "x" * 262_144}
LIMIT = "States.DataLimitExceeded"
OF_SERVICES = {
    "dynamodb:getItem": "arn:aws:states:::dynamodb:getItem",
    "aws-sdk:s3:getObject": "arn:aws:states:::aws-sdk:s3:getObject",
    "aws-sdk:lambda:invoke": "arn:aws:states:::aws-sdk:lambda:invoke",
    "activity:approve": "arn:aws:states:us-east-1:123456789012:activity:approve",
}


def oversized(name: str, resource: str, *error_equals: str) -> str | None:
    """Return "caught" if an answer over the limit is caught, or else the error of the execution."""
    catch = [{"ErrorEquals": [error], "Next": "Caught"} for error in error_equals]
    work = {**task(), "Resource": resource, "Catch": catch, "Next": "Done"}
    states = ("Work", work), ("Caught", {"Type": "Pass", "Result": "caught"}), ("Done", {"Type": "Succeed"})
    run = run_machine(machine(*states), {}, functions={name: OVERSIZED})
    return str(run.output) if run.status == "SUCCEEDED" else run.error


@pytest.mark.parametrize(("name", "resource"), OF_SERVICES.items())
def test_states_all_does_not_catch_an_oversized_result_of_a_service(name: str, resource: str) -> None:
    """States.ALL and States.TaskFailed do not catch States.DataLimitExceeded. A Catcher that names it does."""
    assert oversized(name, resource, "States.TaskFailed", "States.ALL") == LIMIT
    assert oversized(name, resource, LIMIT, "States.ALL") == "caught"

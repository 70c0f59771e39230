"""The machine that answers a POST: it starts one execution of a stream, or names the one that runs."""

from typing import Any

import pytest

from tests.statemachines.connections import NAMES, Account

PREFIX = "arn:aws-cn:states:cn-north-1:111111111111"
EXECUTION = f"{PREFIX}:execution:{NAMES['connections']}:"
HOLDER = f"{EXECUTION}holder"
POST = {"pathParameters": {"streamId": "demo"}}
LATE_MS = 1_767_225_600_000


def text(value: str) -> dict[str, str]:
    """Returns an attribute of the lease."""
    return {"S": value}


STOP = {"stop": {"BOOL": True}, "stop_at": text("2026-01-01T00:00:01.000Z")}


def test_a_second_post_names_the_running_execution() -> None:
    """It does so even before the first execution has claimed the stream. The input is the POST's and its starter's."""
    account = Account(PREFIX)
    first = account.post()
    assert first == {"executionArn": first["executionArn"], "startDate": LATE_MS / 1000, "already_running": False}
    assert account.post() == first | {"startDate": LATE_MS / 1000 + 0.5, "already_running": True}
    started_by = f"{PREFIX}:express:{NAMES['start']}:1"
    (started,) = account.started
    assert started["StateMachineArn"] == f"{PREFIX}:stateMachine:{NAMES['connections']}"
    assert started["Input"] == POST | {"AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID": started_by}


def test_an_execution_that_holds_the_stream_is_named() -> None:
    """No second execution is started."""
    account = Account(PREFIX, {"holder": "RUNNING"}, execution=text(HOLDER), generation={"N": "3"})
    assert account.post() == {"executionArn": HOLDER, "startDate": 1_767_225_600.5, "already_running": True}
    assert account.started == []


@pytest.mark.parametrize("executions", [{"holder": "ABORTED"}, {}])
def test_a_dead_holder_is_replaced(executions: dict[str, str]) -> None:
    """The holder's execution is over, or Step Functions has forgotten it."""
    account = Account(PREFIX, executions, execution=text(HOLDER), generation={"N": "3"})
    assert [account.post()["already_running"] for _ in range(2)] == [False, True]
    assert len(account.started) == 1


def test_a_post_while_the_stream_stops_starts_one_that_waits() -> None:
    """Repeated POSTs start only one. A later stop request ends that one, and the next POST starts another."""
    account = Account(PREFIX, {"holder": "RUNNING"}, execution=text(HOLDER), generation={"N": "3"}, **STOP)
    assert [account.post()["already_running"] for _ in range(3)] == [False, True, True]
    account.put("demo", stop_at=text("2026-01-01T00:00:02.000Z"))
    assert account.post()["already_running"] is False
    account.put("demo", **STOP, ended_at=text("2026-01-01T00:00:03.000Z"), execution=None)
    assert account.post()["already_running"] is False
    assert len(account.started) == 3


def test_a_new_execution_gets_another_name_if_the_first_is_used_up() -> None:
    """An execution that is over and changed no lease has used the first name. The next has the request's name."""
    account = Account(PREFIX)
    account.executions[account.post()["executionArn"].removeprefix(EXECUTION)] = "FAILED"
    again = account.post()
    assert (again["already_running"], again["executionArn"]) == (False, f"{EXECUTION}request-2")


def test_an_outage_of_the_table_starts_an_execution() -> None:
    """The execution itself then tries to claim the stream, for hours."""
    account = Account(PREFIX, {"holder": "RUNNING"}, execution=text(HOLDER))
    account.failures["getItem"] = ["DynamoDB.InternalServerErrorException"]
    started = {"executionArn": f"{EXECUTION}request-1", "startDate": LATE_MS / 1000, "already_running": False}
    assert account.post() == started


def test_a_start_that_fails_twice_is_a_failure() -> None:
    """The start is tried twice; if its answer was lost, the second try starts nothing more."""
    account = Account(PREFIX)
    account.failures["startExecution"] = ["StepFunctions.SdkClientException"] * 2
    assert account.post() == "NotStarted"
    account.failures["startExecution"] = ["StepFunctions.SdkClientException"]
    assert account.post()["already_running"] is False
    assert len(account.started) == 1


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("StepFunctions.ThrottlingException", "Throttled"),
        ("StepFunctions.ExecutionLimitExceededException", "Throttled"),
        ("StepFunctions.KmsThrottlingException", "Throttled"),
        ("StepFunctions.TooManyRequestsException", "Throttled"),
        ("StepFunctions.ServiceQuotaExceededException", "Throttled"),
        ("StepFunctions.AccessDeniedException", "NotStarted"),
        ("StepFunctions.StateMachineDoesNotExistException", "NotStarted"),
        ("StepFunctions.InternalServerErrorException", "NotStarted"),
        ("States.Timeout", "NotStarted"),
        ("States.TaskFailed", "NotStarted"),
    ],
)
@pytest.mark.parametrize("lease", [{}, {"generation": {"N": "3"}}])
def test_a_throttled_start_is_answered_with_429(error: str, name: str, lease: dict[str, Any]) -> None:
    """The API answers any other failure after one retry with 503."""
    account = Account(PREFIX, **lease)
    account.failures["startExecution"] = [error] * 2
    assert account.post() == name
    account.failures["startExecution"] = [error]
    assert account.post()["already_running"] is False

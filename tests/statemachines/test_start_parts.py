"""The machine that answers a POST of a stream in parts: it starts each part as a POST of that part would."""

from typing import Any

import pytest

from tests.statemachines.connections import NAMES, Account

PREFIX = "arn:aws-cn:states:cn-north-1:111111111111"
PARTS = ["prices:btc", "prices:eth", "prices:sol"]


def post(account: Account, parts: list[str] = PARTS) -> Any:
    """Returns the answer to a POST of the whole stream, with the input that the request template makes."""
    return account.answer({"pathParameters": {"streamId": "prices"}, "parts": parts})


def test_a_post_starts_every_part_and_a_second_says_that_all_run() -> None:
    """Each part has an execution of its own, of the only machine that the role allows. The answer names them."""
    account = Account(PREFIX)
    first = post(account)
    assert {one["StateMachineArn"] for one in account.started} == {f"{PREFIX}:stateMachine:{NAMES['connections']}"}
    assert [one["Input"]["pathParameters"]["streamId"] for one in account.started] == PARTS
    assert [(one["stream"], one["already_running"]) for one in first["parts"]] == [(one, False) for one in PARTS]
    assert len({one["executionArn"] for one in first["parts"]}) == 3
    assert (first["executionArn"], first["already_running"]) == (first["parts"][0]["executionArn"], False)
    assert (post(account)["already_running"], len(account.started)) == (True, 3)


def test_a_part_that_is_over_is_started_beside_those_that_run() -> None:
    """The answer then does not say that the stream was running already."""
    account = Account(PREFIX)
    account.executions[post(account)["parts"][1]["executionArn"].rpartition(":")[2]] = "FAILED"
    again = post(account)
    assert [one["already_running"] for one in again["parts"]] == [True, False, True]
    assert (again["already_running"], len(account.started)) == (False, 4)


@pytest.mark.parametrize(
    ("error", "name"),
    [("StepFunctions.ThrottlingException", "Throttled"), ("StepFunctions.AccessDeniedException", "NotStarted")],
)
def test_a_part_that_cannot_be_started_fails_the_post(error: str, name: str) -> None:
    """A POST of the part alone would fail in the same way; the next POST starts what is missing, and nothing twice."""
    account = Account(PREFIX)
    account.failures["startExecution"] = [error] * 2
    assert post(account, PARTS[:1]) == name
    assert [one["already_running"] for one in post(account)["parts"]] == [False] * 3
    assert len(account.started) == 3


@pytest.mark.parametrize(
    ("error", "name"), [("Sfn.TooManyRequestsException", "Throttled"), ("Sfn.AccessDeniedException", "NotStarted")]
)
def test_a_machine_that_may_not_be_called_fails_the_post(error: str, name: str) -> None:
    """The error has the same name as in any other start."""
    account = Account(PREFIX)
    account.failures["startSyncExecution"] = [error]
    assert post(account) == name

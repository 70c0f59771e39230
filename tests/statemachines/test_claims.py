"""An execution whose claim is impossible for hours delegates it, and one whose input is no request is rejected."""

from itertools import pairwise

import pytest

from local import stages
from tests.statemachines.connections import INPUT, MINE, OTHER, STOPPED_UNBEGUN, Aws, definition
from tests.statemachines.test_connections import ended, entered, scripted


@pytest.mark.parametrize("action", ["updateItem", "getItem", "describeExecution"])
def test_a_claim_outlasts_an_outage(aws: Aws, action: str) -> None:
    """After thirty refusals in a row, first tried again at once and then every few seconds, it takes the stream."""
    aws.put(execution={"S": OTHER}, generation={"N": "6"})
    aws.executions = {OTHER: "ABORTED"}
    aws.failures = {action: ["DynamoDB.InternalServerErrorException"] * 30}
    execution = aws.run(ended)
    assert execution.output == {"status": "ended"}
    steps = entered(execution)
    names = [name for _, name in steps]
    assert names.count("Claim lease") == 15 + 2  # the last but one is refused, the last in place of the dead one
    rests_s = [(later - at_ms) // 1000 for (at_ms, name), (later, _) in pairwise(steps) if name == "Back off"]
    assert rests_s == [0, *[2] * 9, *[4] * 5, 0]


def test_a_claim_that_cannot_be_made_for_hours_is_delegated(aws: Aws) -> None:
    """At the deployed settings 115 tries last for nine hours. Then a successor continues and a dead-letter message is
    sent. The successor gets the instant of the request, and the name of the execution whose claim may have been made.
    """
    aws.failures = {"updateItem": ["DynamoDB.InternalServerErrorException"] * 1000}
    execution = aws.run(ended, machine=definition("connections", "prod"))
    assert (execution.status, execution.output) == ("SUCCEEDED", {"status": "handed_on"})
    rows = entered(execution)
    names = [name for _, name in rows]
    assert names.count("Claim lease") == stages.load("prod")["renew_after"] == 115
    assert names[-4:] == ["Delegate claim", "Send dead-letter message", "Choose ending", "Renewed"]
    assert 8.7 * 3_600_000 < rows[-1][0] < 9.2 * 3_600_000
    (started,) = aws.started
    assert started["Name"].endswith("-claim")
    delegated = {"renews": "", "asked_at": "2026-01-01T00:00:00.000Z", "after": MINE}
    assert started["Input"] == {**INPUT, **delegated, "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID": MINE}
    (body,) = (message["MessageBody"] for message in aws.dead_letters)
    assert (body["stream"], body["error"]) == ("demo", "ClaimFailed")


def test_a_claim_that_no_successor_can_take_over_fails_by_name(aws: Aws) -> None:
    """If the table and Step Functions are both away, the execution tries both for two and a half hours more."""
    aws.failures = {
        "updateItem": ["DynamoDB.InternalServerErrorException"] * 1000,
        "startExecution": ["StepFunctions.ExecutionLimitExceededException"] * 1000,
    }
    execution = aws.run(ended, machine=definition("connections", "prod"))
    assert (execution.status, execution.error) == ("FAILED", "ClaimFailed")
    rows = entered(execution)
    assert [name for _, name in rows].count("Delegate claim") == 29
    assert [name for _, name in rows].count("Claim lease") == int(stages.load("prod")["give_up_after"]) - 1 == 144
    assert (rows[-1][1], rows[-1][0] > 11.1 * 3_600_000) == ("Broken", True)


@pytest.mark.parametrize("renews", ["", OTHER])
def test_a_successor_recognizes_a_claim_whose_answer_was_lost(aws: Aws, renews: str) -> None:
    """The claim's answer was lost for hours. The successor takes it over before the first execution ends."""
    before = f"{OTHER}-before"
    aws.executions[before] = "RUNNING"
    aws.put(execution={"S": before}, generation={"N": "4"})
    execution = aws.run(ended, renews=renews, asked_at="2025-12-31T20:00:00.000Z", after=before)
    assert execution.output == {"status": "ended"}
    assert aws.lease()["generation"] == {"N": "5"}


@pytest.mark.parametrize("renews", ["", OTHER])
def test_a_stop_request_while_nobody_could_claim_holds(aws: Aws, renews: str) -> None:
    """The request is older than this execution and younger than the POST whose claim was delegated: nothing starts."""
    aws.put(stop={"BOOL": True}, stop_at={"S": "2025-12-31T22:00:00.000Z"})
    before = aws.lease()
    asked_at = "1970-01-01T00:00:00Z" if renews else "2025-12-31T20:00:00.000Z"
    execution = aws.run(scripted(), renews=renews, asked_at=asked_at, after=f"{OTHER}-before")
    after = before if renews else before | STOPPED_UNBEGUN
    assert (execution.output, aws.lease()) == ({"status": "stopped"}, after)


def test_a_successor_clears_a_stop_request_that_is_older_than_the_post(aws: Aws) -> None:
    """The stream was stopped, and started again by a POST an hour later, while the table was away."""
    aws.put(stop={"BOOL": True}, stop_at={"S": "2025-12-31T19:00:00.000Z"})
    assert aws.run(ended, asked_at="2025-12-31T20:00:00.000Z", after=OTHER).output == {"status": "ended"}
    assert "stop" not in aws.lease()


def test_an_input_that_is_no_request_is_rejected(aws: Aws) -> None:
    """The execution ends cleanly, and a dead-letter message tells people who start executions by hand what a request
    is. The cases of `Read request` in test_expressions.py are all that is refused.
    """
    execution = aws.run(scripted(), input_=None)
    assert (execution.status, execution.output["status"]) == ("SUCCEEDED", "rejected")
    assert "pathParameters.streamId" in execution.output["cause"]
    assert [message["MessageBody"]["error"] for message in aws.dead_letters] == ["InvalidRequest"]
    names = [name for _, name in entered(execution)]
    assert names == ["Read request", "Choose ending", "Send dead-letter message", "Choose ending", "Rejected"]


def test_a_claim_follows_at_once_when_the_holder_lets_go(aws: Aws) -> None:
    """The refused claim reads that the stream has no holder any more, and claims it in the same millisecond."""
    aws.before["getItem"] = lambda _: aws.put(generation={"N": "6"})
    aws.put(execution={"S": OTHER})
    execution = aws.run(ended)
    assert (execution.output, execution.stopped_ms) == ({"status": "ended"}, execution.started_ms)

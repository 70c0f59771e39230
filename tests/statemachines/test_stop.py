"""Stop requests and the claim of the machine: which claim clears a request."""

from typing import Any

import pytest

from local.simulation.shared_tasks import send_table_request
from states_language import TaskCall, TaskFailure
from tests.statemachines.connections import MINE, OTHER, START, STOPPED_UNBEGUN, Aws


def never(_payload: Any, _lambda_context: Any) -> Any:
    """A connection that must not be made."""
    raise AssertionError


def drains(aws: Aws, checks: int = 3) -> list[TaskCall]:
    """The execution `other` drains: it lets go of the stream once it was described so often. Returns the times."""
    described: list[TaskCall] = []

    def describe(call: TaskCall) -> None:
        described.append(call)
        if len(described) == checks:
            aws.lets_go(ending={"S": "StreamEnded"}, ended_at={"S": "2026-01-01T00:00:01.000Z"})

    aws.before["describeExecution"] = describe
    aws.put(execution={"S": OTHER}, generation={"N": "3"}, fence={"N": "7"}, **BEFORE)
    return described


# Requested twice.
SINCE = {"S": "2025-12-31T23:50:00.000Z"}
BEFORE = {"stop": {"BOOL": True}, "stop_at": {"S": "2025-12-31T23:59:59.999Z"}, "stop_since": SINCE}
MEANWHILE = {"stop": {"BOOL": True}, "stop_at": {"S": "2026-01-01T00:00:00.500Z"}}


def test_a_post_while_a_stream_stops_starts_it_again(aws: Aws) -> None:
    """The new execution waits until the draining one has released the stream, and begins the next generation."""
    described = drains(aws)
    seen: list[Any] = []
    assert (aws.run(aws.looking(seen)).output, len(described)) == ({"status": "ended"}, 3)
    begun = {"execution": {"S": MINE}, "generation": {"N": "4"}, "fence": {"N": "7"}, "started_at": {"S": START}}
    assert seen == [begun | {"stopped_at": SINCE}]


def test_a_stop_request_after_the_post_that_waits_holds(aws: Aws) -> None:
    """The stream was stopped, started, and stopped again before the first execution released it: nothing starts."""
    drains(aws, 99)
    aws.before["describeExecution"] = lambda _: aws.put(**aws.lease() | MEANWHILE)
    execution = aws.run(never)
    assert (execution.status, execution.output) == ("SUCCEEDED", {"status": "stopped"})
    assert aws.holder() == OTHER


def test_a_stop_request_while_a_dead_claim_is_taken_over_holds(aws: Aws) -> None:
    """The request came after the holder was found dead and before the new claim, which is therefore refused."""
    aws.executions = {OTHER: "ABORTED"}
    aws.put(execution={"S": OTHER}, generation={"N": "3"}, fence={"N": "7"})
    aws.before["describeExecution"] = lambda _: aws.put(**aws.lease() | MEANWHILE)
    execution = aws.run(never)
    assert (execution.status, execution.output) == ("SUCCEEDED", {"status": "stopped"})
    assert (aws.holder(), aws.lease()["stop"]) == (OTHER, {"BOOL": True})


@pytest.mark.parametrize("stop", [BEFORE, {"stop": {"BOOL": True}}], ids=["a millisecond before", "some time"])
@pytest.mark.parametrize("holder", [{}, {"execution": {"S": f"{OTHER}-that-is-dead"}}])
def test_a_post_after_a_stop_clears_the_request(aws: Aws, holder: dict[str, Any], stop: dict[str, Any]) -> None:
    """The next generation starts, even if the execution to be stopped died before it released the stream; only the
    request's instant stays in the lease.
    """
    aws.put(generation={"N": "3"}, fence={"N": "7"}, **stop, **holder)
    seen: list[Any] = []
    assert aws.run(aws.looking(seen)).output == {"status": "ended"}
    stays = {"generation": {"N": "4"}, "fence": {"N": "7"}, "started_at": {"S": START}}
    stays |= {"stopped_at": stop.get("stop_since", {"S": START})}
    assert seen == [stays | {"execution": {"S": MINE}}]
    ending = {"ending": {"S": "StreamEnded"}, "ending_cause": {"S": "ended"}, "ended_at": {"S": START}}
    assert aws.lease() == stays | ending


@pytest.mark.parametrize("stop_at", [START, "2026-01-01T00:00:00.001Z"])
@pytest.mark.parametrize("holder", [{}, {"execution": {"S": f"{OTHER}-that-is-dead"}}, {"execution": {"S": OTHER}}])
def test_a_stop_request_after_the_post_holds(aws: Aws, holder: dict[str, Any], stop_at: str) -> None:
    """The execution has not claimed the stream yet: it ends as stopped and starts nothing. If the lease has no holder,
    it records that end there, because otherwise the lease would show how an earlier run ended.
    """
    aws.put(generation={"N": "3"}, fence={"N": "7"}, stop={"BOOL": True}, stop_at={"S": stop_at}, **holder)
    before = aws.lease()
    execution = aws.run(never)
    assert (execution.status, execution.output) == ("SUCCEEDED", {"status": "stopped"})
    assert aws.lease() == before | ({} if holder else STOPPED_UNBEGUN)


@pytest.mark.parametrize("holder", [{}, {"execution": {"S": f"{OTHER}-that-is-dead"}}])
def test_a_claim_that_is_repeated_leaves_a_new_stop_request(aws: Aws, holder: dict[str, Any]) -> None:
    """The first update is made, its answer is lost, and a stop is requested before the repeated one. That one is
    refused, the lease names this execution, and its first connection reads the request.
    """

    def loses_the_answer(call: TaskCall) -> None:
        send_table_request(aws.dynamodb, call)  # raises where the condition does not hold
        del aws.before["updateItem"]
        aws.put(**aws.lease(), stop={"BOOL": True})
        raise TaskFailure("DynamoDB.SdkClientException", "the answer was lost")

    aws.before["updateItem"] = loses_the_answer
    aws.put(generation={"N": "3"}, fence={"N": "7"}, **holder)
    seen: list[Any] = []
    execution = aws.run(aws.looking(seen, "stopped"))
    claimed = {"execution": {"S": MINE}, "generation": {"N": "4"}, "fence": {"N": "7"}, "started_at": {"S": START}}
    assert seen == [claimed | {"stopped_at": {"S": START}, "stop": {"BOOL": True}}]
    assert (execution.status, execution.output) == ("SUCCEEDED", {"status": "stopped"})
    assert aws.holder() is None


def test_a_claim_that_lands_after_its_execution_gave_up_is_refused(aws: Aws) -> None:
    """The execution decided about a holder that has released the stream since. The stream stays free."""
    sent: list[TaskCall] = []

    def lands_late(call: TaskCall) -> None:
        del aws.before["updateItem"]
        sent.append(call)
        raise TaskFailure("DynamoDB.SdkClientException", "no answer")

    aws.before["updateItem"] = lands_late
    aws.put(execution={"S": OTHER})
    assert aws.run(never).output == {"status": "AlreadyRunning", "execution": OTHER}
    aws.put(ending={"S": "StreamEnded"}, ended_at={"S": "2026-01-01T00:00:05.000Z"})
    before = aws.lease()
    with pytest.raises(TaskFailure, match=r"^DynamoDB.ConditionalCheckFailedException"):
        send_table_request(aws.dynamodb, sent[0])
    assert aws.lease() == before

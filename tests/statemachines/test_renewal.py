"""How an execution is renewed: when it starts its successor, and what the successor claims."""

from collections.abc import Iterator
from typing import Any

import pytest
from moto import mock_aws

from handlers import errors
from local import settings
from local.asl import TaskCall
from tests.statemachines.connections import INPUT, NAMES, Aws, after, definition, tables
from tests.statemachines.test_connections import MINE, OTHER, ended, entered, scripted


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """AWS with an empty control table; the execution `other` runs."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with mock_aws():
        for client in tables():
            yield Aws(client, {OTHER: "RUNNING"})


def lease(aws: Aws) -> dict[str, Any]:
    """The lease as it stands."""
    key = {"PK": {"S": "demo"}, "SK": {"S": "lease"}}
    found: dict[str, Any] = aws.dynamodb.get_item(TableName=NAMES["control_table"], Key=key).get("Item", {})
    return {name: value for name, value in found.items() if name not in key}


def test_a_lane_that_has_made_its_passes_starts_the_successor(aws: Aws) -> None:
    """After two passes lane B asks for an execution of its own machine that names it; it waits like any other lane."""
    function = scripted(errors.StreamTakenOver(), errors.StreamTakenOver(), errors.StreamTakenOver(), "superseded")
    execution = aws.run(function, machine=after(2))
    machine_arn = "arn:aws:states:us-east-1:111111111111:stateMachine:machine"
    successor = {**INPUT, "renews": MINE, "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID": MINE}
    assert aws.started == [{"StateMachineArn": machine_arn, "Input": successor}]
    lane = [name for _, name in entered(execution) if name.startswith("B ")]
    one = ["B connects", "B counts", "B is due"]
    assert lane == [*one, "B waits", *one, "B renews", "B hands over", "B waits"]
    assert (execution.output, entered(execution)[-1][1]) == ({"status": "superseded"}, "Renewed")


def test_passes_that_no_function_saw_count_too(aws: Aws) -> None:
    """A function that cannot be called still fills the history, so it brings the renewal nearer."""
    execution = aws.run(scripted(*[ValueError("defect")] * 5, "superseded"), machine=after(3))
    assert len(aws.started) == 1
    assert [name for _, name in entered(execution) if name.endswith("waits")] == ["A waits"]


def test_a_renewal_that_fails_ends_no_lane_and_is_tried_again(aws: Aws) -> None:
    """Step Functions refuses for a whole pass: the lane goes on, and its next pass starts the successor."""
    aws.failures = {"startExecution": ["StepFunctions.AWSStepFunctionsException", "StepFunctions.ExecutionLimit"]}
    expired = [errors.ConnectionExpired()] * 2
    execution = aws.run(scripted(*expired, "superseded"), machine=after(1))
    lane = [name for _, name in entered(execution) if name.startswith("B ")]
    one = ["B connects", "B counts", "B is due", "B renews"]
    assert lane[:10] == [*one, "B goes on", *one, "B hands over"]
    assert len(aws.started) == 1


def test_an_execution_that_no_successor_takes_over_from_ends_dirty(aws: Aws) -> None:
    """Asked for in two passes and refused in both: at the third it lets go of the claim and fails by name."""
    aws.failures = {"startExecution": ["StepFunctions.ExecutionLimitExceededException"] * 9}
    execution = aws.run(scripted(*[errors.ConnectionExpired()] * 3), machine=after(1, give_up_after=3))
    assert (execution.status, execution.error) == ("FAILED", "RenewalFailed")
    assert [name for _, name in entered(execution)][-4:] == ["B gives up", "Release", "How it ended", "Broken"]
    assert (aws.holder(), lease(aws)["ending"]) == (None, {"S": "RenewalFailed"})


def test_a_predecessor_that_cannot_hear_of_its_successor_ends_cleanly(aws: Aws) -> None:
    """No function starts, so no connection learns that it is superseded; the lease tells it when the lanes give up."""

    class TakenOver(Aws):
        async def perform(self, call: TaskCall) -> Any:
            if call.action == "startExecution":
                self.put(execution={"S": OTHER})
            return await super().perform(call)

    function = scripted(*[ValueError("no function starts")] * 99)
    execution = TakenOver(aws.dynamodb, aws.executions).run(function, machine=after(1, give_up_after=3))
    assert (execution.status, execution.output) == ("SUCCEEDED", {"status": "superseded"})
    assert [name for _, name in entered(execution)][-4:] == ["Release", "How it ended", "Name the successor", "Renewed"]
    assert aws.holder() == OTHER


def test_an_execution_that_claimed_at_its_last_try_asks_for_a_successor(aws: Aws) -> None:
    """Tries count as passes, and one pass is left for the lanes."""
    aws.failures = {"updateItem": ["DynamoDB.InternalServerErrorException"] * 8}  # two of each try
    execution = aws.run(scripted(*[errors.ConnectionExpired()] * 3), machine=after(1, give_up_after=6))
    names = [name for _, name in entered(execution)]
    assert (names.count("Count the try"), names.count("B renews"), execution.error) == (4, 1, "RenewalFailed")


def test_a_lane_that_has_started_a_successor_leaves_it_the_first_try(aws: Aws) -> None:
    """A connection of its own would be one too many, so the lane rests before it looks whether it is still needed."""
    execution = aws.run(scripted(errors.ConnectionExpired(), "superseded"), machine=after(1))
    lane = [name for _, name in entered(execution) if name.startswith("B ")]
    assert lane[3:6] == ["B renews", "B hands over", "B holds back"]


def test_the_successor_claims_what_the_predecessor_holds(aws: Aws) -> None:
    """The lease names the successor under the next generation, while its lanes connect."""
    aws.put(execution={"S": OTHER}, generation={"N": "6"}, fence={"N": "40"})
    seen: list[Any] = []

    def look(_payload: Any, _lambda_context: Any) -> dict[str, str]:
        seen.append(lease(aws))
        return {"status": "superseded"}

    aws.run(look, renews=OTHER)
    assert seen[0].pop("started_at")["S"].startswith("20")
    assert seen == [{"execution": {"S": MINE}, "generation": {"N": "7"}, "fence": {"N": "40"}}]


@pytest.mark.parametrize(
    "standing",
    [
        {"execution": {"S": OTHER + "-successor"}},
        {"stop": {"BOOL": True}},
        {"execution": {"S": OTHER}, "stop": {"BOOL": True}},
    ],
    ids=["another successor has it", "it was stopped", "it is to be stopped"],
)
def test_a_successor_that_is_not_needed_starts_nothing(aws: Aws, standing: dict[str, Any]) -> None:
    """The lease stays as it is, the stop wish too, no function is called, and the end is clean."""
    aws.put(**standing)
    execution = aws.run(scripted(), renews=OTHER)
    assert execution.output == {"status": "NotNeeded", "renews": OTHER}
    assert lease(aws) == standing


def test_a_stream_that_an_earlier_successor_let_go_is_renewed_all_the_same(aws: Aws) -> None:
    """A successor that was rejected has let go of the lease while its predecessor runs on: the next one claims it."""
    aws.put(generation={"N": "7"})
    assert aws.run(ended, renews=OTHER).output == {"status": "ended"}
    assert lease(aws)["generation"] == {"N": "8"}


def test_a_successor_that_cannot_reach_the_table_does_not_give_up(aws: Aws) -> None:
    """Its claim may have been made: were it to end, the predecessor's connections would be refused for nobody."""
    aws.put(execution={"S": OTHER})
    aws.failures = {"updateItem": ["DynamoDB.InternalServerErrorException"] * 100}
    execution = aws.run(ended, renews=OTHER)
    assert execution.output == {"status": "ended"}
    assert [name for _, name in entered(execution)].count("Try again later") >= 2


@pytest.mark.parametrize("wish", [{}, {"stop": {"BOOL": True}}])
def test_a_claim_whose_answer_was_lost_is_the_successors_own(aws: Aws, wish: dict[str, Any]) -> None:
    """A repeated claim finds its own name and goes on; a wish that came since stands, for its connections to obey."""
    aws.put(execution={"S": MINE}, **wish)
    assert aws.run(scripted("stopped"), renews=OTHER).output == {"status": "stopped"}
    assert {name: value for name, value in lease(aws).items() if name == "stop"} == wish
    assert aws.holder() is None


def test_every_stage_renews() -> None:
    """The count is compared with the stage's setting in both lanes."""
    for stage in ("local", "test", "dev", "prod"):
        for lane, branch in zip("AB", definition("connections", stage)["States"]["Lanes"]["Branches"], strict=True):
            give_up, renew = branch["States"][f"{lane} is due"]["Choices"][:2]
            assert give_up["NumericGreaterThanEquals"] == settings.load(stage)["give_up_after"]
            assert renew["NumericGreaterThanEquals"] == settings.load(stage)["renew_after"]

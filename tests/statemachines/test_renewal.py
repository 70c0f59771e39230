"""How an execution is renewed: when it starts its successor, and what the successor claims."""

import hashlib
from typing import Any

import pytest

from handlers import errors
from states_language import TaskCall
from tests.statemachines.connections import INPUT, MINE, OTHER, START, Aws, after
from tests.statemachines.test_connections import ended, entered, of_lanes, rests_ms, scripted

ALREADY = "StepFunctions.ExecutionAlreadyExistsException"
RENEWS = ["Read lease B", "Successor needed B", "Start successor B", "Give up B"]


def test_a_lane_that_has_had_its_cycles_starts_the_successor(aws: Aws) -> None:
    """After two cycles lane B starts an execution of its own machine, names itself in the input, and waits."""
    function = scripted(errors.StreamTakenOver(), errors.StreamTakenOver(), errors.StreamTakenOver(), "superseded")
    execution = aws.run(function, machine=after(2))
    machine_arn = "arn:aws:states:us-east-1:111111111111:stateMachine:machine"
    successor = {**INPUT, "renews": MINE, "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID": MINE}
    name = f"{hashlib.sha1(MINE.encode()).hexdigest()}-1"
    assert aws.started == [{"StateMachineArn": machine_arn, "Name": name, "Input": successor}]
    lane = [name for _, name in of_lanes(execution, "B")]
    assert lane == ["Begin B", "Connect B", "Wait B", "Connect B", *RENEWS, "Wait B"]
    assert rests_ms(execution, "B") == [4000]
    assert (execution.output, entered(execution)[-1][1]) == ({"status": "superseded"}, "Renewed")


def test_cycles_without_a_function_count_too(aws: Aws) -> None:
    """A function that cannot be called still fills the history, so its cycles bring the renewal nearer."""
    execution = aws.run(scripted(*[ValueError("defect")] * 5, "superseded"), machine=after(3))
    assert len(aws.started) == 1
    assert rests_ms(execution, "B")[:2] == [2000, 2000]


def test_a_renewal_that_fails_ends_no_lane_and_is_tried_again(aws: Aws) -> None:
    """If Step Functions refuses for a whole cycle, the lane connects at once, and its next cycle starts the successor.
    Then it backs off, because its own connection would be one too many beside the successor's.
    """
    aws.failures = {"startExecution": ["StepFunctions.AWSStepFunctionsException", "StepFunctions.ExecutionLimit"]}
    expired = [errors.ConnectionExpired()] * 2
    execution = aws.run(scripted(*expired, "superseded"), machine=after(1))
    lane = [name for _, name in of_lanes(execution, "B")]
    cycles = ["Begin B", "Connect B", *RENEWS, "Wait B", "Connect B", *RENEWS, "Wait B"]
    assert lane[: len(cycles)] == cycles
    assert (len(aws.started), rests_ms(execution, "B")) == (1, [0])


def test_an_execution_without_a_successor_releases_the_stream_and_fails(aws: Aws) -> None:
    """The start is refused in three cycles and at the last try; the execution then fails by name."""
    aws.failures = {"startExecution": ["StepFunctions.ExecutionLimitExceededException"] * 99}
    execution = aws.run(scripted(*[errors.ConnectionExpired()] * 3), machine=after(1, give_up_after=3))
    assert (execution.status, execution.error) == ("FAILED", "RenewalFailed")
    names = [name for _, name in entered(execution)]
    assert names[-6:] == ["Give up B", "End B", "Start last successor", "Release lease", "Choose ending", "Broken"]
    assert names.count("Start successor B") == 3
    assert (aws.holder(), aws.lease()["ending"]) == (None, {"S": "RenewalFailed"})


def test_a_lane_without_a_function_reads_in_the_lease_that_it_is_superseded(aws: Aws) -> None:
    """No function can be called, so no connection can read it; the next lane reads the lease itself."""
    aws.before["startExecution"] = lambda _: aws.put(execution={"S": OTHER})
    execution = aws.run(scripted(*[ValueError("no function starts")] * 99), machine=after(1))
    assert (execution.status, execution.output) == ("SUCCEEDED", {"status": "superseded"})
    names = [name for _, name in entered(execution)]
    assert names[-5:-3] == ["Successor needed A", "End A"]
    assert (names[-1], aws.holder(), len(aws.started)) == ("Renewed", OTHER, 1)


@pytest.mark.parametrize(
    ("ending", "is_over"), [("StreamEnded", True), ("StreamRejected", True), ("RenewalFailed", False)]
)
def test_a_predecessor_ends_when_its_successor_has_ended_the_stream(aws: Aws, ending: str, is_over: bool) -> None:
    """It reads in the lease that the stream is over, and ends. If the successor broke, it starts another."""

    def let_go(_: TaskCall) -> None:
        if not aws.started:
            aws.lets_go(ending={"S": ending}, ended_at={"S": START})

    aws.before["startExecution"] = let_go
    execution = aws.run(scripted(*[ValueError("no function starts")] * 99), machine=after(1, give_up_after=20))
    if is_over:
        assert (execution.output, len(aws.started)) == ({"status": "superseded"}, 1)
        assert aws.lease()["ending"] == {"S": ending}
    else:
        assert len(aws.started) > 1


@pytest.mark.parametrize("lease", [{"execution": {"S": MINE}}, {}], ids=["it is the holder", "nobody is"])
def test_a_lane_without_a_function_reads_the_stop_request_in_the_lease(aws: Aws, lease: dict[str, Any]) -> None:
    """If a renewal is due, the lane starts no successor, which would be refused, and ends as stopped."""

    def never(_payload: Any, _lambda_context: Any) -> Any:
        aws.put(stop={"BOOL": True}, **lease)
        raise ValueError("no function starts")

    execution = aws.run(never, machine=after(1))
    assert (execution.output, entered(execution)[-1][1]) == ({"status": "stopped"}, "Stopped")
    assert aws.started == []


@pytest.mark.parametrize("fails", [[], ["DynamoDB.InternalServerErrorException"] * 99], ids=["table", "no table"])
def test_each_cycle_starts_the_same_name_while_the_successor_runs(aws: Aws, fails: list[str]) -> None:
    """A start of that name starts nothing more, whatever the lease says."""
    aws.failures = {"getItem": fails}
    execution = aws.run(scripted(*[ValueError("no function starts")] * 99), machine=after(2, give_up_after=30))
    assert (execution.output, entered(execution)[-1][1]) == ({"status": "handed_on"}, "Renewed")
    assert {start["Name"].partition("-")[2] for start in aws.started} == {"1"}
    assert len(aws.started) > 40
    assert aws.holder() == MINE  # left to the successor, which renews it


def test_a_successor_that_ended_is_followed_by_another_ten_cycles_later(aws: Aws) -> None:
    """The ended one's name is used up, so the next has another; the last start is the execution's last step."""

    def broken(call: TaskCall) -> None:
        if call.parameters["Name"] in [one["Name"] for one in aws.started]:
            aws.failures["startExecution"] = [ALREADY]

    aws.before["startExecution"] = broken
    execution = aws.run(scripted(*[ValueError("no function starts")] * 99), machine=after(2, give_up_after=30))
    assert [start["Name"].partition("-")[2] for start in aws.started] == ["1", "2", "3", "4"]
    assert execution.output == {"status": "handed_on"}


def test_a_last_start_whose_answer_was_lost_is_no_failure(aws: Aws) -> None:
    """The repeated start finds its own successor, which may have ended in the meantime."""
    refused = ["StepFunctions.ExecutionLimitExceededException"] * 3
    aws.failures = {"startExecution": [*refused, "StepFunctions.SdkClientException", ALREADY]}
    execution = aws.run(scripted(*[errors.ConnectionExpired()] * 3), machine=after(1, give_up_after=3))
    assert execution.output == {"status": "handed_on"}


def test_an_execution_that_claimed_at_its_last_try_starts_a_successor(aws: Aws) -> None:
    """Tries to claim count as cycles, so its lanes have one cycle left."""
    refused = "StepFunctions.ExecutionLimitExceededException"
    aws.failures = {
        "updateItem": ["DynamoDB.InternalServerErrorException"] * 8,  # two of each try
        "startExecution": [refused] * 99,
    }
    execution = aws.run(scripted(*[errors.ConnectionExpired()] * 3), machine=after(1, give_up_after=6))
    names = [name for _, name in entered(execution)]
    assert (names.count("Claim lease"), names.count("Start successor B"), execution.error) == (5, 2, "RenewalFailed")


def test_the_successor_claims_what_the_predecessor_holds(aws: Aws) -> None:
    """The lease names the successor under the next generation, while its lanes connect."""
    aws.put(execution={"S": OTHER}, generation={"N": "6"}, fence={"N": "40"})
    seen: list[Any] = []
    aws.run(aws.looking(seen, "superseded"), renews=OTHER)
    assert seen[0].pop("started_at")["S"].startswith("20")
    assert seen == [{"execution": {"S": MINE}, "generation": {"N": "7"}, "fence": {"N": "40"}}]


RUNS = f"{OTHER}-successor"


@pytest.mark.parametrize(
    ("standing", "answer"),
    [
        ({"execution": {"S": RUNS}}, {"status": "AlreadyRunning", "execution": RUNS}),
        ({"stop": {"BOOL": True}}, {"status": "stopped"}),
        ({"execution": {"S": OTHER}, "stop": {"BOOL": True}}, {"status": "stopped"}),
    ],
    ids=["another successor has it", "it was stopped", "it is to be stopped"],
)
def test_a_successor_that_is_not_needed_starts_nothing(aws: Aws, standing: dict[str, Any], answer: Any) -> None:
    """The lease and the stop request stay unchanged, no function is called, and the end is clean."""
    aws.put(**standing)
    aws.executions[RUNS] = "RUNNING"
    assert aws.run(scripted(), renews=OTHER).output == answer
    assert aws.lease() == standing


def test_a_successor_takes_over_from_a_dead_execution_that_is_not_its_predecessor(aws: Aws) -> None:
    """The execution that had taken the stream from the predecessor was aborted: the successor takes the stream."""
    aws.put(execution={"S": RUNS}, generation={"N": "7"})
    aws.executions[RUNS] = "ABORTED"
    assert aws.run(ended, renews=OTHER).output == {"status": "ended"}
    assert aws.lease()["generation"] == {"N": "8"}


def test_a_stream_that_a_rejected_successor_released_is_renewed(aws: Aws) -> None:
    """The rejected successor released the lease while its predecessor ran on. The next successor claims it."""
    aws.put(generation={"N": "7"})
    assert aws.run(ended, renews=OTHER).output == {"status": "ended"}
    assert aws.lease()["generation"] == {"N": "8"}


def test_a_successor_that_cannot_reach_the_table_does_not_give_up(aws: Aws) -> None:
    """Its claim may have been made: if it ended, the predecessor's connections would be refused for nothing."""
    aws.put(execution={"S": OTHER})
    aws.failures = {"updateItem": ["DynamoDB.InternalServerErrorException"] * 100}
    execution = aws.run(ended, renews=OTHER)
    assert execution.output == {"status": "ended"}
    assert [name for _, name in entered(execution)].count("Back off") >= 12


@pytest.mark.parametrize("stop", [{}, {"stop": {"BOOL": True}}])
def test_a_claim_whose_answer_was_lost_is_the_successors_own(aws: Aws, stop: dict[str, Any]) -> None:
    """A repeated claim reads its own name and continues; a later stop request stays, for its connections."""
    aws.put(execution={"S": MINE}, **stop)
    assert aws.run(scripted("stopped"), renews=OTHER).output == {"status": "stopped"}
    assert {name: value for name, value in aws.lease().items() if name == "stop"} == stop
    assert aws.holder() is None


def test_a_due_lane_reads_the_lease_if_the_function_knows_no_cycles(aws: Aws) -> None:
    """Such a function raises its usual error instead of RenewalDue. The lane reads the lease before the next call."""

    def function(_payload: Any, _lambda_context: Any) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, str):
            return {"status": outcome}
        raise outcome

    for error, wait in ((errors.StreamTakenOver(), ["Wait B"]), (errors.ConnectionExpired(), [])):
        aws.put()
        aws.started.clear()
        outcomes = [error, error, "superseded"]
        execution = aws.run(function, machine=after(1))
        lane = [name for _, name in of_lanes(execution, "B")]
        cycles = ["Begin B", "Connect B", *wait, "Connect B", "Renewal due B", *RENEWS, "Wait B", "Connect B"]
        assert lane[: len(cycles)] == cycles
        assert len({start["Name"] for start in aws.started}) == 1

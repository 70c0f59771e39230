"""What the deployed machine does after each end of a connection or of its claim."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handlers import errors
from handlers.connection.effects import Outcome
from handlers.connection.ends import with_renewal_due
from local import stages
from states_language import Execution, TaskCall, TaskFailure
from tests.statemachines.connections import INPUT, MINE, NAMES, OTHER, Aws, after, executed, loaded
from tests.statemachines.test_definitions import raised
from timeline import spans
from timeline.spans import transitions

BEGUN = ["Begin A", "Wait A", "Begin B", "Connect B"]


def ended(_payload: Any, _lambda_context: Any) -> dict[str, Any]:
    """A connection that gets the stream's end at once."""
    return {"status": "ended", "stored": 0}


def scripted(*outcomes: Exception | str) -> Any:
    """A connection manager whose calls end in turn with these statuses or errors, after 1000, 500, 333 ... ms.

    If its payload says that a renewal is due, it raises RenewalDue as the real one does.
    """
    left = list(outcomes)
    payloads: list[Any] = []

    async def function(payload: Any, lambda_context: Any) -> dict[str, Any]:
        payloads.append(payload)
        clock = lambda_context.clock
        await clock.sleep_until(clock.now_ms() + 1000 // len(payloads))
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise renewal(outcome) if payload["cycles"] + 1 >= payload["renew_after"] else outcome
        return {"status": outcome}

    function.payloads = payloads  # type: ignore[attr-defined]
    return function


def renewal(error: Exception) -> Exception:
    """Returns the error that stands for another error when a renewal is due."""
    outcome = with_renewal_due(Outcome(type(error).__name__, "", str(error)))
    return errors.RenewalDue(outcome.message) if outcome.error == "RenewalDue" else error


def entered(execution: Execution) -> list[tuple[int, str]]:
    """Returns the states in order, with the milliseconds since the start."""
    return [
        (event["timestamp"] - execution.started_ms, event["stateEnteredEventDetails"]["name"])
        for event in execution.history
        if "stateEnteredEventDetails" in event
    ]


def of_lanes(execution: Execution, *lanes: str) -> list[tuple[int, str]]:
    """Returns the states of the named lane, or of both lanes."""
    return [row for row in entered(execution) if row[1][-2:] in [f" {lane}" for lane in lanes or "AB"]]


def rests_ms(execution: Execution, *lanes: str) -> list[int]:
    """Returns how long each ended Wait of the lanes lasted."""
    lane_spans = spans.spans(spans.rows(execution.history))
    over = [span for span in lane_spans if span.kind == "wait" and span.lane in (lanes or "AB")]
    return [span.to_ms - span.from_ms for span in over if span.to_ms is not None]


def test_the_function_gets_path_execution_lane_and_cycles(aws: Aws) -> None:
    """The payload has the input's path, the execution's ARN, the lane, its cycles, its wait and the time limit."""
    function = scripted(errors.StreamTakenOver(), errors.StreamTakenOver(), errors.StreamDropped(), "stopped")
    aws.run(function)
    settings = stages.load("test")
    times = {name: settings[name] for name in ("renew_after", "wait_s")}
    rest = {**INPUT, **times, "execution": MINE, "limit_s": settings["function_timeout_s"], "died": ""}
    cycles = [("B", 0), ("A", 0), ("B", 1), ("B", 1)]
    assert function.payloads == [{**rest, "lane": lane, "cycles": count} for lane, count in cycles]


def test_only_a_lane_that_was_taken_over_waits(aws: Aws) -> None:
    """After StreamTakenOver lane B waits 4 s while lane A connects when its own Wait is over."""
    execution = aws.run(scripted(errors.StreamTakenOver(), "ended"))
    after_begin = [(1000, "Wait B"), (4000, "Connect A"), (4500, "Renewal due A"), (4500, "End A")]
    assert of_lanes(execution) == [*((0, name) for name in BEGUN), *after_begin]


def test_a_handover_is_two_transitions(aws: Aws) -> None:
    """A cycle is Wait, Task, and Catch back to Wait: two states, in every cycle."""
    counts = []
    for handovers in (8, 28):
        aws.put()
        execution = aws.run(scripted(*[errors.StreamTakenOver()] * handovers, "ended"))
        names = [name for _, name in entered(execution)]
        begun = names.index("Connect B") + 1
        cycles = ["Wait B", "Connect A", "Wait A", "Connect B"] * (handovers // 2)
        assert names[begun : begun + len(cycles)] == cycles
        counts.append(transitions(execution.history))
    assert counts[1] - counts[0] == 2 * 20


@pytest.mark.parametrize("error", ["StreamDropped", "StreamThrottled", "StoreUnavailable"])
def test_a_broken_connection_is_retried_within_its_state(aws: Aws, error: str) -> None:
    """The Retrier of each of these errors tries again before the other lane's Wait of 4 s is over."""
    execution = aws.run(scripted(getattr(errors, error)("broken"), "ended"))
    lanes = of_lanes(execution)
    assert [name for _, name in lanes] == [*BEGUN, "Renewal due B", "End B"]
    assert lanes[-1][0] <= 1000 + 2000 + 500
    assert execution.status == "SUCCEEDED"


def test_a_killed_function_is_replaced_at_once(aws: Aws) -> None:
    """Its lane connects again in the same millisecond, and passes on Lambda's message, which names the request."""
    killed = type("Sandbox.Timedout", (Exception,), {})  # an error is called what its class is called
    function = scripted(killed("RequestId: r1 Error: Task timed out"), "ended")
    execution = aws.run(function)
    again = ["Renewal due B", "Wait B", "Connect B", "Renewal due B", "End B"]
    assert [name for _, name in of_lanes(execution)] == [*BEGUN, *again]
    assert execution.output == {"status": "ended"}
    told = [("RequestId: r1 " in payload["died"], payload["cycles"]) for payload in function.payloads]
    assert told == [(False, 0), (True, 1)]


def test_an_error_that_proves_no_death_is_retried_within_its_state(aws: Aws) -> None:
    """A function that the machine has lost may still be connected, so the next function gets no proof of its death."""
    lost = type("Lambda.Unknown", (Exception,), {})
    function = scripted(lost("RequestId: r1"), "ended")
    assert [name for _, name in of_lanes(aws.run(function))] == [*BEGUN, "Renewal due B", "End B"]
    assert [payload["died"] for payload in function.payloads] == ["", ""]


def test_a_lane_reconnects_at_once_after_a_connection_expired(aws: Aws) -> None:
    """No successor has taken over, so the lane connects in the same millisecond."""
    lane = of_lanes(aws.run(scripted(errors.ConnectionExpired(), "ended")), "B")
    assert lane[1:] == [(0, "Connect B"), (1000, "Connect B"), (1500, "Renewal due B"), (1500, "End B")]


def test_an_outage_ends_no_execution(aws: Aws) -> None:
    """A hundred drops use up the Retriers again and again. Lanes back off for 2 s each time, and the stream goes on."""
    execution = aws.run(scripted(*[errors.StreamDropped("no")] * 100, "ended"))
    assert execution.output == {"status": "ended"}
    assert {2000} == {*rests_ms(execution, "A")[1:], *rests_ms(execution, "B")}


OF_AWS = ("Sandbox.Timedout", "Runtime.ExitError", "States.Timeout", "States.TaskFailed", "States.DataLimitExceeded")
OF_LAMBDA = ("TooManyRequestsException", "ServiceException", "ResourceNotFoundException", "Unknown")
errors_of_aws = st.sampled_from(
    [
        *OF_AWS,
        *(f"Lambda.{name}" for name in OF_LAMBDA),
        *sorted(raised() - {"StreamRejected", "StreamBroken", "InvalidRequest"}),
    ]
)


@given(st.lists(st.one_of(errors_of_aws, st.text(min_size=1, max_size=20)), max_size=25), st.integers(1, 5))
@example(["Lambda.ServiceException"] * 80, 150)
@example(["StoreUnavailable"] * 80, 2)
def test_no_failure_of_a_lane_ends_an_execution(names: list[str], renew_after: int) -> None:
    """After any failures in any order, renewals included, the end of the stream still ends the execution cleanly."""
    left = list(names)

    async def perform(call: TaskCall) -> Any:
        if call.function is not None and left:
            raise TaskFailure(left.pop(0), "generated")
        if call.action == "startExecution":
            raise TaskFailure(left[0] if left else "StepFunctions.SdkClientException", "generated")
        return {"status": "ended"}

    execution = executed(loaded(after(renew_after)), perform)
    assert (execution.status, execution.output) == ("SUCCEEDED", {"status": "ended"})


@pytest.mark.parametrize("error", [errors.StreamRejected, errors.InvalidRequest])
def test_a_rejected_stream_ends_cleanly_and_is_reported(aws: Aws, error: type[Exception]) -> None:
    """The output has the error and its cause, the stream is free, and the dead-letter message has the reason."""
    execution = aws.run(scripted(error("No such stream.")))
    found = execution.status, execution.output["status"], execution.output["error"]
    assert found == ("SUCCEEDED", "rejected", error.__name__)
    names = [name for _, name in entered(execution)]
    assert names[-4:] == ["Choose ending", "Send dead-letter message", "Choose ending", "Rejected"]
    assert aws.holder() is None
    (message,) = aws.dead_letters
    assert message["QueueUrl"] == f"https://sqs.us-east-1.amazonaws.com/111111111111/{NAMES['dead_letter_queue']}"
    body = message["MessageBody"]
    assert (body["stream"], body["execution"], body["error"]) == ("demo", MINE, error.__name__)
    assert "No such stream." in body["cause"] == execution.output["cause"]


def test_an_execution_that_cannot_report_a_rejection_fails(aws: Aws) -> None:
    """If the queue refuses the message, the execution fails, so that an alarm reports it."""
    aws.failures = {"sendMessage": ["SQS.SdkClientException"] * 6}
    execution = aws.run(scripted(errors.StreamRejected("No.")))
    assert (execution.status, execution.error, aws.dead_letters) == ("FAILED", "StreamRejected", [])
    assert entered(execution)[-1][1] == "Broken"


@pytest.mark.parametrize(("status", "end"), [("ended", "Ended"), ("stopped", "Stopped"), ("superseded", "Renewed")])
def test_each_clean_end_has_its_name(aws: Aws, status: str, end: str) -> None:
    """The function's answer ends the other lane's Wait of 4 s, decides the last state, and becomes the output."""
    execution = aws.run(scripted(status))
    assert (execution.status, execution.output) == ("SUCCEEDED", {"status": status})
    assert (entered(execution)[-1], aws.holder()) == ((1000, end), None)


def test_a_second_execution_names_the_one_that_runs(aws: Aws) -> None:
    """If the holder of the stream runs, no function is called."""
    aws.put(execution={"S": OTHER})
    assert aws.run(scripted()).output == {"status": "AlreadyRunning", "execution": OTHER}
    assert aws.holder() == OTHER


@pytest.mark.parametrize("status", ["FAILED", "ABORTED", "TIMED_OUT", "SUCCEEDED", None])
def test_a_dead_holder_is_replaced(aws: Aws, status: str | None) -> None:
    """An execution that ended without a release, or is forgotten, loses the stream, and the generation rises."""
    aws.executions = {} if status is None else {OTHER: status}
    aws.put(execution={"S": OTHER}, generation={"N": "6"}, stop={"BOOL": True})
    seen: list[Any] = []
    assert aws.run(aws.looking(seen)).output == {"status": "ended"}
    found = [seen[0].get(name) for name in ("execution", "generation", "stop")]
    assert found == [{"S": MINE}, {"N": "7"}, None]


def test_a_lane_backs_off_after_a_meaningless_answer(aws: Aws) -> None:
    """A function that answers without a status has a defect. The lane calls it again, as after any unnamed error."""
    answers = [None, {"status": "ended"}]

    def function(_payload: Any, _lambda_context: Any) -> Any:
        return answers.pop(0)

    execution = aws.run(function)
    assert [name for _, name in of_lanes(execution, "B")][2:4] == ["Renewal due B", "Wait B"]
    assert (rests_ms(execution, "B"), execution.output) == ([2000], {"status": "ended"})


def test_an_execution_that_lost_the_stream_leaves_the_lease_alone(aws: Aws) -> None:
    """A release removes only its own execution's name from the lease."""

    def lose(_payload: Any, _lambda_context: Any) -> dict[str, str]:
        aws.put(execution={"S": OTHER})
        return {"status": "superseded"}

    assert aws.run(lose).output == {"status": "superseded"}
    assert aws.holder() == OTHER

"""The pytest plugin: a machine in a test takes few lines, and a failure shows what happened."""

import json
from typing import Any

import pytest

from machines import line
from states_language import Behaviour, TaskFailure
from states_language.testing import MachineRun, RunMachine, in_turn

pytest_plugins = "pytester"

CHARGE = {"Type": "Task", "Resource": "arn:aws:lambda:us-east-1:111111111111:function:charge"}
HANDLED: dict[str, Any] = {
    "Retry": [{"ErrorEquals": ["Busy"], "IntervalSeconds": 2}],
    "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Refund"}],
}
STORE = {
    "Type": "Task",
    "Resource": "arn:aws:states:::dynamodb:putItem",
    "Parameters": {"TableName": "orders", "Item": {"id": {"S.$": "$.id"}}},
    "ResultPath": None,
}
REFUND = {"Type": "Fail", "Error": "NotCharged", "Cause": "the card was declined"}
ORDER = line(("Charge", {**CHARGE, **HANDLED, "Next": "Store"}), ("Store", STORE), ("Refund", REFUND))
STORED: dict[str, Any] = {"dynamodb:putItem": {}}


def test_answers_are_callables_values_failures_or_several_in_turn(run_machine: RunMachine) -> None:
    """A run takes these answers and shows path, output, history, payloads and virtual time."""
    run = run_machine(
        ORDER,
        {"id": "7"},
        functions={"charge": in_turn(TaskFailure("Busy"), lambda payload, _: {**payload, "paid": True}), **STORED},
    )
    run.assert_path("Charge", "Store")
    run.assert_output({"id": "7", "paid": True})
    run.assert_history("LambdaFunctionFailed", "LambdaFunctionSucceeded", "TaskSucceeded", "ExecutionSucceeded")
    assert run.elapsed_s == 2
    assert run.payloads("charge") == [{"id": "7"}, {"id": "7"}]
    assert run.payloads("dynamodb:putItem") == [{"TableName": "orders", "Item": {"id": {"S": "7"}}}]
    assert run.events("LambdaFunctionFailed") == [{"error": "Busy"}]


def test_a_behaviour_takes_time_or_never_answers(run_machine: RunMachine) -> None:
    """Waiting costs no real time; a function that never answers is killed after 900 s."""
    slow = run_machine(
        ORDER, {"id": "7"}, functions={"charge": Behaviour(answer={"id": "8"}, delay_ms=90_000), **STORED}
    )
    assert (slow.output, slow.elapsed_s) == ({"id": "8"}, 90)
    dead = run_machine(ORDER, functions={"charge": Behaviour(never=True)})
    dead.assert_error("NotCharged")
    assert dead.elapsed_s == 900


def test_a_task_that_waits_for_a_token_gets_its_answer(run_machine: RunMachine) -> None:
    """For a Task that waits for a token, the prepared answer or failure counts as the token holder's."""
    resource = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
    message = {"QueueUrl": "q", "MessageBody": {"token.$": "$$.Task.Token"}}
    waiting = line(("Ask", {"Type": "Task", "Resource": resource, "Parameters": message}))
    run_machine(waiting, functions={"sqs:sendMessage": {"yes": True}}).assert_output({"yes": True})
    run_machine(waiting, functions={"sqs:sendMessage": TaskFailure("No", "not today")}).assert_error("No", "not today")


def test_an_answer_can_be_named_by_an_arn(run_machine: RunMachine) -> None:
    """The ARN may be a function's with a qualifier, an activity's, or the Resource of a service."""
    activity = "arn:aws:states:us-east-1:111111111111:activity:approve"
    asking = line(("Ask", {"Type": "Task", "Resource": activity}))
    run_machine(asking, functions={activity: TaskFailure("No")}).assert_error("No", None)
    function = "arn:aws:lambda:eu-west-1:222222222222:function:charge:7"
    run = run_machine(ORDER, {"id": "7"}, functions={function: {"id": "8"}, "arn:aws:states:::dynamodb:putItem": {}})
    run.assert_output({"id": "8"})


def test_a_call_without_an_answer_fails_the_test(run_machine: RunMachine) -> None:
    """A call without an answer fails the test, even if the machine would catch it."""
    with pytest.raises(AssertionError) as failure:
        run_machine(ORDER, functions=STORED)
    assert str(failure.value) == "'Charge' calls 'charge', which has no answer; functions has 'dynamodb:putItem'"


def test_an_assertion_within_a_function_fails_the_test(run_machine: RunMachine) -> None:
    """An AssertionError in a function fails the test, even if the machine catches the function's errors."""

    def charge(payload: Any, _context: Any) -> Any:
        assert payload["id"] == "8", "the wrong order"

    with pytest.raises(AssertionError, match="the wrong order"):
        run_machine(ORDER, {"id": "7"}, functions={"charge": charge, **STORED})


def failure_of(run: MachineRun, *states: str) -> list[str]:
    with pytest.raises(AssertionError) as failure:
        run.assert_path(*states)
    return str(failure.value).splitlines()


def test_a_failure_names_the_difference_and_shows_the_history(run_machine: RunMachine) -> None:
    """A failure names the first different step and the execution's end, and lists each event with its virtual time."""
    run = run_machine(ORDER, {"id": "7"}, functions={"charge": TaskFailure("Declined", "no money")})
    assert failure_of(run, "Charge", "Store") == [
        "expected the path Charge → Store",
        "      it went to Charge → Refund",
        "      step 2 is Refund, not Store",
        "The execution FAILED after 0.000 s with NotCharged: the card was declined.",
        '       0.000 s  ExecutionStarted {"id":"7"}',
        '       0.000 s  TaskStateEntered Charge {"id":"7"}',
        '       0.000 s  LambdaFunctionScheduled {"id":"7"}',
        "       0.000 s  LambdaFunctionStarted",
        "       0.000 s  LambdaFunctionFailed Declined: no money",
        '       0.000 s  TaskStateExited Charge {"Error":"Declined","Cause":"no money"}',
        '       0.000 s  FailStateEntered Refund {"Error":"Declined","Cause":"no money"}',
        "       0.000 s  ExecutionFailed NotCharged: the card was declined",
    ]
    assert failure_of(run, "Charge", "Refund", "Store")[2] == "      step 3 is the end, not Store"


@pytest.mark.parametrize(
    ("method", "expected", "words"),
    [
        ("assert_output", ({},), "expected the output {}"),
        ("assert_error", ("Other",), "expected the error Other"),
        ("assert_error", ("NotCharged", "other"), "expected the cause 'other'"),
        ("assert_history", ("TaskStateEntered", "TaskSucceeded"), "expected the event TaskSucceeded after TaskStateE"),
    ],
)
def test_every_assertion_can_fail(run_machine: RunMachine, method: str, expected: tuple[Any, ...], words: str) -> None:
    """Each assertion method can fail, and says what was expected and how the execution ended."""
    run = run_machine(ORDER, {"id": "7"}, functions={"charge": TaskFailure("Declined", "no money")})
    with pytest.raises(AssertionError) as failure:
        getattr(run, method)(*expected)
    assert str(failure.value).startswith(words)
    assert "The execution FAILED" in str(failure.value)


def test_outputs_are_compared_as_json_so_true_is_not_1(run_machine: RunMachine) -> None:
    """Outputs are compared as JSON, so true does not equal 1."""
    run = run_machine("StartAt: A\nStates:\n  A: {Type: Pass, Result: true, End: true}\n")
    with pytest.raises(AssertionError, match="expected the output 1\n           it gave true"):
        run.assert_output(1)


def test_pytest_finds_the_fixture_by_its_entry_point(pytester: pytest.Pytester) -> None:
    """A test in another folder uses the fixture without an import; a failure shows only the assertion.

    Without the fixture the plugin does not import states_language, so pytest starts fast.
    """
    pytester.makepyfile(
        """
        import sys

        MACHINE = "StartAt: A\\nStates:\\n  A: {Type: Pass, Result: 3, End: true}\\n"

        def test_nothing(request):
            assert request.config.pluginmanager.has_plugin("states_language")
            assert "pytest_states_language" in sys.modules
            assert "states_language" not in sys.modules

        def test_good(run_machine):
            run_machine(MACHINE).assert_output(3)

        def test_bad(run_machine):
            run_machine(MACHINE).assert_output(4)
        """
    )
    others = [
        part
        for name in ("cacheprovider", "hypothesispytest", "schemathesis", "xdist", "xdist.looponfail", "anyio")
        for part in ("-p", f"no:{name}")
    ]
    result = pytester.runpytest_subprocess(*others, "-W", "error")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["E*AssertionError: expected the output 4", "E*it gave 3", "E*PassStateEntered A {}"])
    assert not any("testing.py" in line for line in result.outlines)


def test_the_server_fixture_serves_boto3_in_virtual_time(states_server: Any) -> None:
    """`states_server` takes answers by state, as run_machine does, and a Wait takes no real time."""
    states_server.functions["Charge"] = {"paid": True}
    definition = line(("Rest", {"Type": "Wait", "Seconds": 200, "Next": "Charge"}), ("Charge", CHARGE))
    states, role = states_server.client(), "arn:aws:iam::000000000000:role/any"
    machine = states.create_state_machine(name="m", definition=json.dumps(definition), roleArn=role, type="EXPRESS")
    answer = states.start_sync_execution(stateMachineArn=machine["stateMachineArn"])
    assert json.loads(answer["output"]) == {"paid": True}

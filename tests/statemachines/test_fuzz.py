"""No input that the gateway lets through, and no failure of anything, ends our machines in an unhandled error.

The machines that are kept for comparison are not held to it: `asl check` warns of what they leave unhandled.
"""

from typing import Any

from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from local.asl import Execution, fuzz, load
from local.asl.fuzzing import Case, unhandled
from local.stubs import Behaviour
from tests.asl.machines import line, raising, task
from tests.statemachines.connections import definition

MACHINE = load(definition("connections", "local"))
MANAGER = "streamkeeper-local-connection-manager"
GATEWAY = st.builds(
    lambda stream, query, renews: {
        "pathParameters": {"streamId": stream},
        "queryStringParameters": query,
        **({"renews": renews} if renews is not None else {}),
    },
    st.text(min_size=1, max_size=8),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    st.none() | st.just("arn:aws:states:us-east-1:111111111111:execution:connections:before"),
)
"""What the route's mapping makes of a request, and what a predecessor gives its successor."""

STATUSES = st.sampled_from(["ended", "stopped", "superseded"])
EXECUTIONS = st.sampled_from(["RUNNING", "SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"])
LEASES = st.fixed_dictionaries({}, optional={
    "execution": st.fixed_dictionaries({"S": st.just("arn:aws:states:us-east-1:111111111111:execution:other:one")}),
    "stop_at": st.fixed_dictionaries({"S": st.sampled_from(["2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z"])}),
})  # fmt: skip
ANSWERS: dict[str, st.SearchStrategy[Any]] = {
    MANAGER: st.fixed_dictionaries({"status": STATUSES}),
    "dynamodb:updateItem": st.just({}),
    "dynamodb:getItem": st.just({}) | st.fixed_dictionaries({"Item": LEASES}),
    "aws-sdk:sfn:describeExecution": st.fixed_dictionaries({"Status": EXECUTIONS}),
    "states:startExecution": st.just({}),
    "sqs:sendMessage": st.just({"MessageId": "1"}),
}
LAST = {
    MANAGER: Behaviour(answer={"status": "ended"}),
    "dynamodb:updateItem": Behaviour(answer={}),
    "dynamodb:getItem": Behaviour(answer={}),
}


@settings(max_examples=150, deadline=None)
@given(fuzz(MACHINE, inputs=GATEWAY, answers=ANSWERS, last=LAST))
def test_no_failure_ends_the_deployed_machine_unhandled(case: Case) -> None:
    """Whatever fails, times out, never answers or answers too much, it ends in a state that says how."""
    assert unhandled(MACHINE, case.run(MACHINE)) is None


def test_what_is_unhandled_is_found() -> None:
    """The search comes upon a time-out, an answer too large and others, so that a green run means something."""
    machine = load(line(("Do", task(Catch=[{"ErrorEquals": ["X"], "Next": "No"}])), ("No", {"Type": "Fail"})))
    found = set()

    @settings(max_examples=100, deadline=None, database=None, derandomize=True)
    @given(fuzz(machine))
    def look(case: Case) -> None:
        found.add(unhandled(machine, case.run(machine)))

    look()
    assert {None, "Sandbox.Timedout", "States.DataLimitExceeded"} < found


def test_what_expressions_and_calls_read_is_given() -> None:
    """Inputs have the members that JSONata and intrinsic functions name, and the constants that a Condition names."""
    choice = {"Type": "Choice", "Choices": [{"Condition": "{% $states.input.kind = 'zebra' %}", "Next": "Bad"}]}
    failing = {"Type": "Pass", "Output": "{% $error('no zebra') %}"}
    query = line(("Look", {**choice, "Default": "Good"}), ("Bad", failing), ("Good", {"Type": "Succeed"}))
    assert "no zebra" in (_first({"QueryLanguage": "JSONata", **query}, "FAILED").cause or "")
    call = {"Type": "Pass", "Parameters": {"n.$": "States.MathAdd($.count, $.step)"}}
    assert list(_first(line(("Add", call)), "SUCCEEDED").output) == ["n"]


def _first(machine: dict[str, Any], status: str) -> Execution:
    loaded = load(machine)
    searched = settings(max_examples=500, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    return find(fuzz(loaded), lambda case: case.run(loaded).status == status, settings=searched).run(loaded)


def test_a_behaviour_is_shown_as_it_is_written() -> None:
    """A case that failed can be read and used again."""
    assert repr(Behaviour()) == "Behaviour(answer=ECHO, error=None, cause=None, delay_ms=0, never=False)"


def test_a_case_is_the_same_every_time() -> None:
    """To the byte of its history."""
    case = Case({"pathParameters": {"streamId": "x"}}, {MANAGER: [Behaviour(error="StreamDropped"), LAST[MANAGER]]})
    assert case.run(MACHINE).history == case.run(MACHINE).history
    assert case.run(MACHINE).status == "SUCCEEDED"


def test_an_error_that_a_fail_state_gives_is_handled() -> None:
    """An error that somebody wrote down is an answer; one that nobody caught, or a lost path, is not."""
    caught = line(
        ("Do", task(Catch=[{"ErrorEquals": ["X"], "Next": "No"}])),
        ("No", {"Type": "Fail", "Error": "Refused"}),
    )
    machine = load(caught)
    assert unhandled(machine, machine.execute(functions={"work": raising("X")})) is None
    assert unhandled(machine, machine.execute(functions={"work": raising("Y")})) == "Y"
    lost = load(line(("Do", {"Type": "Fail", "ErrorPath": "$.nowhere"})))
    assert unhandled(lost, lost.execute()) == "States.Runtime"


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_inputs_are_made_of_what_the_definition_reads(data: st.DataObject) -> None:
    """No hint is needed: any machine gets cases that run to an end."""
    choice = {"Type": "Choice", "Choices": [{"Variable": "$.a.b", "StringEquals": "go", "Next": "Do"}], "Default": "Do"}
    machine = load(line(("Look", choice), ("Do", task(Retry=[{"ErrorEquals": ["Busy"]}]))))
    case = data.draw(fuzz(machine))
    assert case.run(machine).status in ("SUCCEEDED", "FAILED")
    assert list(case.behaviours) == ["work"]

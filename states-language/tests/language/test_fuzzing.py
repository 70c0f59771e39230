"""The fuzzer finds what a machine does not handle, and makes its cases only from the definition."""

from typing import Any

from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from examples import examples
from machines import line, raising, task
from states_language import Execution, fuzz, load
from states_language.fuzzing import Case, unhandled
from states_language.tasks.stubs import Behaviour


def test_what_is_unhandled_shows() -> None:
    """The search finds a time-out, an oversized answer and others, so a green run means something."""
    machine = load(line(("Do", task(Catch=[{"ErrorEquals": ["X"], "Next": "No"}])), ("No", {"Type": "Fail"})))
    errors = set()

    @settings(max_examples=100, deadline=None, database=None, derandomize=True)
    @given(fuzz(machine))
    def look(case: Case) -> None:
        errors.add(unhandled(machine, case.run(machine)))

    look()
    assert {None, "Sandbox.Timedout", "States.DataLimitExceeded"} < errors


def test_inputs_have_what_expressions_and_calls_read() -> None:
    """They have the members that JSONata and intrinsic functions name, and the constants of a Condition."""
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
    """A failing case can be read and copied."""
    assert repr(Behaviour()) == "Behaviour(answer=ECHO, error=None, cause=None, delay_ms=0, never=False)"


def test_an_error_that_a_fail_state_gives_is_handled() -> None:
    """An error in a Fail state is an answer; an uncaught one, or a path that leads nowhere, is not."""
    caught = line(
        ("Do", task(Catch=[{"ErrorEquals": ["X"], "Next": "No"}])), ("No", {"Type": "Fail", "Error": "Refused"})
    )
    machine = load(caught)
    assert unhandled(machine, machine.execute(functions={"work": raising("X")})) is None
    assert unhandled(machine, machine.execute(functions={"work": raising("Y")})) == "Y"
    lost = load(line(("Do", {"Type": "Fail", "ErrorPath": "$.nowhere"})))
    assert unhandled(lost, lost.execute()) == "States.Runtime"


@settings(max_examples=examples(50), deadline=None)
@given(st.data())
def test_inputs_are_made_of_what_the_definition_reads(data: st.DataObject) -> None:
    """Without any hint, each machine gets cases that run to an end."""
    choice = {"Type": "Choice", "Choices": [{"Variable": "$.a.b", "StringEquals": "go", "Next": "Do"}], "Default": "Do"}
    machine = load(line(("Look", choice), ("Do", task(Retry=[{"ErrorEquals": ["Busy"]}]))))
    case = data.draw(fuzz(machine))
    assert case.run(machine).status in ("SUCCEEDED", "FAILED")
    assert list(case.behaviours) == ["work"]

"""The fuzzer finds what a machine does not handle, and makes its cases only from the definition."""

from typing import Any

from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from examples import examples
from machines import function_raising, line, task
from states_language import Execution, fuzz, load
from states_language.fuzzing import Case, unhandled
from states_language.tasks.stubs import Behaviour


def test_the_fuzzer_finds_unhandled_errors() -> None:
    """The fuzzer finds a time-out, an oversized answer and other unhandled errors, so a green run means something."""
    machine = load(line(("Do", task(Catch=[{"ErrorEquals": ["X"], "Next": "No"}])), ("No", {"Type": "Fail"})))
    errors = set()

    @settings(max_examples=100, deadline=None, database=None, derandomize=True)
    @given(fuzz(machine))
    def look(case: Case) -> None:
        errors.add(unhandled(machine, case.run(machine)))

    look()
    assert {None, "Sandbox.Timedout", "States.DataLimitExceeded"} < errors


def test_inputs_have_the_members_that_expressions_and_calls_read() -> None:
    """Inputs have the members that JSONata and intrinsic functions read, and the constants of a Condition."""
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


def test_a_behaviours_repr_is_the_code_that_makes_it() -> None:
    """A Behaviour's repr is its call, so a failing case can be read and copied."""
    assert repr(Behaviour()) == "Behaviour(answer=ECHO, error=None, cause=None, delay_ms=0, never=False)"


def test_an_error_given_by_a_fail_state_counts_as_handled() -> None:
    """An error given by a Fail state counts as handled. An uncaught error and a path that leads nowhere do not."""
    caught = line(
        ("Do", task(Catch=[{"ErrorEquals": ["X"], "Next": "No"}])), ("No", {"Type": "Fail", "Error": "Refused"})
    )
    machine = load(caught)
    assert unhandled(machine, machine.execute(functions={"work": function_raising("X")})) is None
    assert unhandled(machine, machine.execute(functions={"work": function_raising("Y")})) == "Y"
    lost = load(line(("Do", {"Type": "Fail", "ErrorPath": "$.nowhere"})))
    assert unhandled(lost, lost.execute()) == "States.Runtime"


@settings(max_examples=examples(50), deadline=None)
@given(st.data())
def test_fuzz_cases_run_to_an_end_without_any_hint(data: st.DataObject) -> None:
    """`fuzz` makes cases from the definition alone, and each runs to an end."""
    choice = {"Type": "Choice", "Choices": [{"Variable": "$.a.b", "StringEquals": "go", "Next": "Do"}], "Default": "Do"}
    machine = load(line(("Look", choice), ("Do", task(Retry=[{"ErrorEquals": ["Busy"]}]))))
    case = data.draw(fuzz(machine))
    assert case.run(machine).status in ("SUCCEEDED", "FAILED")
    assert list(case.behaviours) == ["work"]

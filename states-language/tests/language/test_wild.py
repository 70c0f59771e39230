"""No definition and no input breaks the interpreter; and the fuzzer finds what a machine does not handle."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from examples import examples
from language.wild import ANSWERS, DATA, lines, mutated_definitions, run_to_end
from machines import function_raising, line, machine, task
from states_language import DefinitionError, Execution, fuzz, load
from states_language.fuzzing import Case, unhandled
from states_language.tasks.stubs import Behaviour

WILD = settings(
    max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@given(mutated_definitions() | lines(), DATA, ANSWERS)
@WILD
def test_a_wild_definition_is_refused_or_runs_to_an_end(definition: Any, data: Any, answers: list[Any]) -> None:
    """`load` refuses the definition, or its execution ends. The clock would raise a defect of the interpreter."""
    try:
        loaded = load(definition)
    except DefinitionError:
        return
    execution = run_to_end(loaded, data, answers)
    assert execution.status in ("SUCCEEDED", "FAILED", "TIMED_OUT")
    assert [event["id"] for event in execution.history] == list(range(1, len(execution.history) + 1))
    assert all(event["previousEventId"] < event["id"] for event in execution.history)


def _nested(state: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(5000):
        state = wrap(state)
    return state


@pytest.mark.parametrize(
    "state",
    [
        {"Type": "Choice",
         "Choices": [{**_nested({"Variable": "$", "IsNull": True}, lambda rule: {"Not": rule}), "Next": "B"}]},
        {"Type": "Pass", "Parameters": _nested({"a.$": "$"}, lambda inner: {"a": inner}), "Next": "B"},
        {"Type": "Pass", "InputPath": "$[?(" + "(" * 5000, "Next": "B"},
        {"Type": "Pass", "QueryLanguage": "JSONata", "Output": "{% " + "[" * 5000 + " %}", "Next": "B"},
        _nested({"Type": "Pass"}, lambda inner: {"Type": "Parallel", "Branches": [line(("A", inner))], "Next": "B"}),
    ],
)  # fmt: skip
def test_a_deeply_nested_definition_is_refused(state: Any) -> None:
    """Choice Rules, templates, filters, expressions and branches nested 5,000 deep are refused."""
    with pytest.raises(DefinitionError, match="nested too deeply"):
        machine(("A", state), ("B", {"Type": "Pass"}))


def test_data_that_nests_ever_deeper_ends_the_execution() -> None:
    """A loop that wraps its input twenty times a round fails with States.Runtime."""
    wrapped: dict[str, Any] = {"a.$": "$"}
    for _ in range(20):
        wrapped = {"a": wrapped}
    execution = machine(
        ("A", {"Type": "Pass", "Parameters": wrapped, "Next": "B"}),
        ("B", {"Type": "Choice", "Choices": [{"Variable": "$.stop", "IsPresent": True, "Next": "C"}], "Default": "A"}),
        ("C", {"Type": "Succeed"}),
    ).execute()
    assert (execution.status, execution.error) == ("FAILED", "States.Runtime")


def test_an_input_that_is_not_json_is_not_started() -> None:
    """An input that is not JSON is refused: a set, or arrays nested too deeply for any Python's JSON."""
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for data in ({1}, nested):
        with pytest.raises(ValueError, match="the input is not a valid JSON value"):
            machine(("A", {"Type": "Pass"})).execute(data)


@pytest.mark.parametrize(
    ("field", "value", "data"),
    [
        ("InputPath", "$..*..*..*..*", {"a": [[[[[[[[0] * 9] * 3] * 3] * 3] * 3] * 3] * 3] * 3}),
        ("Parameters", {"u.$": "States.ArrayUnique($.a)"}, {"a": list(range(40_000))}),
        ("Parameters", {"s.$": "States.StringSplit($.a, 'a')"}, {"a": "a" * 200_000}),
    ],
)
def test_a_costly_field_is_bounded(field: str, value: Any, data: Any) -> None:
    """A deep scan that multiplies fails with its bound; other costly fields take linear time."""
    execution = machine(("A", {"Type": "Pass", field: value})).execute(data)
    assert execution.status in ("SUCCEEDED", "FAILED")
    if field == "InputPath":
        assert execution.error == "States.Runtime"
        assert "selects more than 200000 nodes" in (execution.cause or "")


def test_wildcards_take_linear_time() -> None:
    """A pattern of a thousand wildcards takes linear time on a long text that does not match at its end."""
    rule = {"Variable": "$", "StringMatches": "*a" * 1000 + "b", "Next": "A"}
    states = ("A", {"Type": "Choice", "Choices": [rule], "Default": "B"}), ("B", {"Type": "Succeed"})
    assert machine(*states).execute("a" * 200_000).status == "SUCCEEDED"


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

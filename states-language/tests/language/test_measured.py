"""Behaviour that others measured on AWS without a recording: templates, calls, retried branches, a failing Catcher."""

from typing import Any

import pytest

from machines import event_types, line, machine
from states_language import Execution

PASS = {"Type": "Pass"}
DATA = {"other": 1, "items": [1, 2], "nul": None}
BOOM = line(("Boom", {"Type": "Fail", "Error": "MyError", "Cause": "my cause"}))


def run_template(template: Any) -> Execution:
    return machine(("A", {"Type": "Pass", "Parameters": {"v.$": template}})).execute(DATA)


def test_an_element_past_the_end_of_an_array_is_null_in_a_template() -> None:
    """The same path is an error in InputPath, and so is a path that leads on from such an element."""
    assert run_template("$.items[5]").output == {"v": None}
    assert run_template("$.items[5].x").error == "States.Runtime"
    assert run_template("$.other[5]").error == "States.Runtime"
    assert machine(("A", {"Type": "Pass", "InputPath": "$.items[5]"})).execute(DATA).error == "States.Runtime"


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        ("States.Format('{}', $.nope)", "$.nope"),
        ("States.Format('{} {}', $.other, $.a.b)", "$.a.b"),
        ("States.Format('{}', States.Format('{}', $.nope))", "$.nope"),
        ("States.Format('{}', $.items[5])", "$.items[5]"),
        ("States.Format('{}', $$.Nope.Deep)", "$.Nope.Deep"),
    ],
)
def test_a_call_whose_argument_is_missing_names_the_whole_call(call: str, argument: str) -> None:
    """If an argument's path leads nowhere, the error is States.Runtime; the cause quotes the call and the path."""
    assert run_template(call).error == "States.Runtime"
    assert (run_template(call).cause or "").partition(". ")[2] == (
        f"The function '{call}' had the following error: The JsonPath argument for the field '{argument}' could not be "
        'found in the input \'{"other":1,"items":[1,2],"nul":null}\''
    )


def test_a_parallel_state_that_is_retried_fails_once_in_its_history() -> None:
    """A retried Parallel has one ParallelStateFailed. The new branches' events follow the failed one's."""
    parallel = {"Type": "Parallel", "Branches": [BOOM], "Retry": [{"ErrorEquals": ["States.ALL"], "MaxAttempts": 1}]}
    execution = machine(("P", parallel)).execute()
    assert event_types(execution)[2:] == [
        *("ParallelStateStarted", "FailStateEntered", "ParallelStateStarted", "FailStateEntered"),
        *("ParallelStateFailed", "ExecutionFailed"),
    ]
    assert [event["previousEventId"] for event in execution.history] == [0, 0, 2, 3, 4, 5, 6, 7]


def test_a_catcher_whose_output_fails_fails_the_state_again() -> None:
    """If a Catcher's Output fails, the state fails with the expression's error, which names the Catcher's field."""
    catch = [
        {"ErrorEquals": ["Other"], "Next": "Z"},
        {"ErrorEquals": ["States.ALL"], "Output": {"v": "{% $states.input.missing %}"}, "Next": "Z"},
    ]
    states = ("P", {"Type": "Parallel", "Branches": [BOOM], "Catch": catch, "Next": "Z"}), ("Z", PASS)
    execution = machine(*states, QueryLanguage="JSONata").execute()
    assert event_types(execution)[4:] == [
        "ParallelStateFailed",
        "EvaluationFailed",
        "ParallelStateFailed",
        "ExecutionFailed",
    ]
    assert execution.error == "States.QueryEvaluationError"
    assert "specified for the field 'Catch[1]/Output/v'" in (execution.cause or "")


@pytest.mark.parametrize(("path", "limit"), [("nul", "null"), ("huge", str(1 << 63))])
def test_a_time_limit_that_is_no_long_is_shown_as_json(path: str, limit: str) -> None:
    """A time limit that is not a long fails, and the cause shows it as JSON."""
    task = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Parameters": {"FunctionName": "f"}}
    execution = machine(("A", {**task, "TimeoutSecondsPath": f"$.{path}"})).execute({**DATA, "huge": 1 << 63})
    assert (execution.cause or "").endswith(f"cannot be parsed as a positive long value: $.{path} == {limit}")

"""A state is compiled when it is loaded, or when an execution enters it if it is certain to compile."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings

from examples import examples
from language.wild import RECORDED, mutated_definitions
from machines import INVOKE, line, task
from states_language import DefinitionError, Machine, load

PASS = {"Type": "Pass", "Result": 1, "Next": "B"}
CATCH = {"ErrorEquals": ["A"], "Next": "B"}
RULE = {"Variable": "$.a", "NumericEquals": 1, "Next": "B"}
SOUND: list[dict[str, Any]] = [
    {**PASS, "InputPath": "$.a[0]", "OutputPath": None, "Parameters": {"a.$": "$$.Map", "b": [{"c.$": "$.a"}]}},
    {**PASS, "Comment": "one", "Parameters": {"a.$": "States.Format('{}', $.a)"}},
    {"Type": "Wait", "Seconds": 1, "Next": "B"},
    {"Type": "Wait", "Timestamp": "2020-01-01T00:00:00Z", "Next": "B"},
    {"Type": "Choice", "Choices": [RULE], "Default": "B"},
    {**task(), "TimeoutSeconds": 1, "Catch": [CATCH], "Retry": [{"ErrorEquals": ["A"], "MaxAttempts": 1}], "Next": "B"},
    {"Type": "Pass", "Output": {"a": ["{% $states.input.a[0] %}", "{% $x + 1 %}"]}, "Next": "B"},
    {"Type": "Task", "Resource": INVOKE, "Arguments": {"FunctionName": "f"}, "Catch": [CATCH], "Next": "B"},
    {"Type": "Choice", "Choices": [{"Condition": "{% $x %}", "Next": "B"}], "Default": "B"},
]
WRONG: dict[str, list[Any]] = {
    "Next": [None, 1, "C"],
    "Default": [1, "C"],
    "Comment": [1],
    "InputPath": ["a", "$.", 1],
    "Parameters": [{"a.$": "a"}, {"a.$": 1}, {"a.$": "$", "a": 1}, {"FunctionName": "f", "a.$": "States.Format('{}'"}],
    "Arguments": [{"Payload": 1}, {"FunctionName": "{% ( %}"}],
    "Output": ["{% $ %}", {"a": ["{% a %}"]}, "{% $states.errorOutput %}"],
    "Resource": [None, 1, ["a"], "a"],
    "Seconds": [-1, 1.5, True, "1", 10**8],
    "Timestamp": ["2020-01-01T00:00Z", 1],
    "TimeoutSeconds": [0, True],
    "Retry": [1, [{"ErrorEquals": ["A"], "MaxAttempts": True}], [{"ErrorEquals": ["A"], "MaxAttempts": -1}]],
    "Catch": [
        *([{**CATCH, field: value}] for field, value in [("ErrorEquals", []), ("Next", 1), ("ResultPath", "$$")]),
        [{"ErrorEquals": ["States.ALL"], "Next": "B"}, CATCH],
    ],
    "Choices": [
        *([{**RULE, field: value}] for field, value in [("Next", 1), ("Variable", "a"), ("NumericEquals", True)]),
        *([], [{**RULE, "IsNull": True}], [{"Variable": "$", "Next": "B"}], [{"Condition": "x", "Next": "B"}]),
    ],
}


def load_or_error(definition: Any) -> Machine | tuple[str, str]:
    """Return the machine, or the pointer and the rule of its problem."""
    try:
        return load(definition)
    except DefinitionError as problem:
        return problem.pointer, problem.rule


def compile_or_error(definition: Any) -> Machine | tuple[str, str]:
    """Return the same, with every state compiled at once."""
    with patch("states_language.definition.load.targets_if_sound", lambda *_: None):
        return load_or_error(definition)


def definition_of(state: dict[str, Any]) -> dict[str, Any]:
    language = "JSONata" if {"Arguments", "Output"} & state.keys() or "Condition" in str(state) else "JSONPath"
    return {"QueryLanguage": language, **line(("A", state), ("B", {"Type": "Succeed"}))}


@pytest.mark.parametrize("state", SOUND, ids=str)
def test_the_second_state_of_a_shape_is_compiled_when_it_is_entered(state: dict[str, Any]) -> None:
    """A state whose shape is known is not compiled while the machine is loaded."""
    load(definition_of(state))
    machine = load(definition_of(state))
    assert "A" not in list(machine.line.states)
    assert [target for target, _ in machine.line.states["A"].targets] == machine.line.states.target_names["A"]


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in WRONG for value in WRONG[field]], ids=str)
def test_a_wrong_value_in_a_known_shape_is_refused_in_the_same_words(field: str, value: Any) -> None:
    """A wrong value in any state that has the field is refused with the same words as in a new shape."""
    for state in SOUND:
        load(definition_of(state))
        if field in state:
            assert isinstance(compile_or_error(definition_of({**state, field: value})), tuple)
            assert str(load_or_error(definition_of({**state, field: value}))) == str(
                compile_or_error(definition_of({**state, field: value}))
            )


@given(mutated_definitions())
@settings(max_examples=examples(200))
def test_a_state_that_is_compiled_later_compiles(definition: Any) -> None:
    """A wild definition has the same problem with a known shape as without, or all of its states compile."""
    for each in RECORDED[:3]:
        load(each)
    loaded, whole = load_or_error(definition), compile_or_error(definition)
    if isinstance(loaded, tuple) or isinstance(whole, tuple):
        assert loaded == whole
        return
    for name, names in loaded.line.states.target_names.items():
        assert sorted(target for target, _ in loaded.line.states[name].targets) == sorted(names)

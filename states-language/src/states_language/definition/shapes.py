"""Finds the states that are certainly sound, so they need not be compiled before an execution enters them.

A state has the shape of another one with the same Type and the same fields. Rules of the shape (a field is missing,
unknown, or excludes another) are checked when the first state of the shape is compiled. `targets_if_sound` checks the
values of the fields, each alone. Invariant: a state that is found sound compiles, and in few steps; any doubt means no.
This repeats checks of the compilation for its speed: if every state is compiled at once, loading 430 KB takes two to
three times as long (`python -m bench.interpreter`). test_shapes.py compares both.
"""

import re
from collections.abc import Callable
from typing import Any

from states_language.definition.fields import JSONATA, JSONPATH
from states_language.jsonata.evaluation import is_query
from states_language.jsonata.query_flow import is_valid_expression
from states_language.jsonpath.choice_rules import OPERATORS
from states_language.jsonpath.expressions import compile_expression
from states_language.jsonpath.grammar import PathSyntaxError
from states_language.states.retry import is_compiled
from states_language.tasks.resources import read_resource
from states_language.timestamps import is_rfc3339

Check = Callable[[Any], bool]

MOST, DEEPEST, LONGEST = 16, 8, 400
"""Members of an object or an array, objects in one another, and characters of an expression, in a sound state."""
_MOST_SHAPES = 1024
_LARGEST = 99_999_999
_NESTED = (dict, list)
_PATH = re.compile(r"\$(?:\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]{1,9}\])*").fullmatch
"""A Reference Path into the state's own data."""


def _accept_any(_value: Any) -> bool:
    return True


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_path(value: Any) -> bool:
    return type(value) is str and _PATH(value) is not None


def _is_path_or_null(value: Any) -> bool:
    return value is None or _is_path(value)


def _is_expression(value: Any) -> bool:
    if type(value) is not str or len(value) > LONGEST:
        return False
    if _PATH(value) is None:
        try:
            compile_expression(value)
        except PathSyntaxError:
            return False
    return True


def _is_payload(value: Any, deepest: int = DEEPEST) -> bool:
    """Return whether the value is a Payload Template of JSONPath."""
    kind = type(value)
    if kind is dict:
        if len(value) > MOST or not deepest:
            return False
        for key, member in value.items():
            if key.endswith(".$"):
                if key[:-2] in value or not _is_expression(member):
                    return False
            elif type(member) in _NESTED and not _is_payload(member, deepest - 1):
                return False
    elif kind is list:
        return len(value) <= MOST and deepest > 0 and all(_is_payload(element, deepest - 1) for element in value)
    return True


def _is_template(value: Any, deepest: int = DEEPEST) -> bool:
    """Return whether the value is a template of JSONata."""
    kind = type(value)
    if kind is str:
        return not is_query(value) or (len(value) <= LONGEST and is_valid_expression(value))
    if kind is not dict and kind is not list:
        return True
    if len(value) > MOST or not deepest:
        return False
    return all(_is_template(part, deepest - 1) for part in (value.values() if kind is dict else value))


def _is_condition(value: Any) -> bool:
    return type(value) is bool or (is_query(value) and _is_template(value))


def _is_string(value: Any) -> bool:
    return type(value) is str and _is_template(value)


def _is_truth(value: Any) -> bool:
    return type(value) is bool


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _range_check(least: int) -> Check:
    return lambda value: type(value) is int and least <= value <= _LARGEST


def _array_check(checks: dict[str, Check], *required: str) -> Check:
    """Return the check of an array of objects that have these fields, the required ones among them."""
    needed = frozenset(required)

    def check(values: Any) -> bool:
        if type(values) is not list or not 0 < len(values) <= MOST:
            return False
        for value in values:
            if type(value) is not dict or not value.keys() >= needed:
                return False
            for field, member in value.items():
                if field not in checks or not checks[field](member):
                    return False
        return True

    return check


def _is_rules(values: Any) -> bool:
    return _is_rules_with_operands(values) and all(len(value.keys() & OPERATORS) == 1 for value in values)


def _is_errors(value: Any) -> bool:
    if value == ["States.ALL"]:
        return True
    return type(value) is list and set(map(type, value)) == {str} and "States.ALL" not in value


def _catchers_check(**checks: Check) -> Check:
    """Return the check of Catchers, of which only the last may name States.ALL."""
    are = _array_check(
        {"Comment": _is_text, "ErrorEquals": _is_errors, "Next": _is_text, **checks}, "ErrorEquals", "Next"
    )
    return lambda values: (
        are(values) and (len(values) == 1 or all("States.ALL" not in each["ErrorEquals"] for each in values[:-1]))
    )


_OPERANDS: dict[str, Check] = {"Numeric": _is_number, "String": _is_text, "Boolean": _is_truth, "Is": _is_truth}
_is_rules_with_operands = _array_check(
    {
        "Comment": _is_text,
        "Next": _is_text,
        "Variable": _is_path,
        **{
            name: _is_path if name.endswith("Path") else check
            for name in OPERATORS
            for start, check in _OPERANDS.items()
            if name.startswith(start)
        },
    },
    *("Next", "Variable"),
)
_COMMON_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("Type", "Resource"), _accept_any),  # they are in the key
    **dict.fromkeys(("Comment", "Default", "Next"), _is_text),
    "End": lambda value: value is True,
    "Seconds": _range_check(0),
    "TimeoutSeconds": _range_check(1),
    "Timestamp": is_rfc3339,
    "Retry": is_compiled,
}
_CHECKS: dict[str, dict[str, Check]] = {
    JSONPATH: {
        **_COMMON_CHECKS,
        **dict.fromkeys(("InputPath", "OutputPath", "ResultPath"), _is_path_or_null),
        **dict.fromkeys(("SecondsPath", "TimestampPath", "TimeoutSecondsPath"), _is_path),
        **dict.fromkeys(("ErrorPath", "CausePath"), _is_expression),
        **dict.fromkeys(("Error", "Cause"), _is_text),
        **dict.fromkeys(("Parameters", "ResultSelector"), _is_payload),
        "Result": _accept_any,
        "Choices": _is_rules,
        "Catch": _catchers_check(ResultPath=_is_path_or_null),
    },
    JSONATA: {
        **_COMMON_CHECKS,
        **dict.fromkeys(("Error", "Cause"), _is_string),
        **dict.fromkeys(("Arguments", "Output"), _is_template),
        "Choices": _array_check(
            {"Comment": _is_text, "Condition": _is_condition, "Next": _is_text}, "Condition", "Next"
        ),
        "Catch": _catchers_check(),
    },
}
"""The fields of each query language whose values are judged by themselves. A state with any other is compiled."""


_SHAPES: dict[tuple[Any, ...] | None, tuple[tuple[str, Check], ...]] = {}
"""The fields of each shape that are checked, by what `_shape_key` returns."""


def targets_if_sound(state: Any, language: str) -> list[str] | None:
    """Return the names of the states to which a sound state leads; None if only compiling it can show that."""
    try:
        checks = _SHAPES.get(_shape_key(state, language))
    except (AttributeError, TypeError):  # no object, or an array in place of a text
        return None
    if checks is None:
        return None
    for field, check in checks:
        if not check(state[field]):
            return None
    names = [state["Next"]] if "Next" in state else []
    if "Default" in state:
        names.append(state["Default"])
    for each in state.get("Catch") or state.get("Choices") or ():
        names.append(each["Next"])
    return names


def learn_shape(state: dict[str, Any], language: str) -> None:
    """Remember the shape of a state that was compiled, if its fields can be judged by themselves."""
    key, checks = _shape_key(state, language), _CHECKS[language]
    if key is None or key in _SHAPES or not state.keys() <= checks.keys() or {"Next", "End"} <= state.keys():
        return
    if len(_SHAPES) >= _MOST_SHAPES:
        _SHAPES.clear()
    _SHAPES[key] = tuple((field, check) for field in state if (check := checks[field]) is not _accept_any)


def _shape_key(state: dict[str, Any], language: str) -> tuple[Any, ...] | None:
    """Return what decides a state's shape; None if it has a Resource that is no service, function or activity.

    The arguments of lambda:invoke belong to it, for FunctionName must be among them.
    """
    if "Resource" not in state:
        return (state.get("Type"), language, *state)
    found = read_resource(state["Resource"])
    if isinstance(found, str) or found.is_placeholder:
        return None
    if not found.is_lambda_invoke:
        return (state.get("Type"), language, *state)
    arguments = state.get("Arguments" if language == JSONATA else "Parameters")
    return (state.get("Type"), language, *state, tuple(arguments)) if type(arguments) is dict else None

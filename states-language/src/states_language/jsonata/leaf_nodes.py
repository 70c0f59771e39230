"""Compiles the nodes of an expression that have none below them: literals, variables, and paths of names.

Invariant: what is read of objects, texts and numbers is the general evaluator's value; where a path meets an array,
that evaluates the node. Each function here is a `Run`, which `node_functions` describes.
"""

from collections.abc import Callable
from typing import Any

from states_language.jsonata.bounds import DEEPEST, SHORT, Bounds
from states_language.jsonata.library import Utils
from states_language.jsonata.syntax import has_modifiers

Run = Callable[[Bounds, Any, Any], Any]
"""What a node evaluates to, of the bounds, the context and the frame of variables."""

LITERALS = ("string", "number", "value")
COUNTED = frozenset({bool, int, float})
PLAIN = COUNTED | {type(None), Utils.NullValue}
"""The types of the values whose size is not counted."""
_SCALARS = COUNTED | {str}
_NESTED = (dict, list)
_LONG = 4_096
"""A text of the definition below is within all bounds."""


def literal_function(node: Any) -> Run | None:
    value = Utils.NULL_VALUE if node.value is None else node.value
    if isinstance(value, str) and len(value) >= _LONG:
        return None

    def run(bounds: Bounds, _input: Any, _frame: Any) -> Any:
        bounds.steps += 1
        if bounds.steps > bounds.most_steps or bounds.depth >= DEEPEST:
            raise bounds.overrun_error()
        return value

    return run


def path_names(node: Any) -> tuple[str | None, list[str]] | None:
    """Return where a path of names begins, at a variable or (None) the context, and the names; None for all else."""
    steps = node.steps if node.type == "path" else [node]
    variable = str(steps[0].value) if steps[0].type == "variable" and steps[0].value else None
    named = steps if variable is None else steps[1:]
    if any(map(has_modifiers, (node, *steps))) or any(step.type != "name" for step in named):
        return None
    return variable, [str(step.value) for step in named]


def path_function(machine: Any, node: Any) -> Run | None:
    found = path_names(node)
    return None if found is None else _make_path_function(machine, node, *found)


def _make_path_function(machine: Any, node: Any, variable: str | None, names: list[str]) -> Run:
    steps = len(node.steps) if node.type == "path" else 0

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        bounds.steps += 1
        if bounds.steps > bounds.most_steps or bounds.depth >= DEEPEST:
            raise bounds.overrun_error()
        value = input if variable is None else frame.lookup(variable)
        for name in names:
            if type(value) is dict and (member := value.get(name)) is not None:
                value = member
            elif isinstance(value, _NESTED) and (type(value) is not dict or name in value):
                return general(bounds, input, frame)
            else:  # a text, a number or null has no members, and this object has no such one
                value = None
                break
        if isinstance(value, list):
            return general(bounds, input, frame)
        bounds.steps += steps
        if bounds.steps > bounds.most_steps:
            raise bounds.overrun_error()
        if type(value) in PLAIN or (type(value) is str and len(value) < SHORT):
            return value
        return bounds.count_result(node, value)

    def general(bounds: Bounds, input: Any, frame: Any) -> Any:
        bounds.depth += 1
        value = machine.general(node, input, frame)
        bounds.depth -= 1
        return bounds.count_result(node, value)

    return run if variable != "states" or machine.rebinds_states else _states_path_function(node, names, run)


def _states_path_function(node: Any, names: list[str], otherwise: Run) -> Run:
    """Return what reads a text, a number or a truth value from $states before it is represented for the library."""
    steps = len(names) + 2

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        value: Any = bounds.states
        for name in names:
            if type(value) is not dict:
                return otherwise(bounds, input, frame)
            value = value.get(name)
        if type(value) not in _SCALARS:
            return otherwise(bounds, input, frame)
        bounds.steps += steps
        if bounds.steps > bounds.most_steps or bounds.depth >= DEEPEST:
            raise bounds.overrun_error()
        return bounds.count_result(node, value) if type(value) is str and len(value) >= SHORT else value

    return run

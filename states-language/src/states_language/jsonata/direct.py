"""Reads what a literal, a variable or a path of names through objects says, without the library's general evaluator.

    read = direct(node)  # of the path $states.input.order.id
    value = read(None, frame)  # "o-17", or UNDECIDED where an array is on the way

Most nodes of a definition are of these three kinds, and the general evaluator makes a sequence for each step of them.
Invariant: the value is the general evaluator's; where that would look into an array, or where a node has more than its
name (a predicate, a sort, a binding, a group), nothing is decided here.
"""

from collections.abc import Callable
from typing import Any

from jsonata.utils import Utils

Read = Callable[[Any, Any], Any]
"""What a node says, of the context and the frame of variables."""

UNDECIDED = object()
"""The general evaluator decides."""

_MORE = ("predicate", "group", "stages", "tuple", "focus", "index", "ancestor", "keep_singleton_array", "keep_array")
_LITERALS = ("string", "number", "value")


def direct(node: Any) -> Read | None:
    """Return how the node is read, None where the general evaluator always has to."""
    if has_more(node):
        return None
    if node.type in _LITERALS:
        return _literal(node)
    if node.type == "variable" and node.value:
        return _variable(str(node.value))
    if node.type == "path":
        return _path(node.steps)
    return None


def place(node: Any) -> tuple[str, list[str]] | None:
    """Return the variable that an expression reads and the path of names from there; None for any other expression."""
    if node.type == "variable" and node.value and not has_more(node):
        return str(node.value), []
    if node.type != "path" or has_more(node) or any(has_more(step) for step in node.steps):
        return None
    first, *others = node.steps
    if first.type != "variable" or not first.value or any(step.type != "name" for step in others):
        return None
    return str(first.value), [str(step.value) for step in others]


def has_more(node: Any) -> bool:
    """Return whether a node has a predicate, a sort, a binding, a group or the like besides."""
    return any(getattr(node, name, None) not in (None, False) for name in _MORE) or bool(
        getattr(node, "consarray", False)
    )


def _literal(node: Any) -> Read:
    def read(_input: Any, _frame: Any) -> Any:
        # Not taken out once: the text of a node may be corrected after it was parsed.
        return Utils.NULL_VALUE if node.value is None else node.value

    return read


def _variable(name: str) -> Read:
    def read(_input: Any, frame: Any) -> Any:
        value = frame.lookup(name)
        return UNDECIDED if isinstance(value, list) else value

    return read


def _path(steps: list[Any]) -> Read | None:
    first, *others = steps
    starts_at_variable = first.type == "variable" and bool(first.value)
    named = others if starts_at_variable else steps
    if any(has_more(step) for step in steps) or any(step.type != "name" for step in named):
        return None
    variable = str(first.value) if starts_at_variable else None
    names = [str(step.value) for step in named]

    def read(input: Any, frame: Any) -> Any:
        value = input if variable is None else frame.lookup(variable)
        for name in names:
            if type(value) is not dict:
                # A text, a number or null has no members; an array or what the library made of one has.
                return UNDECIDED if isinstance(value, list | dict) else None
            member = value.get(name)
            if member is None:
                return UNDECIDED if name in value else None
            value = member
        return UNDECIDED if isinstance(value, list) else value

    return read

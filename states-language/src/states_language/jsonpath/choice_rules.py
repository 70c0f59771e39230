"""Compiles Choice Rules: a rule becomes a function that returns whether it holds for some data.

Invariant: a comparison with a value of another type is false, never an error. A Variable that leads nowhere is an error
for every operator but IsPresent (recorded).
"""

import operator
import re
from collections.abc import Callable
from typing import Any

from states_language.context import Environment
from states_language.definition.fields import DefinitionError, Fields, child_pointer
from states_language.failures import EvaluationError
from states_language.jsonpath.dataflow import compile_path_field
from states_language.jsonpath.selection import Path
from states_language.timestamps import instant_ns, is_rfc3339
from states_language.values import MISSING

Rule = Callable[[Any, Environment], bool]

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "Equals": operator.eq,
    "LessThan": operator.lt,
    "GreaterThan": operator.gt,
    "LessThanEquals": operator.le,
    "GreaterThanEquals": operator.ge,
}


def _number_or_none(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _string_or_none(value: Any) -> Any:
    return value if isinstance(value, str) else None


def _boolean_or_none(value: Any) -> Any:
    return value if isinstance(value, bool) else None


# Each kind of operator has a function that reads an operand (it returns None for another type), and its comparisons.
_KINDS: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "String": (_string_or_none, tuple(_ORDERS)),
    "Numeric": (_number_or_none, tuple(_ORDERS)),
    "Timestamp": (instant_ns, tuple(_ORDERS)),
    "Boolean": (_boolean_or_none, ("Equals",)),
}
_COMPARISONS = {kind + order: (read, _ORDERS[order]) for kind, (read, orders) in _KINDS.items() for order in orders}
_TESTS: dict[str, Callable[[Any], bool]] = {
    "IsNull": lambda value: value is None,
    "IsNumeric": lambda value: _number_or_none(value) is not None,
    "IsString": lambda value: isinstance(value, str),
    "IsBoolean": lambda value: isinstance(value, bool),
    "IsTimestamp": lambda value: instant_ns(value) is not None,
}
OPERATORS = frozenset([*_COMPARISONS, *(name + "Path" for name in _COMPARISONS), *_TESTS, "IsPresent", "StringMatches"])


def compile_test(fields: Fields) -> Rule:
    """Return the condition in a rule's fields, without its Next; raises DefinitionError."""
    fields.string("Comment")
    joined = fields.at_most_one("And", "Or", "Not", "Variable")
    if not joined:
        raise DefinitionError(fields.pointer, "one of these fields is required: Variable, And, Or, Not")
    return _compile_comparison(fields) if joined == ["Variable"] else _compile_combination(fields, joined[0])


def _compile_nested(value: Any, pointer: str) -> Rule:
    fields = Fields(value, pointer)
    for name in ("Next", "Assign"):
        if name in fields:
            raise fields.error_for(name, "stands in a top-level rule only")
    rule = compile_test(fields)
    fields.refuse_unread("a Choice Rule")
    return rule


def _compile_combination(fields: Fields, name: str) -> Rule:
    if name == "Not":
        inner = _compile_nested(fields.get(name), fields.pointer_of(name))
        return lambda data, env: not inner(data, env)
    parts = fields.array(name)
    if not parts:
        raise fields.error_for(name, "must hold at least one rule")
    rules = [_compile_nested(part, child_pointer(fields.pointer_of(name), index)) for index, part in enumerate(parts)]
    if name == "And":
        return lambda data, env: all(rule(data, env) for rule in rules)
    return lambda data, env: any(rule(data, env) for rule in rules)


def _compile_comparison(fields: Fields) -> Rule:
    variable = compile_path_field(fields, "Variable")
    names = [name for name in fields.value if name in OPERATORS]
    if len(names) != 1:
        raise DefinitionError(fields.pointer, f"exactly one operator is required, not {len(names)}")
    name = names[0]
    if name == "IsPresent" or name in _TESTS:
        wanted = fields.boolean(name)
        if name == "IsPresent":
            return lambda data, env: (variable.find_value(data, env) is not MISSING) is wanted
        test = _TESTS[name]
        return lambda data, env: test(_require_value(variable, data, env)) is wanted
    if name == "StringMatches":
        pattern = _split_pattern(fields.string(name) or "")
        return lambda data, env: _is_match(pattern, _require_value(variable, data, env))
    if name.endswith("Path"):
        read, compare = _COMPARISONS[name.removesuffix("Path")]
        other = compile_path_field(fields, name)
        return lambda data, env: _compare(
            read, compare, _require_value(variable, data, env), _require_value(other, data, env)
        )
    operand = fields.get(name)
    read, compare = _COMPARISONS[name]
    if read(operand) is None or (read is instant_ns and not is_rfc3339(operand)):
        raise fields.error_for(name, "has a value of the wrong type")
    return lambda data, env: _compare(read, compare, _require_value(variable, data, env), operand)


def _require_value(path: Path, data: Any, env: Environment) -> Any:
    value = path.find_value(data, env)
    if value is MISSING:
        raise EvaluationError(
            f"Invalid path '{path.text}': The choice state's condition path references an invalid value."
        )
    return value


def _compare(read: Callable[[Any], Any], compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    a, b = read(left), read(right)
    return a is not None and b is not None and compare(a, b)


_PART = re.compile(r"\\([*\\])|(\*)|(.)", re.DOTALL)


def _split_pattern(text: str) -> tuple[str, ...]:
    r"""Return the texts between the wildcards: a * stands for any characters; \* and \\ for themselves."""
    pieces = [""]
    for escaped, star, other in _PART.findall(text):
        if star:
            pieces.append("")
        else:
            pieces[-1] += escaped or other
    return tuple(pieces)


def _is_match(pieces: tuple[str, ...], value: Any) -> bool:
    """Return whether the value is a text with the pieces in this order.

    Each search begins where the previous piece ends, so the time is linear.
    """
    if not isinstance(value, str):
        return False
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return value == first
    end = len(value) - len(last)
    at = len(first)
    if at > end or not value.startswith(first) or not value.endswith(last):
        return False
    for piece in pieces[1:-1]:
        at = value.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True

"""Compiles Payload Templates: Parameters, ResultSelector and their like.

The value of a key that ends in .$ is a path or an intrinsic call; everything else stays as it is:

    {"name.$": "$.user", "n": 1}  # {"name": "Ada", "n": 1} for {"user": "Ada"}

Invariant: parts without a path are shared with the definition, and nobody writes to them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from states_language.context import Environment
from states_language.definition.fields import DefinitionError, below
from states_language.failures import EvaluationError, Oversized
from states_language.jsonpath.expressions import Expression, compile_expression, evaluate, sources
from states_language.jsonpath.grammar import PathSyntaxError
from states_language.jsonpath.selection import Index, Path
from states_language.values import FEW, LARGEST_BETWEEN, MISSING, compact, weight

Fill = Callable[[Any, Environment], Any]


def compile_template(value: Any, pointer: str) -> Fill:
    """Return the function that fills the template; raises DefinitionError for a bad path or call in it."""
    read: list[int] = []
    fill = _compile(value, pointer, read)
    if fill is None:
        return lambda _data, _env: value
    return fill if sum(read) <= FEW else _bounded(fill)


def _bounded(fill: Fill) -> Fill:
    """A value that many paths fill may be too large to be written as JSON."""

    def filled(data: Any, env: Environment) -> Any:
        value = fill(data, env)
        if weight(value, {}) > LARGEST_BETWEEN:
            raise Oversized
        return value

    return filled


def expression(text: Any, pointer: str) -> Expression:
    """Return the compiled path or intrinsic call of a field; raises DefinitionError naming the field."""
    if not isinstance(text, str):
        raise DefinitionError(pointer, "must be a string with a JSONPath or an intrinsic function")
    try:
        return compile_expression(text)
    except PathSyntaxError as problem:
        raise DefinitionError(pointer, f"'{text}' is not a valid JSONPath or intrinsic function: {problem}") from None


def look_up(source: Expression, field: str, data: Any, env: Environment) -> Any:
    """Return the expression's value; a path that leads nowhere raises EvaluationError in AWS's words (recorded)."""
    if not isinstance(source, Path):
        return evaluate(source, data, env)
    root = source.root(data, env)
    value = source.find(root)
    if value is MISSING:
        root = data if root is MISSING else root
        raise EvaluationError(
            f"The JSONPath '{source.text}' specified for the field '{field}' could not be found in the input "
            f"'{compact(root)}'"
        )
    return value


def _compile(value: Any, pointer: str, read: list[int]) -> Fill | None:
    """Return the part's function, or None for a part without paths; `read` gets each expression's count of paths."""
    if isinstance(value, dict):
        return _object(value, pointer, read)
    if isinstance(value, list):
        fills = [_compile(element, below(pointer, index), read) for index, element in enumerate(value)]
        if not any(fills):
            return None
        return lambda data, env: [
            fill(data, env) if fill else element for fill, element in zip(fills, value, strict=True)
        ]
    return None


def _object(value: dict[str, Any], pointer: str, read: list[int]) -> Fill | None:
    members: list[tuple[str, Fill | None, Any]] = []
    for key, member in value.items():
        if key.endswith(".$"):
            source = expression(member, below(pointer, key))
            read.append(sources(source))
            members.append((key[:-2], _member(key, source), None))
        else:
            members.append((key, _compile(member, below(pointer, key), read), member))
    if len({name for name, _, _ in members}) < len(members):
        raise DefinitionError(pointer, "gives the same name with .$ and without")
    if not any(fill for _, fill, _ in members):
        return None
    return lambda data, env: {name: fill(data, env) if fill else member for name, fill, member in members}


def _member(key: str, source: Expression) -> Fill:
    if isinstance(source, Path) and source.steps and isinstance(source.steps[-1], Index):
        return lambda data, env: _element(source, key, data, env)
    return lambda data, env: look_up(source, key, data, env)


def _element(source: Path, key: str, data: Any, env: Environment) -> Any:
    """An element past the end of an array is null in a template, and in a template alone (measured by others)."""
    value = source.look(data, env)
    if value is not MISSING:
        return value
    array = dataclasses.replace(source, steps=source.steps[:-1]).look(data, env)
    return None if isinstance(array, list) else look_up(source, key, data, env)

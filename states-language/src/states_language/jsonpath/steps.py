"""The steps of a compiled JSONPath, and the nodes that each selects in one value.

Invariant: while a search runs, each visited node counts, in filters too, and the search ends at a bound.
"""

import functools
import operator
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from states_language.failures import EvaluationError
from states_language.scheduling.lanes import Costly
from states_language.values import MISSING


@dataclass(frozen=True)
class Name:
    """A member of an object."""

    name: str


@dataclass(frozen=True)
class Names:
    """Several members of an object, at the end of a path: an object of those that exist (measured by others).

    needs_all: whether all of them must exist, as after a deep scan.
    """

    names: tuple[str, ...]
    needs_all: bool = False


@dataclass(frozen=True)
class Index:
    """An element of an array; negative counts from the end."""

    index: int


@dataclass(frozen=True)
class Many:
    """Several elements: `select` yields them for one value; `text` is how the path writes the step."""

    text: str
    select: Callable[[Any, Any], Iterator[Any]] = field(compare=False)


Step = Name | Names | Index | Many

MOST_VISITED = 5_000_000
"""How many nodes a path, with its filters' paths, may visit: some seconds' work. AWS documents no bound."""


class Search(threading.local):
    """How many more nodes the search in this thread may visit; None if no search runs."""

    visits_left: int | None = None
    most_visits = MOST_VISITED


search = Search()


def count_visits(nodes: int) -> None:
    """Count visited nodes; raises EvaluationError past the bound, or Costly if others wait."""
    if search.visits_left is not None:
        search.visits_left -= nodes
        if search.visits_left < 0:
            if search.most_visits < MOST_VISITED:
                raise Costly
            raise EvaluationError(f"it visits more than {MOST_VISITED} nodes")


def format_path(steps: Iterable[Step]) -> str:
    """Return a path as Jayway's messages write it: $['a'][0]."""
    return "$" + "".join(format_step(step) for step in steps if not isinstance(step, Many))


def format_step(step: Step) -> str:
    if isinstance(step, Index):
        return f"[{step.index}]"
    names = step.names if isinstance(step, Names) else [step.name] if isinstance(step, Name) else []
    return "['" + "', '".join(names) + "']"


def select_child(value: Any, step: Step) -> Any:
    """Return what a definite step selects in one value; MISSING if that is nothing."""
    if isinstance(step, Name):
        return value.get(step.name, MISSING) if isinstance(value, dict) else MISSING
    if isinstance(step, Names) and isinstance(value, dict):
        there = {name: value[name] for name in step.names if name in value}
        return MISSING if step.needs_all and len(there) < len(step.names) else there
    if isinstance(step, Index) and isinstance(value, list) and -len(value) <= step.index < len(value):
        return value[step.index]
    return MISSING


def compare_operands(
    compare: Callable[[Any, Any], bool],
    left: Callable[[Any, Any], Any],
    right: Callable[[Any, Any], Any],
    here: Any,
    root: Any,
) -> bool:
    """Return a filter's comparison; with a missing value or one of another type, only != is true."""
    a, b = left(here, root), right(here, root)
    if a is MISSING or b is MISSING or isinstance(a, bool) != isinstance(b, bool):
        return compare is operator.ne
    try:
        return compare(a, b)
    except TypeError:
        return False


def children(value: Any, _root: Any) -> Iterator[Any]:
    """Yield the members of an object or the elements of an array."""
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def all_values(value: Any, root: Any) -> Iterator[Any]:
    """Yield the value itself and every value within it, at any depth."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(list(children(node, root))))


def select_slice(part: slice, value: Any, _root: Any) -> Iterator[Any]:
    """Yield a slice of an array."""
    if isinstance(value, list):
        yield from value[part]


def select_members(members: tuple[Step, ...], value: Any, _root: Any) -> Iterator[Any]:
    """Yield those of the listed members that exist."""
    for member in members:
        node = select_child(value, member)
        if node is not MISSING:
            yield node


def refuse_step(problem: str, _value: Any, _root: Any) -> Iterator[Any]:
    """Raise EvaluationError: AWS accepts the step when a machine is created, and fails the state."""
    raise EvaluationError(problem)


def check_leaf_members(steps: list[Step]) -> list[Step]:
    """Return the steps of a path, which fails if several members are not its end (measured by others)."""
    for position, step in enumerate(steps[:-1]):
        if isinstance(step, Names):
            problem = f"Multi properties can only be used as path leafs: {format_path(steps[: position + 1])}"
            return [Many(",", functools.partial(refuse_step, problem))]
    return steps


def select_matching(test: Callable[[Any, Any], bool], value: Any, root: Any) -> Iterator[Any]:
    """Yield the elements of an array, or the one object, that pass the test; for another value, nothing."""
    for candidate in children(value, root) if isinstance(value, list) else [value] if isinstance(value, dict) else ():
        count_visits(1)
        if test(candidate, root):
            yield candidate

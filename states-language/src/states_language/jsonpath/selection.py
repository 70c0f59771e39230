"""Selects the values that a compiled JSONPath names, in the dialect of Step Functions (Jayway's).

Invariant: a definite path gives one value or an error; an indefinite one (wildcard, slice, filter, several indexes,
deep scan) always gives a list: compile_path("$.a[*].b").read({"a": [{"b": 1}, {"c": 2}]}, env) is [1].
"""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from states_language.context import Environment
from states_language.failures import EvaluationError, ResultPathFailure
from states_language.jsonpath.steps import (
    MOST_VISITED,
    Index,
    Many,
    Name,
    Step,
    count_visits,
    format_path,
    format_step,
    search,
    select_child,
)
from states_language.scheduling.lanes import Costly, current_lane
from states_language.values import MISSING, NESTED, cause_text

MOST_SELECTED = 200_000
"""How many nodes a step of a path may select. No payload holds as many, but deep scans in one path multiply."""
VISITED_HERE = 1_600
"""How many nodes a path may visit while others wait: a few milliseconds' work."""


@dataclass(frozen=True)
class Path:
    """A compiled path.

    `is_into_context` is true for a path into the Context Object, which begins with $$. `variable` is the name of the
    variable that a path such as $name.member reads.
    """

    text: str
    steps: tuple[Step, ...]
    is_into_context: bool = False
    variable: str | None = None

    @functools.cached_property
    def is_into_data(self) -> bool:
        """Return whether the path reads the state's own data."""
        return not self.is_into_context and self.variable is None

    def root(self, data: Any, env: Environment) -> Any:
        """Return the value that the path starts from; MISSING for a variable that is not assigned."""
        if self.variable is not None:
            return env.variable(self.variable)
        return env.context() if self.is_into_context else data

    def read(self, data: Any, env: Environment) -> Any:
        """Return what the path selects, a list if it is indefinite; raises EvaluationError with Jayway's message."""
        return self.read_from_root(self.root(data, env))

    def find_value(self, data: Any, env: Environment) -> Any:
        """Return what the path selects; MISSING if a definite path leads nowhere."""
        return self.find_from_root(data if self.is_into_data else self.root(data, env))

    @functools.cached_property
    def names(self) -> tuple[str, ...] | None:
        """Return the names of a path that has only names, as nearly all paths have; None for any other path."""
        names = tuple(step.name for step in self.steps if isinstance(step, Name))
        return names if len(names) == len(self.steps) else None

    @functools.cached_property
    def is_definite(self) -> bool:
        """Return whether the path selects at most one value."""
        return not any(isinstance(step, Many) for step in self.steps)

    @property
    def is_reference_path(self) -> bool:
        """Return whether the path is a Reference Path: one node, without indexes from the end."""
        return all(isinstance(s, Name) or (isinstance(s, Index) and s.index >= 0) for s in self.steps)

    def read_from_root(self, root: Any) -> Any:
        """Return what the path selects, a list if it is indefinite; raises EvaluationError with Jayway's message."""
        if root is MISSING:
            raise EvaluationError(f"Invalid path '{self.text}' : the variable '${self.variable}' is not assigned")
        value = root
        for position, step in enumerate(self.steps):
            if isinstance(step, Many):
                if step.text == "?" and not isinstance(value, dict | list):
                    what = f"Filter: [?] can not be applied to primitives. Current context is: {cause_text(value)}"
                    raise EvaluationError(f"Invalid path '{self.text}' : {what}")  # as Jayway does
                return self._select_many(value, position, root)
            selected = select_child(value, step)
            if selected is MISSING:
                if not self.is_definite:
                    return []
                raise EvaluationError(f"Invalid path '{self.text}' : {self._failure_message(value, position)}")
            value = selected
        return value

    def find_from_root(self, root: Any) -> Any:
        """Return what the path selects; MISSING if a definite path leads nowhere."""
        if self.names is not None:
            for name in self.names:
                if not isinstance(root, dict):
                    return MISSING
                root = root.get(name, MISSING)
            return root
        try:
            return self.read_from_root(root)
        except EvaluationError:
            if self.is_definite or root is MISSING:
                return MISSING
            raise  # for another reason: an indefinite path that leads nowhere gives []

    def put(self, root: Any, value: Any) -> Any:
        """Return a copy of the data with the value at this Reference Path; the data itself does not change.

        Missing objects on the way are created; any other value on the way raises ResultPathFailure.
        """
        if not self.steps:
            return value
        try:
            return _put_at(root, self.steps, value)
        except (TypeError, IndexError):
            raise ResultPathFailure(f"Unable to apply ReferencePath {self.text} to the state's input") from None

    def _select_many(self, value: Any, position: int, root: Any) -> list[Any]:
        if search.visits_left is not None:
            return self._select([value], position, root)
        host = current_lane()
        if host is None:
            return self._search(value, position, root, MOST_VISITED)
        host.wait_for_turn()
        try:
            return self._search(value, position, root, VISITED_HERE)
        except Costly:
            pass
        finally:
            host.spend(max(1, (VISITED_HERE - (search.visits_left or 0)) >> 2))
        answer = host.evaluate({"path": self.text, "root": root})
        if "value" not in answer:
            reason = NESTED if "nested" in answer else f"Invalid path '{self.text}' : it visits too many nodes"
            raise EvaluationError(answer.get("failure", reason))
        selected: list[Any] = answer["value"]
        return selected

    def _search(self, value: Any, position: int, root: Any, most: int) -> list[Any]:
        search.visits_left = search.most_visits = most
        try:
            return self._select([value], position, root)
        except EvaluationError as problem:
            if search.visits_left >= 0 and str(problem).startswith("Invalid path"):
                raise
            raise EvaluationError(f"Invalid path '{self.text}' : {problem}") from None
        finally:
            search.visits_left = None

    def _select(self, values: list[Any], position: int, root: Any) -> list[Any]:
        for step in self.steps[position:]:
            if isinstance(step, Many):
                selected = (node for value in values for node in step.select(value, root))
                values = list(itertools.islice(_count_visited(selected), MOST_SELECTED + 1))
                if len(values) > MOST_SELECTED:
                    raise EvaluationError(f"Invalid path '{self.text}' : it selects more than {MOST_SELECTED} nodes")
            else:
                nodes = (select_child(value, step) for value in values)
                values = [node for node in nodes if node is not MISSING]
        return values

    def _failure_message(self, value: Any, position: int) -> str:
        step = self.steps[position]
        if isinstance(step, Index):
            where = format_path(self.steps[:position])
            if not isinstance(value, list):
                return f"Filter: [{step.index}] can only be applied to arrays. Current context is: {cause_text(value)}"
            return f"Index out of bounds when evaluating path {where}[{step.index}]"
        if isinstance(value, dict) and position == len(self.steps) - 1:
            return f"No results for path: {format_path(self.steps)}"
        if isinstance(value, dict):
            return f"Missing property in path {format_path(self.steps[: position + 1])}"
        return (
            f"Expected to find an object with property {format_step(step)} in path {format_path(self.steps[:position])}"
        )


def _put_at(value: Any, steps: tuple[Step, ...], new: Any) -> Any:
    if not steps:
        return new
    step, rest = steps[0], steps[1:]
    if isinstance(step, Name):
        if value is not MISSING and not isinstance(value, dict):
            raise TypeError
        copy = {} if value is MISSING else dict(value)
        copy[step.name] = _put_at(copy.get(step.name, MISSING), rest, new)
        return copy
    if not isinstance(step, Index) or not isinstance(value, list):
        raise TypeError
    elements = list(value)
    elements[step.index] = _put_at(elements[step.index], rest, new)
    return elements


def _count_visited(nodes: Iterator[Any]) -> Iterator[Any]:
    """Yield the nodes, and count them in groups."""
    while few := list(itertools.islice(nodes, 64)):
        count_visits(len(few))
        yield from few

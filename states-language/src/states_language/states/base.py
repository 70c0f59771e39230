"""Defines the common parts of state types: a name, a type, transitions, attempts with Retry and Catch, and the fields
that are a fixed value, a path, or a JSONata expression.

Catchers are tried once the Retriers are used up. Each new visit of the state begins with fresh Retriers.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import DefinitionError, Fields
from states_language.failures import EvaluationError, Oversized, QueryFailure, StateError
from states_language.jsonata.evaluation import is_query
from states_language.jsonata.query_flow import QueryFlow, Template, states_variable
from states_language.jsonpath.dataflow import Dataflow, Flow, compile_path_field, compile_template
from states_language.jsonpath.selection import Path
from states_language.states.retry import Attempts, compile_catch, compile_retry, find_catcher
from states_language.values import FEW_VALUES, LARGEST_BETWEEN, cause_text, estimate_json_length

Step = tuple[str | None, Any]
"""The name of the next state (None: the line ends), and the output."""


class State:
    """A compiled state. assigned_variables: those that it may assign, each with its field's pointer.

    inner_lines: the lines of states within this one that read its variables; isolated_lines: those that read none.
    targets: the names of the states that it may lead to, each with its field's place within the state.
    """

    type: str
    inner_lines: Sequence["Line"] = ()
    isolated_lines: Sequence["Line"] = ()
    targets: Sequence[tuple[str, str]] = ()

    def __init__(self, name: str, fields: Fields) -> None:
        self.name = name
        self.pointer = fields.pointer
        self.assigned_variables: list[tuple[str, str]] = []
        fields.string("Comment")

    async def run(self, branch: Branch, data: Any) -> Step:
        """Run the state; return the next state's name and the output. Raises StateError, EvaluationError or Fatal."""
        raise NotImplementedError(f"{type(self).__name__}.run({branch}, {data})")


class StateWithNext(State):
    """A state with Next or End."""

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        end = fields.boolean("End")
        self.next = fields.string("Next")
        if (self.next is None) == (end is not True):
            raise DefinitionError(fields.pointer, "exactly one of Next and End: true is required")
        if self.next is not None:
            self.targets = [(self.next, "Next")]


class States(dict[str, State]):
    """The compiled states of a line by name. `compile` makes a missing one when it is first needed.

    The states that the loader left out have their targets in `target_names`. They assign no variables and have no inner
    lines.
    """

    def __init__(self, compile: Callable[[str], State]) -> None:
        super().__init__()
        self._compile = compile
        self.target_names: dict[str, list[str]] = {}

    def __missing__(self, name: str) -> State:
        state = self[name] = self._compile(name)
        return state


@dataclass(frozen=True)
class Line:
    """A line of states, of a whole machine or of one branch: the states by name, and the first one.

    pointer: that of `States` in the definition.
    """

    start_at: str
    states: States
    pointer: str

    @functools.cached_property
    def states_with_lines(self) -> list[State]:
        return [state for state in self.states.values() if state.inner_lines or state.isolated_lines]


class StateWithRetry(StateWithNext):
    """A state with Retry and Catch."""

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow: Flow = self.compile_flow(fields)
        self.retriers = compile_retry(fields)
        self.catchers = compile_catch(fields)
        self.assigned_variables = [
            *self.flow.assigned_variables,
            *(each for catcher in self.catchers for each in catcher.assigned_variables),
        ]
        self.targets = [*self.targets, *((one.next, f"Catch/{at}/Next") for at, one in enumerate(self.catchers))]

    def compile_flow(self, fields: Fields) -> Flow:
        """Return the state's data flow."""
        if fields.is_jsonata:
            return QueryFlow(fields, arguments=True, result=True)
        return Dataflow(fields, parameters=True, selector=True, result=True)

    async def attempt(self, branch: Branch, data: Any) -> Any:
        """Make one attempt and return its result; raises StateError or EvaluationError."""
        raise NotImplementedError(f"{type(self).__name__}.attempt({branch}, {data})")

    def add_failed_event(self, branch: Branch) -> None:
        """Add the event that the state failed, if its type has one."""

    async def run(self, branch: Branch, data: Any) -> Step:
        """Return Next and the output, or a Catcher's Next and the error output; raises StateError if none catches."""
        attempts = Attempts(self.retriers)
        branch.retries = 0
        while True:
            done = failed = False
            try:
                result = await self.attempt(branch, data)
                done = True
                _check_weight(result)
                return self.next, self.flow.finish(data, result, branch)
            except EvaluationError as problem:
                refusal = branch.record_failure(problem)
                if not isinstance(refusal, StateError):
                    raise refusal from None
                failed = isinstance(problem, QueryFailure) and not done
                error = refusal
            except StateError as failure:
                # The traceback has this frame, which would hold the error in a circle.
                failed, error = True, failure.with_traceback(None)
            delay_ms = attempts.next_delay_ms(error, branch.random)
            if delay_ms is None:
                break
            await branch.pause_ms(delay_ms)
            branch.retries = attempts.retries
            branch.execution.transitions += 1
        # A retried failure has no event; only ParallelStateStarted is repeated (measured by others).
        if failed:
            self.add_failed_event(branch)
        catcher = find_catcher(self.catchers, error)
        if catcher is None:
            try:
                raise error
            finally:
                del error
        branch.staged = None  # an attempt that failed after its Assign assigns nothing
        try:
            return catcher.next, catcher.settle(data, error.output(), branch)
        except QueryFailure as problem:
            refusal = branch.record_failure(problem)
            self.add_failed_event(branch)
            raise refusal from None


def _check_weight(result: Any) -> None:
    """Raise Oversized if the outputs of branches or iterations, each within the limit, are too large together."""
    if isinstance(result, list) and len(result) > FEW_VALUES and estimate_json_length(result, {}) > LARGEST_BETWEEN:
        raise Oversized


def compile_filler(fields: Fields, name: str, label: str) -> Callable[[Any, Any, Branch], Any]:
    """Return the function that fills a field's template from a state's input: raw (JSONata) or narrowed (JSONPath)."""
    value, where = fields.get(name, {}), fields.pointer_of(name)
    if fields.is_jsonata:
        query = Template(value, where, label)
        return lambda raw, _narrowed, branch: query.fill(states_variable(raw), branch)
    fill = compile_template(value, where)
    return lambda _raw, narrowed, branch: fill(narrowed, branch)


class DynamicField:
    """A field whose value is fixed, or comes from a path or an expression.

    name: that of the field that is present. value: the fixed value, None for another. kind: the type that an
    expression's value must have.

    In JSONPath the path has a field of its own, whose name ends in Path; in JSONata it has the expression.
    """

    value: Any = None
    path: Path | None = None
    query: Template | None = None

    def __init__(self, fields: Fields, name: str, kind: str, read_fixed: Callable[[str], Any]) -> None:
        self.name, self._kind = name, kind
        if fields.is_jsonata:
            if is_query(fields.value.get(name)):
                self.query = Template(fields.get(name), fields.pointer_of(name), name)
                return
        elif name + "Path" in fields.value:
            fields.at_most_one(name, name + "Path")
            self.name = name + "Path"
            self.path = compile_path_field(fields, self.name, reference=True)
            return
        if name in fields.value:
            self.value = read_fixed(name)
        else:
            fields.known.add(name)

    @property
    def is_present(self) -> bool:
        """Return whether the definition has the field in any form."""
        return self.value is not None or self.path is not None or self.query is not None

    def evaluate(self, raw: Any, narrowed: Any, branch: Branch) -> Any:
        """Return the value: MISSING if the path leads nowhere, None if the field is absent.

        raw: $states.input of an expression. narrowed: the data of a path. Raises QueryFailure if an expression's
        value has another type.
        """
        if self.path is not None:
            return self.path.find_value(narrowed, branch)
        if self.query is not None:
            return self.query.evaluate_typed(self._kind, states_variable(raw), branch)
        return self.value

    def refusal(self, what: str, value: Any, *, after_entry: bool = False) -> EvaluationError:
        """Return the failure for a value that the state refuses, in AWS's words."""
        if self.query is not None:
            return QueryFailure(
                f"The {self.name} field {what}: {cause_text(value)}", self.name, after_entry=after_entry
            )
        text = self.path.text if self.path else ""
        return EvaluationError(f"The {self.name} parameter {what}: {text} == {cause_text(value)}")

    def missing_error(self) -> EvaluationError:
        """Return the failure for a path that leads nowhere."""
        text = self.path.text if self.path else ""
        return EvaluationError(f"The {self.name} parameter does not reference an input value: {text}")


class NumberField(DynamicField):
    def __init__(
        self, fields: Fields, name: str, least: float, most: float = 99_999_999, *, whole: bool = True
    ) -> None:
        def fixed(name: str) -> float | None:
            return fields.integer(name, int(least), int(most)) if whole else fields.number(name, least, most)

        super().__init__(fields, name, "number", fixed)
        self._whole = whole

    def evaluate_number(
        self,
        raw: Any,
        narrowed: Any,
        branch: Branch,
        *,
        most: float | None = None,
        negative: str | None = "{name} cannot be negative.",
    ) -> Any:
        """Return the value as a number, None if the field is absent; raises EvaluationError as recorded for Map.

        A string at a path counts as the number that it spells (recorded for MaxConcurrencyPath). negative: the message
        for a number below zero, None if such a number is allowed.
        """
        value = self.evaluate(raw, narrowed, branch)
        if value is None and not self.is_present:
            return None
        number = _parse_number(value, self._whole)
        if number is None:
            wanted = "integer" if self._whole else "float"
            text = f'field refers to value "{cause_text(value)}" which is not a valid {wanted}'
            raise self._number_error(f"The {self.name} {text}: {self.path.text if self.path else ''}")
        name = self.name.removesuffix("Path")
        if most is not None and not 0 <= number <= most:
            raise self._number_error(f"{name} must be between 0 and {most:g}.")
        if number < 0 and negative is not None:
            raise self._number_error(negative.format(name=name, number=number))
        return number

    def _number_error(self, text: str) -> EvaluationError:
        return QueryFailure(text, self.name) if self.query is not None else EvaluationError(text)


def _parse_number(value: Any, whole: bool) -> float | None:
    if isinstance(value, str) and "_" not in value:  # Python's own digits may have one between them
        try:
            value = int(value) if whole else float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value < math.inf:
        return None
    return value if isinstance(value, int) or not whole else None

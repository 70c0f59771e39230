"""Takes a state's data from its raw input to its output, in JSONata: Arguments, the state's work, Output and Assign.

$states has `input` and `context` everywhere, `result` and `errorOutput` only where the state type has them.
Invariant: a template without an expression stays the object that the definition has.
"""

import re
from collections.abc import Callable
from typing import Any

from states_language.branch import Branch
from states_language.context import Environment, check_variable_names
from states_language.definition.fields import Fields, child_pointer
from states_language.failures import Oversized
from states_language.jsonata.evaluation import ExpressionFrame, Query, compile_query, is_query, is_valid_query
from states_language.jsonata.numbers import type_of
from states_language.values import FEW_VALUES, LARGEST_BETWEEN, compact, estimate_json_length

States = dict[str, Any]
Evaluate = Callable[[ExpressionFrame, str], Any]
"""Called with the data and with the location that an error names."""


_NESTED = (dict, list)
_REFERENCE = re.compile(
    r"\{%\s*\$(?:states\.(?:input|result)\b|(?!states\b)[A-Za-z_]\w*)"
    r"(?:\.(?!(?:and|or|in|true|false|null)\b)[A-Za-z_]\w*|\[(?:0|[1-9]\d{0,8})\]){0,40}\s*%\}",
    re.ASCII,
)
"""A path of names and indexes, such as `$states.input.a[0]`: surely valid, and without the Context Object."""


def is_valid_expression(text: str) -> bool:
    """Return whether an expression is valid outside of a Catcher; one that only names what it reads is not parsed."""
    return _REFERENCE.fullmatch(text) is not None or is_valid_query(text)


class Template:
    """A field of a state: JSON in which every {% %} text is an expression."""

    def __init__(self, value: Any, pointer: str, location: str) -> None:
        self.location = location
        self.value = value
        self.query: Query | None = None
        self.needs_context = False
        self._is_in_catcher = location.startswith("Catch[")
        self._queries = 0
        self._evaluate: Evaluate | None = None
        if is_query(value):
            self.query = self._compile_expression(value, pointer)
            self._evaluate = self.query.evaluate
        elif isinstance(value, _NESTED):
            self._evaluate = self._compile_container(value, pointer, location)

    def fill(self, states: States, branch: Environment) -> Any:
        """Return the JSON value; raises QueryFailure, or Oversized if many expressions together make too much."""
        if self._evaluate is None:
            return self.value
        if self.query is not None and self.query.fixed_value is not None:
            return self.query.fixed_value
        seen = {**states, "context": branch.context()} if self.needs_context else states
        value = self._evaluate(ExpressionFrame(seen, branch), self.location)
        if self._queries > FEW_VALUES and estimate_json_length(value, {}) > LARGEST_BETWEEN:
            raise Oversized
        return value

    def _compile_expression(self, text: str, pointer: str) -> Query:
        self._queries += 1
        query = compile_query(text, pointer, in_catcher=self._is_in_catcher)
        self.needs_context |= query.needs_context
        return query

    def _compile_container(self, value: Any, pointer: str, location: str) -> Evaluate | None:
        """Return the function that fills an object or an array; None where it has no expressions."""
        is_object = isinstance(value, dict)
        fills: list[tuple[Any, Evaluate, str]] = []
        for key, part in value.items() if is_object else enumerate(value):
            # Most parts of a large template are numbers and texts, which need no function.
            if (nested := isinstance(part, _NESTED)) or is_query(part):
                place = f"{location}/{key}" if is_object else f"{location}[{key}]"
                where = child_pointer(pointer, key)
                if (
                    fill := self._compile_container(part, where, place)
                    if nested
                    else self._compile_expression(part, where).evaluate
                ):
                    fills.append((key, fill, place))
        if not fills:
            return None

        def filled(data: ExpressionFrame, _location: str) -> Any:
            made = value.copy()
            for key, fill, place in fills:
                made[key] = fill(data, place)
            return made

        return filled

    def evaluate_typed(self, expected: str, states: States, branch: Environment, *others: str) -> Any:
        """Return an expression's value of one of these types; raises QueryFailure for another (recorded for Items)."""
        value = self.fill(states, branch)
        if type_of(value) in (expected, *others) or self.query is None:
            return value
        raise self.query.type_failure(expected, value, self.location, compact(value))


def compile_field(fields: Fields, name: str, location: str | None = None) -> Template | None:
    """Return a field's compiled template; None if it is absent. Raises DefinitionError for a bad expression."""
    if name not in fields.value:
        return None
    return Template(fields.get(name), fields.pointer_of(name), location or name)


class OutputAndAssign:
    """The Output and Assign of a state, a Choice Rule or a Catcher; `place` begins the locations in its errors."""

    def __init__(self, fields: Fields, place: str = "") -> None:
        self._output = compile_field(fields, "Output", f"{place}Output")
        self._assign = compile_field(fields, "Assign", f"{place}Assign")
        self.assigned_variables: list[tuple[str, str]] = []
        if self._assign is not None:
            self.assigned_variables = list(
                check_variable_names(self._assign.value, fields.pointer_of("Assign"), template=False)
            )

    def settle(self, default: Any, states: States, branch: Branch) -> Any:
        """Stage Assign in the branch and return Output, or `default` if there is none."""
        if self._assign is not None:
            branch.staged = self._assign.fill(states, branch)
        return default if self._output is None else self._output.fill(states, branch)


class QueryFlow:
    """A state's flow in JSONata; the flags say whether the state type has Arguments and $states.result."""

    def __init__(self, fields: Fields, *, arguments: bool = False, result: bool = False) -> None:
        self._arguments = compile_field(fields, "Arguments") if arguments else None
        self._result = result
        self._outcome = OutputAndAssign(fields)
        self.assigned_variables = self._outcome.assigned_variables

    def narrow_input(self, raw: Any, _branch: Branch) -> Any:
        return raw

    def effective_input(self, raw: Any, branch: Branch) -> Any:
        """Return Arguments, or the raw input if there are none."""
        return raw if self._arguments is None else self._arguments.fill(states_variable(raw), branch)

    def finish(self, raw: Any, result: Any, branch: Branch) -> Any:
        """Stage Assign in the branch and return Output, or the result if there is none."""
        states = states_variable(raw, result=result) if self._result else states_variable(raw)
        return self._outcome.settle(result, states, branch)


def states_variable(raw: Any, **more: Any) -> States:
    """Return $states without the Context Object."""
    return {"input": raw, **more}

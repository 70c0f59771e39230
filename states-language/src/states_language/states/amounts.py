"""Compiles and evaluates number fields: a number, a path, or a JSONata expression.

In JSONPath the path is in a field of its own, whose name ends in Path; in JSONata the expression is in the field.
"""

import math
from collections.abc import Callable
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import Fields
from states_language.failures import EvaluationError, QueryFailure
from states_language.jsonata.evaluation import is_query
from states_language.jsonata.query_flow import Template, states_of
from states_language.jsonpath.dataflow import compiled
from states_language.jsonpath.selection import Path
from states_language.jsonpath.templates import compile_template
from states_language.values import MISSING, compact


def filled(fields: Fields, name: str, label: str) -> Callable[[Any, Any, Branch], Any]:
    """Return what fills a field's template from a state's input, raw for JSONata and narrowed for JSONPath."""
    value, where = fields.get(name, {}), fields.at(name)
    if fields.queries:
        query = Template(value, where, label)
        return lambda raw, _narrowed, branch: query.fill(states_of(raw), branch)
    fill = compile_template(value, where)
    return lambda _raw, narrowed, branch: fill(narrowed, branch)


class Amount:
    """A number field. name: of the field that is present. value: its number, None for a path or an expression."""

    def __init__(
        self, fields: Fields, name: str, least: float, most: float = 99_999_999, *, whole: bool = True
    ) -> None:
        self.name = name
        self.value: float | None = None
        self.path: Path | None = None
        self.query: Template | None = None
        if not fields.queries and fields.exclusive(name, name + "Path") == [name + "Path"]:
            self.name = name + "Path"
            self.path = compiled(fields.get(self.name), fields.at(self.name), reference=True)
        elif fields.queries and is_query(fields.value.get(name)):
            self.query = Template(fields.get(name), fields.at(name), name)
        elif whole:
            self.value = fields.integer(name, int(least), int(most))
        else:
            self.value = fields.number(name, least, most)

    @property
    def present(self) -> bool:
        """Return whether the definition has the field in any form."""
        return self.value is not None or self.path is not None or self.query is not None

    def find(self, raw: Any, narrowed: Any, branch: Branch) -> Any:
        """Return the value, MISSING where the path leads nowhere, None where the field is absent.

        raw: $states.input of an expression. narrowed: the data of a path. Raises QueryFailure where an expression's
        value is not a number.
        """
        if self.path is not None:
            return self.path.look(narrowed, branch)
        if self.query is not None:
            return self.query.typed("number", states_of(raw), branch)
        return self.value

    def bounded(
        self,
        raw: Any,
        narrowed: Any,
        branch: Branch,
        *,
        whole: bool,
        most: float | None = None,
        negative: str | None = "{name} cannot be negative.",
    ) -> Any:
        """Return the value as a number, None where the field is absent; raises EvaluationError as recorded for Map.

        A string at a path counts as the number that it spells (recorded for MaxConcurrencyPath). negative: the message
        for a number below zero, None where one is allowed.
        """
        value = self.find(raw, narrowed, branch)
        if value is None and not self.present:
            return None
        number = _number(value, whole)
        if number is None:
            raise self._refusal(
                f'field refers to value "{shown(value)}" which is not a valid {"integer" if whole else "float"}'
            )
        name = self.name.removesuffix("Path")
        if most is not None and not 0 <= number <= most:
            raise self._refusal(f"{name} must be between 0 and {most:g}.", bare=True)
        if number < 0 and negative is not None:
            raise self._refusal(negative.format(name=name, number=number), bare=True)
        return number

    def _refusal(self, what: str, *, bare: bool = False) -> EvaluationError:
        text = what if bare else f"The {self.name} {what}: {self.path.text if self.path else ''}"
        return QueryFailure(text, self.name) if self.query is not None else EvaluationError(text)


def _number(value: Any, whole: bool) -> float | None:
    if isinstance(value, str):
        try:
            value = int(value) if whole else float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if isinstance(value, int) or not whole else None


def shown(value: Any) -> str:
    """Return a value as a cause writes it: a string without quotes, else JSON; an empty string for MISSING."""
    if value is MISSING:
        return ""
    return value if isinstance(value, str) else compact(value)

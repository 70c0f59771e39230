"""Compiles and evaluates fields that are a fixed value, a path, or a JSONata expression.

In JSONPath the path has a field of its own, whose name ends in Path; in JSONata the field itself has the expression.
"""

import math
from collections.abc import Callable
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import Fields
from states_language.failures import EvaluationError, QueryFailure
from states_language.jsonata.evaluation import is_query
from states_language.jsonata.query_flow import Template, states_variable
from states_language.jsonpath.dataflow import compile_path_field, compile_template
from states_language.jsonpath.selection import Path
from states_language.values import cause_text


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
    """A number field."""

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

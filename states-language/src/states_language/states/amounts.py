"""Numbers of a state that a definition gives as they are, by a path or by an expression.

Decides which of the three forms a field has and finds the value; what values are good, the state knows. Invariant: in
JSONPath the field's other form is its name with Path at the end, in JSONata it is an expression in the field itself.
"""

import math
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import Fields
from states_language.failures import EvaluationError, QueryFailure
from states_language.jsonata.dataflow import Template, states_of
from states_language.jsonata.evaluation import is_query
from states_language.jsonpath.dataflow import compiled
from states_language.jsonpath.selection import Path
from states_language.values import MISSING, compact


class Amount:
    """A number field. name: the field that is given. value: its number where the definition says it, else None."""

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
    def given(self) -> bool:
        """Return whether the definition has the field in any form."""
        return self.value is not None or self.path is not None or self.query is not None

    def find(self, raw: Any, narrowed: Any, branch: Branch) -> Any:
        """Return the value, MISSING where the path leads nowhere, None where the field is absent.

        raw is what an expression sees as $states.input, narrowed what a path looks into. Raises QueryFailure for an
        expression that gives no number.
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

        A text that a path leads to counts as the number that it spells (recorded for MaxConcurrencyPath). negative: the
        words for a number below zero, None where it may be one.
        """
        found = self.find(raw, narrowed, branch)
        if found is None and not self.given:
            return None
        number = _number(found, whole)
        if number is None:
            raise self._refusal(
                f'field refers to value "{shown(found)}" which is not a valid {"integer" if whole else "float"}'
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


def _number(found: Any, whole: bool) -> float | None:
    if isinstance(found, str):
        try:
            found = int(found) if whole else float(found)
        except ValueError:
            return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return None
    return found if isinstance(found, int) or not whole else None


def shown(found: Any) -> str:
    """Return a value as a cause writes it: a text bare, else as JSON; nothing for MISSING."""
    if found is MISSING:
        return ""
    return found if isinstance(found, str) else compact(found)

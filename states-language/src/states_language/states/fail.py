"""The Fail state: ends the execution with an Error and a Cause, fixed or computed from the input."""

from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import Fields
from states_language.failures import EvaluationError, StateError
from states_language.jsonata.dataflow import Template, states_of
from states_language.jsonata.evaluation import is_query
from states_language.jsonpath.expressions import Expression
from states_language.jsonpath.templates import expression, look_up
from states_language.states.base import State, Step
from states_language.values import compact

Part = str | Expression | Template | None


class Fail(State):
    """A Fail state."""

    type = "Fail"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.error = _part(fields, "Error")
        self.cause = _part(fields, "Cause")
        fields.close("a Fail state")

    async def run(self, branch: Branch, data: Any) -> Step:
        """Raise StateError with Error and Cause; None for an absent one."""
        error = _value("ErrorPath", self.error, data, branch)
        cause = _value("CausePath", self.cause, data, branch)
        raise StateError(error, cause)


def _part(fields: Fields, name: str) -> Part:
    if fields.queries:
        return Template(fields.get(name), fields.at(name), name) if is_query(fields.get(name)) else fields.string(name)
    if fields.exclusive(name, name + "Path") == [name + "Path"]:
        return expression(fields.get(name + "Path"), fields.at(name + "Path"))
    return fields.string(name)


def _value(field: str, part: Part, data: Any, branch: Branch) -> str | None:
    if part is None or isinstance(part, str):
        return part
    if isinstance(part, Template):
        return str(part.typed("string", states_of(data), branch))
    value = look_up(part, field, data, branch)
    if not isinstance(value, str):
        raise EvaluationError(f"The {field} parameter does not reference a string: {compact(value)}")
    return value

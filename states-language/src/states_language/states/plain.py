"""The states that do no work of their own: Pass hands on its input or a Result, Succeed and Fail end.

An Error and a Cause of Fail are fixed or computed from the input.
"""

from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import Fields
from states_language.failures import EvaluationError, StateError
from states_language.jsonata.evaluation import is_query
from states_language.jsonata.query_flow import QueryFlow, Template, states_of
from states_language.jsonpath.dataflow import Dataflow, Flow
from states_language.jsonpath.expressions import Expression
from states_language.jsonpath.templates import expression, look_up
from states_language.states.base import Flowing, State, Step
from states_language.values import compact


class Succeed(State):
    """A Succeed state."""

    type = "Succeed"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow: Flow = QueryFlow(fields) if fields.queries else Dataflow(fields)
        if "Assign" in fields:  # "not available in Succeed and Fail" (Developer Guide, variables)
            raise fields.fail("Assign", "is not a field of a Succeed state")
        fields.close("a Succeed state")

    async def run(self, branch: Branch, data: Any) -> Step:
        """Return no next state, and the output."""
        narrowed = self.flow.narrowed(data, branch)
        return None, self.flow.finish(narrowed, narrowed, branch)


class Pass(Flowing):
    """A Pass state."""

    type = "Pass"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow: Flow = QueryFlow(fields) if fields.queries else Dataflow(fields, parameters=True, result=True)
        self.assigns = self.flow.assigns
        self.fixed = "Result" in fields and not fields.queries
        self.result = fields.get("Result") if self.fixed else None
        fields.close("a Pass state")

    async def run(self, branch: Branch, data: Any) -> Step:
        """Return Next and the output: Result or the effective input, placed by ResultPath."""
        effective = self.flow.effective(data, branch)
        return self.next, self.flow.finish(data, self.result if self.fixed else effective, branch)


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

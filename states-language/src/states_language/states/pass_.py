"""The Pass state: its input, or a fixed Result, becomes its output."""

from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import Fields
from states_language.jsonata.dataflow import QueryFlow
from states_language.jsonpath.dataflow import Dataflow, Flow
from states_language.states.base import Flowing, Step


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

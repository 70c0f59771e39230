"""The Pass state: its input, or a fixed Result, becomes its output."""

from typing import TYPE_CHECKING, Any

from local.asl.check import Fields
from local.asl.dataflow import Dataflow
from local.asl.states.base import Flowing, Step

if TYPE_CHECKING:
    from local.asl.branch import Branch


class Pass(Flowing):
    """A Pass state."""

    type = "Pass"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow = Dataflow(fields, parameters=True, result=True)
        self.fixed = "Result" in fields
        self.result = fields.get("Result")
        fields.close("a Pass state")

    async def run(self, branch: "Branch", data: Any) -> Step:
        """Return Next and the Result or the effective input, put where ResultPath says."""
        effective = self.flow.effective(data, branch)
        return self.next, self.flow.output(data, self.result if self.fixed else effective, branch)

"""The Succeed state: the line of states ends well."""

from typing import TYPE_CHECKING, Any

from local.asl.check import Fields
from local.asl.dataflow import Dataflow, Flow
from local.asl.queryflow import QueryFlow
from local.asl.states.base import State, Step

if TYPE_CHECKING:
    from local.asl.branch import Branch


class Succeed(State):
    """A Succeed state."""

    type = "Succeed"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow: Flow = QueryFlow(fields) if fields.queries else Dataflow(fields)
        if "Assign" in fields:  # "not available in Succeed and Fail" (Developer Guide, variables)
            raise fields.fail("Assign", "is not a field of a Succeed state")
        fields.close("a Succeed state")

    async def run(self, branch: "Branch", data: Any) -> Step:
        """Return the end and the input after InputPath and OutputPath."""
        narrowed = self.flow.narrowed(data, branch)
        return None, self.flow.finish(narrowed, narrowed, branch)

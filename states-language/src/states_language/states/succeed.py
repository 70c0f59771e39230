"""The Succeed state: ends its line of states with success."""

from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import Fields
from states_language.jsonata.dataflow import QueryFlow
from states_language.jsonpath.dataflow import Dataflow, Flow
from states_language.states.base import State, Step


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

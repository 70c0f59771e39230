"""The Choice state: the first rule that holds says where to go on."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from local.asl.check import Fields, below
from local.asl.dataflow import Dataflow
from local.asl.errors import EvaluationError
from local.asl.rules import compile_rule
from local.asl.states.base import State, Step

if TYPE_CHECKING:
    from local.asl.branch import Branch


class Choice(State):
    """A Choice state."""

    type = "Choice"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow = Dataflow(fields)
        fields.require("Choices")
        rules = fields.array("Choices")
        if not rules:
            raise fields.fail("Choices", "must hold at least one rule")
        where = fields.at("Choices")
        self.rules = [compile_rule(rule, below(where, index), top=True) for index, rule in enumerate(rules)]
        self.default = fields.string("Default")
        fields.close("a Choice state")

    async def run(self, branch: "Branch", data: Any) -> Step:
        """Return the Next of the first rule that holds, or Default; raises EvaluationError when there is neither."""
        narrowed = self.flow.narrowed(data, branch)
        target = next((target for rule, target in self.rules if rule(narrowed, branch)), self.default)
        if target is None:
            raise EvaluationError(
                "Failed to transition out of the state. The state does not point to a next state, "
                "please specify a Next field"
            )
        return target, self.flow.output(narrowed, narrowed, branch)

    def targets(self) -> Iterator[tuple[str, str]]:
        """Yield the Next of each rule, and Default."""
        for index, (_, target) in enumerate(self.rules):
            yield target or "", f"{self.pointer}/Choices/{index}/Next"
        if self.default is not None:
            yield self.default, f"{self.pointer}/Default"

"""The Parallel state: runs several lines of states at once; the first that fails ends them all.

Invariant: branches begin in the order of the definition in the same millisecond, and when one fails the others are
stopped before ParallelStateFailed is added.
"""

from collections.abc import Iterator
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import Fields, below
from states_language.states.base import Compile, Line
from states_language.states.iterations import Grouping, Lines


class Parallel(Grouping):
    """A Parallel state."""

    type = "Parallel"

    def __init__(self, name: str, fields: Fields, compile_line: Compile) -> None:
        super().__init__(name, fields)
        fields.require("Branches")
        branches = fields.array("Branches")
        if not branches:
            raise fields.fail("Branches", "must hold at least one branch")
        where = fields.at("Branches")
        self.lines = [compile_line(branch, below(where, index), "a branch") for index, branch in enumerate(branches)]
        fields.close("a Parallel state")

    async def attempt(self, branch: Branch, data: Any) -> Any:
        """Run the branches and return the array of their outputs; raises the StateError of the first that fails."""
        effective = self.flow.effective(data, branch)
        branch.text(effective)
        within = branch.take_within()
        if within is None:
            branch.add("ParallelStateStarted")
        branch.group = group = Lines(branch, len(self.lines), within)
        branches = [(index, branch.fork()) for index in group.parts.open]
        branch.children = [child for _, child in branches]
        for index, child in branches:
            group.start(child, index, self.lines[index], lambda: effective, group.parts.begin(index, child))
        if group.parts.complete:
            group.settle(group.parts.outputs)
        return await self.outcome(branch, group.done)

    def inner(self) -> Iterator[Line]:
        """Yield the branches."""
        return iter(self.lines)

"""The Parallel state: runs several lines of states at once; the first that fails ends them all.

Invariant: branches begin in the order of the definition in the same millisecond, and when one fails the others are
stopped before ParallelStateFailed is added.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import Fields, below
from states_language.failures import Fatal, Halted, StateError
from states_language.states.attempts import Retrying
from states_language.states.base import Compile, Line


class Parallel(Retrying):
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
        branch.add("ParallelStateStarted")
        group = _Group(branch, self.lines, effective)
        try:
            outcome = await group.done
        finally:
            branch.children = []
        if isinstance(outcome, StateError):
            raise outcome
        branch.aside("ParallelStateSucceeded")
        return outcome

    def failed(self, branch: Branch) -> None:
        """Add ParallelStateFailed."""
        branch.add("ParallelStateFailed")

    def inner(self) -> Iterator[Line]:
        """Yield the branches."""
        return iter(self.lines)


class _Group:
    """The branches of one attempt."""

    def __init__(self, parent: Branch, lines: list[Line], data: Any) -> None:
        self.parent = parent
        loop = asyncio.get_running_loop()
        # A failure is the future's result, not its exception: asyncio reports an exception that is never awaited.
        self.done: asyncio.Future[Any] = loop.create_future()
        self.outputs: list[Any] = [None] * len(lines)
        self.open = len(lines)
        self.branches = [parent.fork() for _ in lines]
        parent.children = list(self.branches)
        for index, (child, line) in enumerate(zip(self.branches, lines, strict=True)):
            child.work = child.execution.task(self._run(index, child, line, data))

    async def _run(self, index: int, child: Branch, line: Line, data: Any) -> None:
        try:
            self.outputs[index] = await child.run(line.states, line.start_at, data)
        except Halted:
            return
        except StateError as failure:
            self._fail(child, failure)
        except Fatal as failure:
            child.execution.fail(child, failure)
        except Exception as problem:
            child.execution.crash(child, problem)
        else:
            self.open -= 1
            child.scope.close()
            if self.open == 0:
                # The chain goes on from the branch that ended last (recorded for Map).
                self.parent.last_id = child.last_id
                self._settle(self.outputs)

    def _fail(self, child: Branch, failure: StateError) -> None:
        try:
            # Within a failing branch the state that failed counts as aborted too (recorded).
            for branch in (child, *(other for other in self.branches if other is not child)):
                branch.abort_state(child.last_id)
            for branch in self.branches:
                branch.kill()
            self.parent.last_id = child.last_id
        except Halted:
            return
        self._settle(failure)

    def _settle(self, outcome: Any) -> None:
        if not self.done.done():
            self.done.set_result(outcome)

"""Runs lines of states within a state: the Parallel state with its branches, and the iterations of an inline Map.

Invariants: branches begin in the definition's order in the same millisecond; outputs are in the order of the branches
or items; after the first failure no line begins or goes on, and the others are stopped before the failure is recorded.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from states_language.branch import Branch, Child
from states_language.clock import wake
from states_language.context import ComposedEnvironment
from states_language.definition.fields import Fields, child_pointer
from states_language.failures import EvaluationError, Fatal, Halted, StateError
from states_language.place import Parts, Place, Within
from states_language.states.base import Line, StateWithRetry

MOST_AT_ONCE = 40
"""The most iterations of an inline Map at a time, whatever MaxConcurrency says (Developer Guide)."""

Items = list[Any] | dict[str, Any]
"""The elements of an array, or the members of an object."""


def item_environment(branch: Branch, item: dict[str, Any]) -> ComposedEnvironment:
    """Return the environment of an ItemSelector: the Map state's, with the item as Map.Item."""
    context = branch.context
    return ComposedEnvironment(
        lambda: {**context(), "Map": {"Item": item}}, branch.variable, branch.functions, branch.random
    )


class StateWithLines(StateWithRetry):
    """A state that runs lines of states, or executions, within it."""

    def add_failed_event(self, branch: Branch) -> None:
        branch.add(f"{self.type}StateFailed")

    async def await_lines(self, branch: Branch, group: Awaitable[Any]) -> Any:
        """Return the outputs of the group, or raise its StateError."""
        try:
            outcome = await group
        finally:
            branch.children = []
        if isinstance(outcome, StateError):
            raise outcome
        branch.add_side_event(f"{self.type}StateSucceeded")
        branch.group = None  # an execution that has just ended stands in the group still
        return outcome


class Lines:
    """The lines of one attempt. within: their places before a redrive."""

    def __init__(self, parent: Branch, count: int, within: Within | None) -> None:
        self.parent = parent
        self.loop = asyncio.get_running_loop()
        # A failure is the future's result, not its exception: asyncio reports an exception that is never awaited.
        self.done: asyncio.Future[Any] = self.loop.create_future()
        self.parts = Parts(count, parent.last_id, within)
        parent.last_id = self.parts.began_id
        self.is_failing = False

    def prepare_redrive(self) -> Within:
        """Return where the lines stand."""
        return self.parts.resume_point()

    def start(self, child: Branch, index: int, line: Line, data: Callable[[], Any], place: Place | None) -> None:
        """Run a line from its beginning, on this data, or from the place where it stood."""
        child.work = child.execution.create_line_task(self._run(child, index, line, data, place))

    async def _run(self, child: Branch, index: int, line: Line, data: Callable[[], Any], place: Place | None) -> None:
        try:
            output = await child.run(line.states, line.start_at, data() if place is None else None, place)
        except Halted:
            return
        except EvaluationError as problem:  # of the ItemSelector, so it is the Map state's own failure
            await self._fail_by_selector(child, problem)
        except StateError as failure:
            await self._fail(child, failure)
        except Fatal as failure:
            child.execution.fail(child, failure)
        except Exception as problem:
            child.execution.crash(child, problem)
        else:
            self.record_output(child, index, output)

    async def _fail_by_selector(self, child: Branch, problem: EvaluationError) -> None:
        try:
            refusal = self.parent.record_failure(problem)
        except Halted:
            return
        if isinstance(refusal, Fatal):
            child.execution.fail(child, refusal)
        elif isinstance(refusal, StateError):
            await self._fail(child, refusal)

    def record_output(self, child: Branch, index: int, output: Any) -> None:
        """Record the output of a line that has ended."""
        self.parts.end(index, output)
        child.scope.close()
        if self.parts.is_complete:
            # The chain goes on from the branch that ended last (recorded for Map).
            self.parent.last_id = child.last_id
            self.complete_attempt(self.parts.outputs)

    def other_lines(self, child: Branch) -> list[Child]:
        return [other for other in self.parent.children if other is not child]

    async def abort_open_lines(self, child: Branch) -> None:
        """Abort what is open in the lines, beginning with the line that failed."""
        # Within a failing branch the state that failed counts as aborted too (recorded).
        for branch in (child, *self.other_lines(child)):
            branch.abort_state(child.last_id)

    async def _fail(self, child: Branch, failure: StateError) -> None:
        if self.is_failing:
            return
        self.is_failing = True
        try:
            await self.abort_open_lines(child)
            self.parts.freeze()
            for branch in self.parent.children:
                branch.kill()
            self.parent.last_id = child.last_id
        except Halted:
            return
        self.complete_attempt(failure)

    def complete_attempt(self, outcome: Any) -> None:
        """Complete the attempt with its outputs or its StateError."""
        if not self.done.done():
            self.done.set_result(outcome)


class Parallel(StateWithLines):
    type = "Parallel"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        fields.require("Branches")
        branches = fields.array("Branches")
        if not branches:
            raise fields.error_for("Branches", "must hold at least one branch")
        where = fields.pointer_of("Branches")
        self.inner_lines = [
            fields.compile_line(branch, child_pointer(where, index), "a branch")
            for index, branch in enumerate(branches)
        ]
        fields.refuse_unread("a Parallel state")

    async def attempt(self, branch: Branch, data: Any) -> Any:
        """Run the branches and return the array of their outputs; raises the StateError of the first that fails."""
        effective = self.flow.effective_input(data, branch)
        branch.payload_text(effective)
        within = branch.take_within()
        if within is None:
            branch.add("ParallelStateStarted")
        branch.group = group = Lines(branch, len(self.inner_lines), within)
        branches = [(index, branch.fork()) for index in group.parts.open_numbers]
        branch.children = [child for _, child in branches]
        for index, child in branches:
            group.start(child, index, self.inner_lines[index], lambda: effective, group.parts.begin(index, child))
        if group.parts.is_complete:
            group.complete_attempt(group.parts.outputs)
        return await self.await_lines(branch, group.done)


class Iterations(Lines):
    """The iterations of a Map. select: returns an iteration's input. 0 as max_concurrency means no bound."""

    def __init__(
        self,
        parent: Branch,
        line: Line,
        items: list[Any],
        select: Callable[[Any, Any], Any],
        max_concurrency: int,
        within: Within | None = None,
    ) -> None:
        super().__init__(parent, len(items), within)
        self.line = line
        self.items = items
        self.select = select
        self.name = parent.state.name if parent.state else ""
        self.waiting_indices = deque(self.parts.open_numbers)
        if self.parts.is_complete:
            self.complete_attempt(self.parts.outputs)
        first = min(len(self.waiting_indices), max_concurrency or MOST_AT_ONCE, MOST_AT_ONCE)
        for begun in [self._begin(parent.last_id) for _ in range(first)]:
            self._start(*begun)

    def prepare_redrive(self) -> Within:
        """Return where the iterations stand."""
        return super().prepare_redrive() | {"items": self.items}

    def _begin(self, previous_id: int) -> tuple[Branch, int, Place | None]:
        index = self.waiting_indices.popleft()
        child = self.parent.fork()
        child.last_id = previous_id
        child.item = {"Index": index, "Value": self.items[index]}
        child.iteration = {"name": self.name, "index": index}
        self.parent.children.append(child)
        place = self.parts.begin(index, child)
        if began_id := self.parts.resumed[index].get("began_id"):
            child.last_id = began_id
        elif place is None:
            child.began_id = child.add("MapIterationStarted", child.iteration)
        return child, index, place

    def _start(self, child: Branch, index: int, place: Place | None) -> None:
        item = self.items[index]
        environment = item_environment(self.parent, {"Index": index, "Value": item})
        self.start(child, index, self.line, lambda: self.select(environment, item), place)

    def record_output(self, child: Branch, index: int, output: Any) -> None:
        """Record the output of an iteration that has ended, and begin the next."""
        try:
            # The next iteration goes on from this one's last state, the Map state from this event (recorded).
            ended_id = child.add_side_event("MapIterationSucceeded", child.iteration)
            child.scope.close()
            self.parent.children.remove(child)
            self.parts.end(index, output)
            if self.is_failing:
                return
            if self.waiting_indices:
                self._start(*self._begin(child.last_id))
        except Halted:
            return
        if self.parts.is_complete:
            self.parent.last_id = ended_id
            self.complete_attempt(self.parts.outputs)

    async def abort_open_lines(self, child: Branch) -> None:
        """Record the failure of the iteration, and abort what is open in all iterations."""
        # Other ends in the same millisecond are recorded first: four Tasks that time out together give four
        # TaskTimedOut before the one MapIterationFailed (recorded).
        turn = self.loop.create_future()
        self.loop.call_soon(wake, turn)  # an outer Map may fail meanwhile, and cancel it
        await turn
        child.add_side_event("MapIterationFailed", child.iteration)
        for other in self.other_lines(child):
            other.abort_state(child.last_id)
        child.iteration = None
        child.abort_state(child.last_id)

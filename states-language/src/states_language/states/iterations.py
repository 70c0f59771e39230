"""Runs the iterations of an inline Map: the same line of states for each item, so many at a time.

Invariant: outputs are in the order of the items, and after the first failure no iteration begins and none goes on.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from states_language.branch import Branch
from states_language.failures import EvaluationError, Fatal, Halted, StateError
from states_language.states.base import Line

MOST_AT_ONCE = 40
"""Iterations of an inline Map at a time, whatever MaxConcurrency says (Developer Guide)."""


class ItemEnvironment:
    """The environment of an ItemSelector: that of the Map state, with the item."""

    def __init__(self, branch: Branch, index: int, value: Any) -> None:
        self.variable, self.functions, self.random = branch.variable, branch.functions, branch.random
        self._branch = branch
        self._item = {"Index": index, "Value": value}

    def context(self) -> dict[str, Any]:
        """Return the Context Object, with Map.Item."""
        return {**self._branch.context(), "Map": {"Item": self._item}}


class Iterations:
    """The iterations of one attempt. select: makes the input of one. at_once: MaxConcurrency, 0 for no bound."""

    def __init__(
        self, parent: Branch, line: Line, items: list[Any], select: Callable[[Any, Any], Any], at_once: int
    ) -> None:
        self.parent = parent
        self.line = line
        self.items = items
        self.select = select
        self.name = parent.state.name if parent.state else ""
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Any] = self.loop.create_future()
        self.outputs: list[Any] = [None] * len(items)
        self.begun = 0
        self.open = len(items)
        self.failing = False
        if not items:
            self.done.set_result([])
        first = [self._begin(parent.last_id) for _ in range(min(len(items), at_once or MOST_AT_ONCE, MOST_AT_ONCE))]
        for child, index in first:
            self._start(child, index)

    def _begin(self, previous_id: int) -> tuple[Branch, int]:
        index = self.begun
        self.begun += 1
        child = self.parent.fork()
        child.last_id = previous_id
        child.item = {"Index": index, "Value": self.items[index]}
        child.iteration = {"name": self.name, "index": index}
        self.parent.children.append(child)
        child.add("MapIterationStarted", child.iteration)
        return child, index

    def _start(self, child: Branch, index: int) -> None:
        child.work = child.execution.task(self._run(child, index))

    async def _run(self, child: Branch, index: int) -> None:
        try:
            data = self.select(ItemEnvironment(self.parent, index, self.items[index]), self.items[index])
            self.outputs[index] = await child.run(self.line.states, self.line.start_at, data)
        except Halted:
            return
        except EvaluationError as problem:  # of the item's selector: the Map state's own
            await self._refused(child, problem)
        except StateError as failure:
            await self._fail(child, failure)
        except Fatal as failure:
            child.execution.fail(child, failure)
        except Exception as problem:
            child.execution.crash(child, problem)
        else:
            self._succeed(child)

    async def _refused(self, child: Branch, problem: EvaluationError) -> None:
        try:
            refusal = self.parent.refused(problem)
        except Halted:
            return
        if isinstance(refusal, Fatal):
            child.execution.fail(child, refusal)
        elif isinstance(refusal, StateError):
            await self._fail(child, refusal)

    def _succeed(self, child: Branch) -> None:
        try:
            # The next iteration goes on from this one's last state, the Map state from this event (recorded).
            ended_id = child.aside("MapIterationSucceeded", child.iteration)
            child.scope.close()
            self.parent.children.remove(child)
            self.open -= 1
            if self.failing:
                return
            if self.begun < len(self.items):
                self._start(*self._begin(child.last_id))
        except Halted:
            return
        if self.open == 0:
            self.parent.last_id = ended_id
            self._settle(self.outputs)

    async def _fail(self, child: Branch, failure: StateError) -> None:
        if self.failing:
            return
        self.failing = True
        # What ends in the same millisecond is recorded first: four Tasks that time out together are four TaskTimedOut
        # before the one MapIterationFailed (recorded).
        turn = self.loop.create_future()
        self.loop.call_soon(turn.set_result, None)
        await turn
        try:
            child.aside("MapIterationFailed", child.iteration)
            others = [other for other in self.parent.children if other is not child]
            for other in others:
                other.abort_state(child.last_id)
            child.iteration = None
            child.abort_state(child.last_id)
            for branch in self.parent.children:
                branch.kill()
            self.parent.last_id = child.last_id
        except Halted:
            return
        self._settle(failure)

    def _settle(self, outcome: Any) -> None:
        if not self.done.done():
            self.done.set_result(outcome)

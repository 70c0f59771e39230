"""Runs the iterations of an inline Map: the same line of states for each item, so many at a time.

Invariant: outputs are in the order of the items, and after the first failure no iteration begins and none goes on.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from states_language.branch import Branch
from states_language.failures import EvaluationError, Fatal, Halted, StateError
from states_language.place import Parts, Place, Within
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
    """The iterations of one attempt. select: makes the input of one. at_once: MaxConcurrency, 0 for no bound.

    within: what they go on from.
    """

    def __init__(
        self,
        parent: Branch,
        line: Line,
        items: list[Any],
        select: Callable[[Any, Any], Any],
        at_once: int,
        within: Within | None = None,
    ) -> None:
        self.parent = parent
        self.line = line
        self.items = items
        self.select = select
        self.name = parent.state.name if parent.state else ""
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Any] = self.loop.create_future()
        self.parts = Parts(len(items), parent.last_id, within)
        parent.last_id = self.parts.began_id
        self.waiting = deque(self.parts.open)
        self.failing = False
        if self.parts.complete:
            self.done.set_result(self.parts.outputs)
        first = min(len(self.waiting), at_once or MOST_AT_ONCE, MOST_AT_ONCE)
        for begun in [self._begin(parent.last_id) for _ in range(first)]:
            self._start(*begun)

    def left(self) -> Within:
        """Return where the iterations stand."""
        return self.parts.left() | {"items": self.items}

    def _begin(self, previous_id: int) -> tuple[Branch, int, Place | None]:
        index = self.waiting.popleft()
        child = self.parent.fork()
        child.last_id = previous_id
        child.item = {"Index": index, "Value": self.items[index]}
        child.iteration = {"name": self.name, "index": index}
        self.parent.children.append(child)
        place = self.parts.begin(index, child)
        if place is None:
            child.add("MapIterationStarted", child.iteration)
        return child, index, place

    def _start(self, child: Branch, index: int, place: Place | None) -> None:
        child.work = child.execution.task(self._run(child, index, place))

    async def _run(self, child: Branch, index: int, place: Place | None) -> None:
        try:
            item, data = self.items[index], None
            if place is None:
                data = self.select(ItemEnvironment(self.parent, index, item), item)
            output = await child.run(self.line.states, self.line.start_at, data, place)
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
            self._succeed(child, index, output)

    async def _refused(self, child: Branch, problem: EvaluationError) -> None:
        try:
            refusal = self.parent.refused(problem)
        except Halted:
            return
        if isinstance(refusal, Fatal):
            child.execution.fail(child, refusal)
        elif isinstance(refusal, StateError):
            await self._fail(child, refusal)

    def _succeed(self, child: Branch, index: int, output: Any) -> None:
        try:
            # The next iteration goes on from this one's last state, the Map state from this event (recorded).
            ended_id = child.aside("MapIterationSucceeded", child.iteration)
            child.scope.close()
            self.parent.children.remove(child)
            self.parts.end(index, output)
            if self.failing:
                return
            if self.waiting:
                self._start(*self._begin(child.last_id))
        except Halted:
            return
        if self.parts.complete:
            self.parent.last_id = ended_id
            self._settle(self.parts.outputs)

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
            self.parts.freeze()
            for branch in self.parent.children:
                branch.kill()
            self.parent.last_id = child.last_id
        except Halted:
            return
        self._settle(failure)

    def _settle(self, outcome: Any) -> None:
        if not self.done.done():
            self.done.set_result(outcome)

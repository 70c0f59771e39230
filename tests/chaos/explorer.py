"""Explores every state of a model breadth first, then checks that each state leads to the goals once the faults cease.

Safety is checked step by step: a step of the model raises `Violation`, and the shortest trace to it is reported.
Liveness is checked afterwards on the whole graph, over the free steps alone: from every state, every path must reach
its goal. That holds if the states that have not reached it form no cycle and no dead end; the longest such path, in
ticks, is how long it takes. With a bound, states beyond it count as having reached the goal. Invariant: the result does
not depend on the order of any set.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

W = TypeVar("W")


class Violation(Exception):
    """An invariant does not hold; `invariant` is its name."""

    def __init__(self, invariant: str, message: str = "") -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


class Step(NamedTuple):
    """One step: its name, the next state, whether it is free (no fault and no request), and its number of ticks."""

    label: str
    world: Any
    free: bool = True
    ticks: int = 0


class Model(Generic[W]):
    """A model to explore; the steps of a state come in the same order each time."""

    # Whether a free step may change nothing; and how many ticks it may take to come to each goal, 0 for any number.
    may_stutter = False
    most_connected_ticks = most_stable_ticks = 0

    def first(self) -> W:
        """Returns the first state."""
        raise NotImplementedError

    def steps(self, world: W) -> Iterator[Step]:
        """Yields every step of a state; raises Violation."""
        raise NotImplementedError

    def key(self, world: W) -> Hashable:
        """Returns a value that equal states have in common."""
        raise NotImplementedError

    def is_connected(self, _world: W) -> bool:
        """Returns whether a state is at the first goal."""
        return True

    def is_stable(self, _world: W) -> bool:
        """Returns whether a state is at the second goal."""
        return True

    def may_not_recur(self, _world: W) -> bool:
        """Returns whether free steps must not lead from the state back to itself."""
        return False

    def line(self, _world: W, step: Step) -> str:
        """Returns the step's line in a trace."""
        return step.label


@dataclass(slots=True)
class Result:
    """The result of an exploration; `violation` is "" if nothing was broken, `trace` has the steps to it.

    `stable_ticks` and `connected_ticks` are the longest ways to the goals once the faults cease.
    """

    states: int = 0
    transitions: int = 0
    depth: int = 0
    complete: bool = True
    seconds: float = 0.0
    connected_ticks: int = 0
    stable_ticks: int = 0
    violation: str = ""
    message: str = ""
    trace: list[str] = field(default_factory=list)


class _Graph:
    """The states reached so far, how each was reached first, and the free steps between them."""

    def __init__(self) -> None:
        self.parent, self.depth = array("l"), array("l")
        self.stable, self.connected, self.bare = bytearray(), bytearray(), bytearray()
        self.sources, self.targets, self.ticks = array("l"), array("l"), bytearray()

    def add(self, parent: int, model: Model[W], world: W) -> int:
        """Adds a state and returns its number."""
        self.parent.append(parent)
        self.depth.append(0 if parent < 0 else self.depth[parent] + 1)
        self.stable.append(model.is_stable(world))
        self.connected.append(model.is_connected(world))
        self.bare.append(model.may_not_recur(world))
        return len(self.parent) - 1

    def way_to(self, state: int) -> list[int]:
        """Returns the states on the way from the first state to this one."""
        states: list[int] = []
        while self.parent[state] >= 0:
            states.append(state)
            state = self.parent[state]
        return states[::-1]

    def longest(self, goal: bytearray) -> tuple[array[int], list[int]]:
        """Returns the most ticks from each state to the goal, and the states that may never reach it."""
        open_steps = array("l", bytes(8 * len(self.parent)))
        before: dict[int, list[int]] = {}
        for at, (source, target) in enumerate(zip(self.sources, self.targets, strict=True)):
            if not goal[source]:
                open_steps[source] += 1
                before.setdefault(target, []).append(at)
        ticks = array("l", bytes(8 * len(self.parent)))
        done = bytearray(goal)
        ready = deque(state for state, reached in enumerate(goal) if reached)
        while ready:
            state = ready.popleft()
            for at in before.get(state, ()):
                source = self.sources[at]
                ticks[source] = max(ticks[source], ticks[state] + self.ticks[at])
                open_steps[source] -= 1
                if not open_steps[source]:
                    done[source] = True
                    ready.append(source)
        return ticks, [state for state, reached in enumerate(done) if not reached]

    def recurring(self) -> list[int]:
        """Returns the states that recur although they must not."""
        after: dict[int, list[int]] = {}
        ways_in = array("l", bytes(8 * len(self.parent)))
        for source, target in zip(self.sources, self.targets, strict=True):
            after.setdefault(source, []).append(target)
            ways_in[target] += 1
        # A state that no cycle leads to lies on none; few of the states that must not recur are left then.
        ready = [state for state, count in enumerate(ways_in) if not count]
        while ready:
            for target in after.pop(ready.pop(), ()):
                ways_in[target] -= 1
                if not ways_in[target]:
                    ready.append(target)
        return [state for state, is_bare in enumerate(self.bare) if is_bare and _leads_back(state, after)]

    def round(self, lost: list[int]) -> list[int]:
        """Returns the states to the first of the `lost` ones and on among them, until one recurs or none follows."""
        onward: dict[int, int] = {}
        among = set(lost)
        for source, target in zip(self.sources, self.targets, strict=True):
            if source in among and target in among:
                onward.setdefault(source, target)
        state, way = lost[0], self.way_to(lost[0])
        been: set[int] = set()
        while state not in been and state in onward:
            been.add(state)
            state = onward[state]
            way.append(state)
        return way


def _leads_back(state: int, after: dict[int, list[int]]) -> bool:
    reached: set[int] = set()
    ready = [state]
    while ready:
        new = {*after.get(ready.pop(), ())} - reached
        reached |= new
        ready += new
    return state in reached


def explore(model: Model[Any], *, depth: int = 0, most: int = 0) -> Result:
    """Explores every state of the model; a `depth` or `most` other than 0 limits the steps or the states."""
    since, result, graph = time.perf_counter(), Result(), _Graph()
    first = model.first()
    state = graph.add(-1, model, first)
    seen = {model.key(first): state}
    ready = deque([(state, first)])
    try:
        while ready:
            state, world = ready.popleft()
            result.depth = graph.depth[state]
            if (depth and result.depth >= depth) or (most and len(seen) >= most):
                graph.stable[state] = graph.connected[state] = True
                result.complete = False
                continue
            for step in model.steps(world):
                result.transitions += 1
                key = model.key(step.world)
                target = seen.get(key)
                if target is None:
                    target = seen[key] = graph.add(state, model, step.world)
                    ready.append((target, step.world))
                if step.free and not (model.may_stutter and target == state):
                    graph.sources.append(state)
                    graph.targets.append(target)
                    graph.ticks.append(step.ticks)
        way = _check_liveness(model, graph, result)
    except Violation as violation:
        result.violation, result.message = violation.invariant, str(violation)
        way = graph.way_to(state)
    if result.violation:
        result.trace = _trace(model, first, seen, way)
    result.states, result.seconds = len(seen), time.perf_counter() - since
    return result


def _check_liveness(model: Model[Any], graph: _Graph, result: Result) -> list[int]:
    """Fills in the ticks, or the violation, and returns the states that show it."""

    def breaks(violation: str, message: str) -> None:
        result.violation, result.message = violation, message

    ticks, lost = graph.longest(graph.connected)
    result.connected_ticks = max(ticks)
    if lost:
        breaks("connected again", "the stream may never be connected again")
        return graph.round(lost)
    if 0 < (most := model.most_connected_ticks) < result.connected_ticks:
        breaks(
            "connected in time", f"the stream may be unconnected for {result.connected_ticks} ticks, {most} are allowed"
        )
        return graph.way_to(ticks.index(result.connected_ticks))
    ticks, lost = graph.longest(graph.stable)
    result.stable_ticks = max(ticks)
    if lost:
        breaks("comes to rest", "it may never come to rest")
        return graph.round(lost)
    if any(graph.bare) and (recurring := graph.recurring()):
        breaks("covered for ever", "the stream is uncovered again and again")
        return graph.round(recurring)
    if 0 < (most := model.most_stable_ticks) < result.stable_ticks:
        breaks("rests in time", f"the stream may take {result.stable_ticks} ticks to come to rest, {most} are allowed")
        return graph.way_to(ticks.index(result.stable_ticks))
    return []


def _trace(model: Model[Any], world: Any, seen: dict[Hashable, int], way: list[int]) -> list[str]:
    """Returns the names of the steps; a step that broke an invariant comes last."""
    lines: list[str] = []
    for state in way:
        step = next((step for step in model.steps(world) if seen.get(model.key(step.world)) == state), None)
        if step is None:  # a planted defect keeps what the key does not hold
            break
        lines.append(model.line(world, step))
        world = step.world
    return lines


def ranks(values: Iterable[int]) -> dict[int, int]:
    """Returns the rank of each value, and of 0, by size."""
    return {value: rank for rank, value in enumerate(sorted({0, *values}))}

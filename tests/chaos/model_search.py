"""Explores every state of the model breadth first, then asks where each leads when faults cease.

Safety is checked step by step (`model_steps.py`); a violation comes with its shortest trace. Liveness is checked on
the whole graph afterwards, over the free steps alone: from every state every path must come to its goal, which is so
when the states that are short of it form no cycle and no dead end; the longest such path, in ticks, is how long it
takes. The goal is a stable stream (one connection that nobody is taking over, the other lane waiting), or quiet after
a stop. An eviction war never gets there. And where a connection is allowed to outlast the opening of the next, no state
without one may come again and again: it would lie on a cycle. With a depth, what lies behind it counts as reached.
Invariant: the result is
the same each time: no order of a set is in it.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.model_cycles import on_cycles
from tests.chaos.model_parts import is_connected
from tests.chaos.model_rules import Rules
from tests.chaos.model_steps import Model
from tests.chaos.model_world import FUNCTION_TICKS, START_MS, Violation, World


@dataclass(slots=True)
class Result:
    """The result. `stable_ticks` and `connected_ticks` are the longest ways to the goals once faults cease."""

    policy: str
    budget: dict[str, int]
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


# How long the way to rest may be: the longest that each sound model needs, and no whole turn of a lane. Two hot
# connections that came to start together part at their deadlines; a function that the machine has lost lives on.
REST_TICKS, HOT_REST_TICKS = 12, 24
# How long it may take until the stream is connected where two are forbidden, if each end of a function is proved or
# comes by itself: no longer than after a drop. A lease lasts four ticks.
PROVED_TICKS = 2
PROVED = frozenset({"kill", "drop", "again", "event", "refuse", "renew"})


class _Graph:
    """The states reached so far: how each was reached first, and the free steps between them."""

    def __init__(self) -> None:
        self.parent = array("l")
        self.ordinal = array("l")
        self.depth = array("l")
        self.stable = bytearray()
        self.connected = bytearray()
        self.bare = bytearray()
        self.sources = array("l")
        self.targets = array("l")
        self.numbers = array("l")
        self.ticks = bytearray()

    def add(self, parent: int, ordinal: int, world: World, policy: str) -> int:
        """The number of a new state."""
        self.parent.append(parent)
        self.ordinal.append(ordinal)
        self.depth.append(0 if parent < 0 else self.depth[parent] + 1)
        quiet = _is_quiet(world)
        self.stable.append(quiet or _is_stable(world, policy))
        self.connected.append(quiet or world.is_over or any(is_connected(p) for p in world.processes))
        self.bare.append(not (quiet or world.is_over or any(p.link == "open" for p in world.processes)))
        return len(self.parent) - 1

    def way(self, state: int) -> list[int]:
        """The numbers of the steps from the first state to this one."""
        steps: list[int] = []
        while self.parent[state] >= 0:
            steps.append(self.ordinal[state])
            state = self.parent[state]
        return steps[::-1]

    def longest(self, goal: bytearray) -> tuple[array[int], list[int]]:
        """The most ticks from each state to the goal, and the states from which it may never be reached."""
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
        """The states without a connection that free steps lead back to; with them the cycles that they are on."""
        cycles = on_cycles(len(self.parent), self.sources, self.targets)
        return [state for state, is_bare in enumerate(self.bare) if is_bare and cycles[state]]

    def round(self, lost: list[int]) -> list[int]:
        """The steps to the first of the `lost` states and on among them, until one comes again or none follows."""
        onward: dict[int, tuple[int, int]] = {}
        among = set(lost)
        for source, target, number in zip(self.sources, self.targets, self.numbers, strict=True):
            if source in among and target in among:
                onward.setdefault(source, (target, number))
        state, way = lost[0], self.way(lost[0])
        been: set[int] = set()
        while state not in been and state in onward:
            been.add(state)
            state, number = onward[state]
            way.append(number)
        return way


def explore(
    policy: str, budget: dict[str, int], rules: Rules | None = None, *, depth: int = 0, most: int = 0
) -> Result:
    """Every state within `budget`, and within `depth` steps and `most` states where these are not 0."""
    since = time.perf_counter()
    result = Result(policy, budget)
    model = Model(policy, rules or Rules())
    first = World(START_MS, tuple(sorted(budget.items())))
    graph = _Graph()
    state = graph.add(-1, 0, first, policy)
    intern: dict[Any, int] = {}
    seen = {first.key(intern): state}
    ready = deque([(state, first)])
    try:
        while ready:
            state, world = ready.popleft()
            result.depth = graph.depth[state]
            if (depth and result.depth >= depth) or (most and len(seen) >= most):
                graph.stable[state] = graph.connected[state] = True
                result.complete = False
                continue
            for ordinal, step in enumerate(model.steps(world)):
                result.transitions += 1
                key = step.world.key(intern)
                target = seen.get(key)
                if target is None:
                    target = seen[key] = graph.add(state, ordinal, step.world, policy)
                    ready.append((target, step.world))
                if step.free:
                    graph.sources.append(state)
                    graph.targets.append(target)
                    graph.numbers.append(ordinal)
                    graph.ticks.append(step.ticks)
        way = _check_liveness(graph, result)
    except Violation as violation:
        result.violation, result.message = violation.invariant, str(violation)
        way = graph.way(state)
    if result.violation:
        result.trace = _trace(model, first, way)
    result.states = len(seen)
    result.seconds = time.perf_counter() - since
    return result


def _check_liveness(graph: _Graph, result: Result) -> list[int]:
    """Fills in the ticks, or the violation; returns the steps that show it."""
    ticks, lost = graph.longest(graph.connected)
    result.connected_ticks = max(ticks)
    if lost:
        result.violation, result.message = "connected again", "the stream may never be connected again"
        return graph.round(lost)
    if result.policy == "forbids" and set(result.budget) <= PROVED and result.connected_ticks > PROVED_TICKS:
        result.violation = "connected in time"
        result.message = f"the stream may be unconnected for {result.connected_ticks} ticks, {PROVED_TICKS} are allowed"
        return graph.way(ticks.index(result.connected_ticks))
    ticks, lost = graph.longest(graph.stable)
    result.stable_ticks = max(ticks)
    if lost:
        result.violation, result.message = "comes to rest", "the stream may never come to rest"
        return graph.round(lost)
    if result.policy != "forbids" and (recurring := graph.recurring()):
        result.violation, result.message = "covered for ever", "the stream is uncovered again and again"
        return graph.round(recurring)
    # Who is connected when the stream's end is told to another, or whom the machine lost, stays to its function's end.
    stays = sum(result.budget.get(fault, 0) for fault in ("orphan", "end"))
    most = (HOT_REST_TICKS if result.policy == "hot" else REST_TICKS) + FUNCTION_TICKS * stays
    if result.stable_ticks > most:
        result.violation = "rests in time"
        result.message = f"the stream may take {result.stable_ticks} ticks to come to rest, {most} are allowed"
        return graph.way(ticks.index(result.stable_ticks))
    return []


def _trace(model: Model, world: World, way: list[int]) -> list[str]:
    """The steps by name, with the time since the start; where a step broke an invariant, it is the one that follows."""
    lines: list[str] = []
    for ordinal in way:
        step = next(step for at, step in enumerate(model.steps(world)) if at == ordinal)
        lines.append(f"{(world.now_ms - START_MS) / 1000:4.0f} s  {step.label}")
        world = step.world
    return lines


def _is_quiet(world: World) -> bool:
    """Whether nothing runs any more, as after a stop request or the stream's end."""
    return world.is_over and not world.processes and all(state in ("off", "over") for state in world.executions)


def _is_stable(world: World, policy: str) -> bool:
    """Whether the stream is connected and nobody is about to take over."""
    if world.is_over:
        return False
    holders = [p for p in world.processes if p.link == "open" and p.manager.phase.value == "connected"]
    if len(holders) != len(world.processes):
        return False
    fences = {p.manager.fence for p in holders}
    if policy == "hot":
        return len(holders) == 2 and world.lease.fence in fences
    lanes = sorted(lane.state for lane in world.lanes if lane.state != "off")
    # A claim whose function is gone is nothing to most, but a reason to let go where the upstream forbids two.
    last = world.lease.fence if policy == "forbids" else world.lease.connected_token
    return fences == {world.lease.connected_token} == {last} and lanes == ["running", "waiting"]

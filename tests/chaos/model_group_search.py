"""Explores every state of the model of a group, then asks where each leads when faults and requests cease.

Safety is checked step by step. Then, over the steps that cost no budget, every path from every state must come to rest:
each stream that is wanted is connected by the newest function and by no other, no other stream is, and one lane waits;
or the group is empty and its execution is over. Invariant: the result is the same each time.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from handlers.group.group_lease import GroupLease
from tests.chaos.model_group import Model
from tests.chaos.model_group_rules import Rules
from tests.chaos.model_group_world import Record, Violation, World

EXECUTION = "E1"


@dataclass(frozen=True)
class Search:
    """What is explored: the streams' policies, how many of them are members at first, and what may happen."""

    policies: tuple[str, ...]
    budget: dict[str, int]
    joined: int = 1
    rules: Rules = field(default_factory=Rules)


@dataclass
class Result:
    """What an exploration came to; `violation` is "" where nothing was broken, `trace` the steps to it."""

    states: int = 0
    transitions: int = 0
    seconds: float = 0.0
    violation: str = ""
    message: str = ""
    trace: list[str] = field(default_factory=list)


def start(search: Search) -> World:
    """The first state: the execution has claimed the group, and its first function is about to start."""
    names = [f"s{number}" for number in range(1, len(search.policies) + 1)]
    members = dict.fromkeys(names[: search.joined], 1)
    records = {name: Record(joined=members.get(name, 0)) for name in names}
    group = GroupLease(execution=EXECUTION, version=1)
    return World(tuple(sorted(search.budget.items())), records, members, group, ("waiting", "starting"))


def explore(search: Search, most: int = 0) -> Result:
    """Every state, until none is new or an invariant is broken; `most` states where that is not 0."""
    since, result = time.perf_counter(), Result()
    names = [f"s{number}" for number in range(1, len(search.policies) + 1)]
    model = Model(dict(zip(names, search.policies, strict=True)), search.rules)
    first = start(search)
    seen, ready = {first.key(): 0}, deque([(0, first)])
    came: list[tuple[int, str]] = [(-1, "")]
    free: list[dict[int, str]] = [{}]  # the steps that cost nothing
    rests = [is_at_rest(first)]
    at, onward = 0, list[str]()
    try:
        while ready:
            at, world = ready.popleft()
            for name, after, is_free in model.steps(world):
                result.transitions += 1
                key = after.key()
                target = seen.get(key)
                if target is None:
                    target = seen[key] = len(came)
                    came.append((at, name))
                    free.append({})
                    rests.append(is_at_rest(after))
                    if not most or target < most:
                        ready.append((target, after))
                    else:
                        rests[target] = True
                if is_free and target != at:
                    free[at].setdefault(target, name)
        lost = short_of_rest(free, rests)
        if lost:
            at, onward = lost[0], _onward(free, lost)
            result.violation, result.message = "comes to rest", "the group may never come to rest"
    except Violation as violation:
        result.violation, result.message = violation.invariant, str(violation)
    if result.violation:
        while at > 0:
            at, name = came[at]
            result.trace.insert(0, name)
        result.trace += onward
    result.states, result.seconds = len(came), time.perf_counter() - since
    return result


def short_of_rest(free: list[dict[int, str]], rests: list[bool]) -> list[int]:
    """The states from which some path of free steps never comes to rest, in the order in which they were reached."""
    open_steps = [0 if is_rest else len(targets) for targets, is_rest in zip(free, rests, strict=True)]
    before: list[list[int]] = [[] for _ in free]
    for state, targets in enumerate(free):
        for target in targets:
            before[target].append(state)
    done, ready = list(rests), deque(state for state, is_rest in enumerate(rests) if is_rest)
    while ready:
        for state in before[ready.popleft()]:
            open_steps[state] -= 1
            if not open_steps[state] and not done[state]:
                done[state] = True
                ready.append(state)
    return [state for state, is_done in enumerate(done) if not is_done]


def _onward(free: list[dict[int, str]], lost: list[int]) -> list[str]:
    """The steps from the first of the `lost` states on among them, until one comes again or none follows."""
    among, state, been, names = set(lost), lost[0], set[int](), list[str]()
    while state not in been:
        been.add(state)
        onward = next(((target, name) for target, name in free[state].items() if target in among), None)
        if onward is None:
            break
        state = onward[0]
        names.append(f"… {onward[1]}")
    return names


def is_at_rest(world: World) -> bool:
    """Whether all is as it was asked for, and nothing is about to change."""
    if world.asked:
        return False
    wanted = {stream for stream in world.records if world.is_wanted(stream)}
    if not wanted:
        return not world.group.execution and not world.functions and not world.members
    if len(world.functions) != 1 or sorted(world.lanes) != ["running", "waiting"] or set(world.members) != wanted:
        return False
    (one,) = world.functions
    held = {stream for stream, conn in one.conns.items() if conn.phase == "connected"}
    marked = all(world.records[stream].lease.connected_token == one.conns[stream].fence for stream in held)
    return one.token == world.group.token and held == wanted == set(one.conns) and marked

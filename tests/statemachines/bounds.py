"""Computes, from its definition alone, the most history events that an execution can have.

A counting state adds one to a variable on each way out of it: `Connect` of a lane counts cycles, the claim counts
tries. Every loop goes through such a state, so the states between two counts form a graph without loops, and its
longest path is the worst cycle. A count is a bound only if it is compared: each way back to the counting state passes a
Choice that compares it, or the state's own Arguments raise an error if it is too high.

A try to claim the stream counts as a cycle of every lane, because it adds no more events than they would; the bounds
hold for both. If no successor takes over, the lanes go on beyond `renew_after`, reading the lease and starting a
successor in each cycle, until `give_up_after` ends them.

Invariants, which tests compare with histories of the interpreter: no execution has more events than `history_events`
before its lanes have had `GRACE_CYCLES` cycles beyond `renew_after`, and none ever has more than `full_history`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from states_language.drawing.boxes import targets

LIMIT = 25_000
ALLOWED = LIMIT * 4 // 5
# The longest history of an execution whose successor cannot be started.
HARD = LIMIT - 100
# The cycle in which the renewal is due, and one more until the successor is connected.
GRACE_CYCLES = 2
# Outside the lanes a Retrier may name States.ALL. One visit of such a state hardly meets more kinds of failure than
# these: throttling, a fault of the service or of the network, a time-out.
KINDS_OF_FAILURE = 4
# ExecutionStarted and the event that ends it; Parallel: entered, started, failed, exited.
_FRAME = 2 + 4
# The Fail state that ends the lanes, and the states that are aborted with it: this one and the sibling's.
_LANE_END = 2

Definition = Mapping[str, Any]


class Unbounded(ValueError):
    """The definition has an unbounded cycle; the message names the state."""


@dataclass(frozen=True, slots=True)
class Count:
    """The counting state, and its variable."""

    state: str
    variable: str

    def limits(self, text: str) -> list[int]:
        """Returns the numbers to which an expression compares the variable."""
        return [int(number) for number in re.findall(rf"\${self.variable} >= (\d+)", text)]


def task_events(name: str, state: Definition, *, kinds: int | None = None) -> int:
    """Returns the most events of one visit of a Task: entered, exited, and three for each attempt.

    MaxAttempts applies to each Error Name of a Retrier by itself. `kinds` is how many Error Names a Retrier of
    States.ALL may meet; with None such a Retrier raises Unbounded.
    """
    attempts = 1
    for retrier in state.get("Retry", []):
        most = retrier.get("MaxAttempts", 3)
        names = retrier["ErrorEquals"]
        wildcard = bool({"States.ALL", "States.TaskFailed"} & set(names))
        if wildcard and most and kinds is None:
            raise Unbounded(f"{name}: a Retrier of {names[0]} counts each name by itself, so it bounds nothing")
        attempts += most * (kinds or 0 if wildcard else len(names))
    return 2 + 3 * attempts


def cycle_events(lane: Definition, *, due: bool = False) -> int:
    """Returns the most events from one count of a lane to the next; with `due`, including a renewal."""
    return _Longest(lane, due=due).cycle()


def try_events(definition: Definition) -> int:
    """Returns the most events from one try to claim the stream to the next; raises Unbounded if lanes have fewer."""
    count = _count(definition)
    # States that never lead back are no part of a try; they are visited once.
    beyond = {name for name in definition["States"] if count.state not in _reached(definition, name)}
    events = _Longest(definition, due=True, beyond=beyond, kinds=KINDS_OF_FAILURE).cycle()
    if events > sum(cycle_events(lane) for lane in _lanes(definition)):
        raise Unbounded(f"{count.state}: a try has {events} events, more than a cycle of each lane")
    return events


def history_events(definition: Definition, renew_after: int | None = None) -> int:
    """Returns the most events of an execution that renews after so many cycles, by default those of the definition."""
    return _outside(definition) + sum(
        (_renews_at(lane) if renew_after is None else renew_after) * cycle_events(lane)
        + GRACE_CYCLES * cycle_events(lane, due=True)
        for lane in _lanes(definition)
    )


def full_history(definition: Definition, give_up_after: int | None = None, renew_after: int = 1) -> int:
    """Returns the most events of an execution whose successor never takes over; arguments as in the definition."""
    return _outside(definition) + sum(
        renew_after * cycle_events(lane)
        + ((_gives_up_at(lane) if give_up_after is None else give_up_after) - renew_after)
        * cycle_events(lane, due=True)
        for lane in _lanes(definition)
    )


def most_renew_after(definition: Definition) -> int:
    """Returns the largest `renew_after` for at most `ALLOWED` events; it may be 0 or less."""
    none = history_events(definition, 0)
    return (ALLOWED - none) // (history_events(definition, 1) - none)


def most_give_up_after(definition: Definition) -> int:
    """Returns the largest `give_up_after` for at most `HARD` events, whatever fails."""
    none = full_history(definition, 0, 0)
    return (HARD - none) // (full_history(definition, 1, 0) - none)


def _outside(definition: Definition) -> int:
    """The events outside the cycles: of the states outside the lanes, and of each lane's way to its first count."""
    try_events(definition)  # a repeated try counts as a cycle
    states, lanes = definition["States"].items(), list(_lanes(definition))
    total = _FRAME + sum(_weight(name, one, KINDS_OF_FAILURE) for name, one in states if one["Type"] != "Parallel")
    return total + sum(_LANE_END + _Longest(lane, due=False).path(lane["StartAt"]) for lane in lanes)


def _lanes(definition: Definition) -> Iterator[Definition]:
    for state in definition["States"].values():
        yield from state.get("Branches", [])


def _count(line: Definition) -> Count:
    """Returns what counts the cycles of a lane, or the tries; raises Unbounded unless it is counted and compared."""
    for name, state in line["States"].items():
        assigned = [catcher.get("Assign", {}) for catcher in state.get("Catch", [])]
        if "Next" in state and name in {state["Next"], *_reached(line, state["Next"])}:
            assigned.append(state.get("Assign", {}))
        counted = set.intersection(*map(_counted, assigned)) if assigned else set()
        for variable in counted:
            count, arguments = Count(name, variable), json.dumps(state.get("Arguments", {}))
            is_raised = bool(count.limits(arguments)) and "$error(" in arguments
            if not is_raised and name in _reached(line, name, beside=count):
                raise Unbounded(f"{name}: a loop goes through it that compares no ${variable}")
            return count
    raise Unbounded(f"what begins with {line['StartAt']} counts no cycles")


def _counted(assigned: Definition) -> set[str]:
    """The variables that are increased by one."""
    return {name for name, value in assigned.items() if value == f"{{% ${name} + 1 %}}"}


def _limits(line: Definition, count: Count) -> Iterator[tuple[int, str]]:
    """Yields the numbers to which Choices compare the count, and where each rule leads."""
    for state in line["States"].values():
        for rule in state.get("Choices", []):
            yield from ((limit, rule["Next"]) for limit in count.limits(rule.get("Condition", "")))


def _renews_at(lane: Definition) -> int:
    """The count at which a successor is due."""
    return min(limit for limit, _ in _limits(lane, _count(lane)))


def _gives_up_at(lane: Definition) -> int:
    """The count at which the lane fails on every way."""
    (limit,) = {limit for limit, target in _limits(lane, _count(lane)) if lane["States"][target]["Type"] == "Fail"}
    return limit


def _reached(line: Definition, name: str, beside: Count | None = None) -> set[str]:
    """The states that can follow a state, in any number of steps, without the Choices that compare `beside`."""
    reached: set[str] = set()
    ahead = [name]
    while ahead:
        state = line["States"][ahead.pop()]
        if beside and any(beside.limits(rule.get("Condition", "")) for rule in state.get("Choices", [])):
            continue
        found = {target for target, _ in targets(state)} - reached
        reached |= found
        ahead += found
    return reached


def _weight(name: str, state: Definition, kinds: int | None = None) -> int:
    if state["Type"] == "Task":
        return task_events(name, state, kinds=kinds)
    return 1 if state["Type"] == "Fail" else 2


class _Longest:
    """The longest path to the next count, to the end, or to one of the states `beyond`.

    Before a renewal is due, no rule that compares the count is taken.
    """

    def __init__(
        self, line: Definition, *, due: bool, beyond: Set[str] = frozenset(), kinds: int | None = None
    ) -> None:
        self._states = line["States"]
        self._count = _count(line)
        self._kinds = kinds
        self._skipped = beyond if due else beyond | {target for _, target in _limits(line, self._count)}
        # None while the path through the state is computed.
        self._known: dict[str, int | None] = {}

    def cycle(self) -> int:
        """Returns the events of the counting state and of the longest path from it to the next count."""
        return self._after(self._count.state)

    def path(self, name: str) -> int:
        """Returns the events of the longest path from a state to the next count, 0 for the count itself."""
        if name == self._count.state:
            return 0
        if name not in self._known:
            self._known[name] = None
            self._known[name] = self._after(name)
        if (events := self._known[name]) is None:
            raise Unbounded(f"{name}: a loop goes through it that counts no cycles")
        return events

    def _after(self, name: str) -> int:
        state = self._states[name]
        if state["Type"] == "Fail":
            return 0  # the end of the lane, counted once
        following = [target for target, _ in targets(state) if target not in self._skipped]
        return _weight(name, state, self._kinds) + max((self.path(target) for target in following), default=0)

"""How many history events an execution of a machine may come to, computed from its definition alone.

A lane counts its passes in a Pass state, and a Choice state compares the count with `renew_after`. Every loop of a lane
must go through that count, so what lies between two counts is a graph without loops, and its longest path is the worst
pass. A Task can be retried once for each use that its Retriers allow, and MaxAttempts holds for one Error Name, not
for a Retrier: so each name of each Retrier counts, and one of States.ALL in a lane bounds nothing and is refused.

A try to claim the stream counts as a pass of every lane, for it adds no more events than they would: `try_events` says
how many. So what is left of the tries is what the lanes may make, and the bounds hold for both.

Where no successor takes over the lanes go on beyond `renew_after`, a look and a start in each pass, until
`give_up_after` ends them: that bound is hard.

It knows no clock and no interpreter; tests hold it against histories that the interpreter made. Invariants: no
execution has more events than `history_events` says until its lanes have made `GRACE_PASSES` passes beyond
`renew_after`, and none ever has more than `full_history`.
"""

from collections.abc import Iterator, Mapping, Set
from typing import Any

from states_language.drawing.labels import targets

LIMIT = 25_000
ALLOWED = LIMIT * 4 // 5
# The longest history of an execution whose successor cannot be started.
HARD = LIMIT - 100
# The pass in which renewal is due, and one more until the successor is connected.
GRACE_PASSES = 2
# Outside the lanes a Retrier may name States.ALL. One visit of such a state meets hardly more kinds of failure than
# these: throttled, a fault of the service, of the network, a time-out.
KINDS_OF_FAILURE = 4
# ExecutionStarted and the event that ends it; Parallel: entered, started, failed, exited.
_FRAME = 2 + 4
# The Fail state that ends the lanes, and what is aborted with it: that state and the sibling's.
_LANE_END = 2

Definition = Mapping[str, Any]


class Unbounded(ValueError):
    """The definition bounds no pass; the message names the state."""


def task_events(name: str, state: Definition, *, kinds: int | None = None) -> int:
    """Returns the most events of one visit of a Task: entered, exited, and three for each attempt.

    `kinds` is how many Error Names a Retrier of States.ALL may meet; None refuses one that retries: Unbounded.
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


def pass_events(lane: Definition, *, due: bool = False) -> int:
    """Returns the most events from one count of a lane to the next; `due` says whether renewal is among them."""
    count, compare = _counter(lane)
    return _Longest(lane, count, compare, due=due).after(count)


def try_events(definition: Definition) -> int:
    """Returns the most events from one counted try to claim the stream to the next; Unbounded if lanes make fewer."""
    count, compare = _counter(definition)
    # What never leads back is no part of a try; it is visited once.
    beyond = {name for name in definition["States"] if count not in _reached(definition, name)}
    longest = _Longest(definition, count, compare, due=True, beyond=beyond, kinds=KINDS_OF_FAILURE)
    found = longest.after(count)
    if found > sum(pass_events(lane) for lane in _lanes(definition)):
        raise Unbounded(f"{count}: a try has {found} events, more than a pass of each lane")
    return found


def history_events(definition: Definition, renew_after: int | None = None) -> int:
    """Returns the most events of an execution that renews after so many passes; by default what the definition says."""
    total = _outside(definition)
    for lane in _lanes(definition):
        passes = renew_after if renew_after is not None else _renews_at(lane)
        total += passes * pass_events(lane) + GRACE_PASSES * pass_events(lane, due=True)
    return total


def full_history(definition: Definition, give_up_after: int | None = None, renew_after: int = 1) -> int:
    """Returns the most events of an execution whose successor never takes over; by default what the definition says."""
    total = _outside(definition)
    for lane in _lanes(definition):
        passes = give_up_after if give_up_after is not None else _gives_up_at(lane)
        total += renew_after * pass_events(lane) + (passes - renew_after) * pass_events(lane, due=True)
    return total


def most_passes(definition: Definition, allowed: int = ALLOWED) -> int:
    """Returns the largest `renew_after` with which an execution has at most so many events; may be 0 or less."""
    none = history_events(definition, 0)
    return (allowed - none) // (history_events(definition, 1) - none)


def most_tries(definition: Definition, allowed: int = HARD) -> int:
    """Returns the largest `give_up_after` with which an execution has at most so many events, whatever fails."""
    none = full_history(definition, 0, 0)
    return (allowed - none) // (full_history(definition, 1, 0) - none)


def _outside(definition: Definition) -> int:
    """The events of all that is no pass of a lane: the states outside, and each lane's way to its first count."""
    try_events(definition)  # what is tried again counts as a pass
    total = _FRAME
    for name, state in definition["States"].items():
        if state["Type"] != "Parallel":
            total += _weight(name, state, KINDS_OF_FAILURE)
    for lane in _lanes(definition):
        count, compare = _counter(lane)
        total += _LANE_END + _Longest(lane, count, compare, due=False).path(lane["StartAt"])
    return total


def _lanes(definition: Definition) -> Iterator[Definition]:
    for state in definition["States"].values():
        yield from state.get("Branches", [])


def _counter(lane: Definition) -> tuple[str, str]:
    """Returns the names of the counting Pass state of a lane, or of the tries, and of the Choice that compares it."""
    for name, state in lane["States"].items():
        if state["Type"] == "Pass" and "States.MathAdd" in str(state.get("Parameters", "")):
            return name, state["Next"]
    raise Unbounded(f"what begins with {lane['StartAt']} counts no passes")


def _due(rule: Definition) -> bool:
    return "NumericGreaterThanEquals" in rule


def _renews_at(lane: Definition) -> int:
    """The count at which a successor is due."""
    _, compare = _counter(lane)
    (found,) = [rule["NumericGreaterThanEquals"] for rule in lane["States"][compare]["Choices"] if _due(rule)]
    return int(found)


def _gives_up_at(lane: Definition) -> int:
    """The count at which the lane fails, whichever way it goes."""
    states = lane["States"]
    rules = [rule for state in states.values() for rule in state.get("Choices", []) if _due(rule)]
    (found,) = {rule["NumericGreaterThanEquals"] for rule in rules if states[rule["Next"]]["Type"] == "Fail"}
    return int(found)


def _reached(line: Definition, name: str) -> set[str]:
    """The states that a state may lead to, in any number of steps."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        for target, _ in targets(line["States"][ahead.pop()]):
            if target not in found:
                found.add(target)
                ahead.append(target)
    return found


def _weight(name: str, state: Definition, kinds: int | None = None) -> int:
    if state["Type"] == "Task":
        return task_events(name, state, kinds=kinds)
    return 1 if state["Type"] == "Fail" else 2


class _Longest:
    """The longest path that ends where the count begins, or the lane ends, or one of the states `beyond` begins."""

    def __init__(
        self,
        lane: Definition,
        count: str,
        compare: str,
        *,
        due: bool,
        beyond: Set[str] = frozenset(),
        kinds: int | None = None,
    ) -> None:
        self._states = lane["States"]
        self._count = count
        self._kinds = kinds
        self._skipped = set(beyond)
        if not due:
            self._skipped |= {rule["Next"] for rule in self._states[compare]["Choices"] if _due(rule)}
        self._known: dict[str, int] = {}
        self._open: set[str] = set()

    def after(self, name: str) -> int:
        """Returns the events of a state and of the longest path from it to the next count."""
        state = self._states[name]
        if state["Type"] == "Fail":
            return 0  # the end of the lane, counted once
        following = [target for target, _ in targets(state) if target not in self._skipped]
        return _weight(name, state, self._kinds) + max((self.path(target) for target in following), default=0)

    def path(self, name: str) -> int:
        """Returns the events of the longest path from a state to the next count, 0 for the count itself."""
        if name == self._count:
            return 0
        if name in self._open:
            raise Unbounded(f"{name}: a loop goes through it that counts no passes")
        if name not in self._known:
            self._open.add(name)
            self._known[name] = self.after(name)
            self._open.discard(name)
        return self._known[name]

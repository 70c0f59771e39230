"""Reads from a history which way an execution took: its states, its transitions, and where it failed.

The history is what GetExecutionHistory returns, AWS's as well as ours, of any machine.
Invariant: any list of events is accepted; an event that leads back to no state is left out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Event = Mapping[str, Any]

_ENTERED, _EXITED = "stateEnteredEventDetails", "stateExitedEventDetails"


@dataclass
class Marks:
    """How often each state and each transition between two was taken; `left` are the states that were left, `failed`
    is the one in which the execution failed.
    """

    states: Counter[str] = field(default_factory=Counter)
    ways: Counter[tuple[str, str]] = field(default_factory=Counter)
    left: set[str] = field(default_factory=set)
    failed: str | None = None


def marks(history: Iterable[Event]) -> Marks:
    """Return the marks of an execution, whichever order its history has.

    A branch that is retried begins at its Parallel or Map again.
    """
    counted = Marks()
    by_id: dict[int, Event] = {}
    for event in sorted(history, key=lambda one: int(one["id"])):
        by_id[event["id"]] = event
        if _EXITED in event:
            counted.left.add(event[_EXITED]["name"])
        if _ENTERED in event:
            name = event[_ENTERED]["name"]
            counted.states[name] += 1
            before = _owner(by_id, event.get("previousEventId", 0))
            if before is not None:
                counted.ways[before, name] += 1
        if event["type"] in ("ExecutionFailed", "ExecutionTimedOut", "ExecutionAborted"):
            counted.failed = _owner(by_id, event.get("previousEventId", 0))
    return counted


def _owner(by_id: Mapping[int, Event], at: int) -> str | None:
    """Return the state that an event belongs to: the nearest before it that was entered or left."""
    while at in by_id:
        event = by_id[at]
        details = event.get(_ENTERED) or event.get(_EXITED)
        if details is not None:
            return str(details["name"])
        at = event.get("previousEventId", 0)
    return None

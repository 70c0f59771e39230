"""Which way an execution took, read from its history alone, AWS's as well as ours.

Decides which states were entered, how often each way between two was taken, and where it failed. It knows no picture.
Invariant: it takes the history of any machine; what it cannot follow is left out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Event = Mapping[str, Any]

_ENTERED, _EXITED = "stateEnteredEventDetails", "stateExitedEventDetails"


@dataclass
class Marks:
    """Visits of states and of ways between two, by their names; `failed` is where the execution ended by an error."""

    states: Counter[str] = field(default_factory=Counter)
    ways: Counter[tuple[str, str]] = field(default_factory=Counter)
    left: set[str] = field(default_factory=set)
    failed: str | None = None


def marks(history: Iterable[Event]) -> Marks:
    """Return the marks of an execution, whichever way round its history is; a retried branch begins at its Parallel or
    Map again."""
    found = Marks()
    by_id: dict[int, Event] = {}
    for event in sorted(history, key=lambda one: int(one["id"])):
        by_id[event["id"]] = event
        if _EXITED in event:
            found.left.add(event[_EXITED]["name"])
        if _ENTERED in event:
            name = event[_ENTERED]["name"]
            found.states[name] += 1
            before = _owner(by_id, event.get("previousEventId", 0))
            if before is not None:
                found.ways[before, name] += 1
        if event["type"] in ("ExecutionFailed", "ExecutionTimedOut", "ExecutionAborted"):
            found.failed = _owner(by_id, event.get("previousEventId", 0))
    return found


def _owner(by_id: Mapping[int, Event], at: int) -> str | None:
    """Return the state that the event on the chain belongs to: the nearest that was entered or left."""
    while at in by_id:
        event = by_id[at]
        details = event.get(_ENTERED) or event.get(_EXITED)
        if details is not None:
            return str(details["name"])
        at = event.get("previousEventId", 0)
    return None

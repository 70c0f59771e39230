"""Finds the lane of each event of an execution's history, from AWS or from ours.

The states of a lane run one after the other: a lane is a branch of a Parallel, or a place in which iterations of a Map
follow each other. previousEventId shows it: the first state of a branch points to its ParallelStateStarted, that of an
iteration to its MapIterationStarted. Lane A is the first branch of a Parallel that waits before its first Task; the
other branches are B, C … in order. A machine without a Parallel or a Map has only lane B.

    Parallel ── Wait, Task, Wait …      A
             └─ Task, Wait, Task …      B
    Map of five, two at once            A, B: an iteration takes the first free lane

Invariant: a lane never has two branches or iterations that run at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Event = Mapping[str, Any]

_CONTAINERS = ("ParallelState", "MapState", "MapRun", "MapIteration", "Execution")
_ITERATION_OVER = frozenset({"MapIterationSucceeded", "MapIterationFailed", "MapIterationAborted"})
ONLY_LANE = "B"
"""The lane of a machine without a Parallel or a Map."""


def with_lanes(history: Sequence[Event]) -> Iterator[tuple[Event, str]]:
    """Yields each event with its lane, "" if it belongs to none."""
    if not any(event["type"] in ("ParallelStateStarted", "MapIterationStarted") for event in history):
        for event in history:
            yield event, "" if _is_outside(event) else ONLY_LANE
        return
    branches = _branches(history)
    names = _lane_names(history, branches)
    for event in history:
        yield event, names.get(branches.get(event["id"], 0), "")


def _is_outside(event: Event) -> bool:
    return bool(event["type"].startswith(_CONTAINERS))


def _branches(history: Sequence[Event]) -> dict[int, int]:
    """Returns the branch of each event that has one: the id of the event that entered the branch's first state.

    For an iteration of a Map it is the id of its MapIterationStarted.
    """
    starts: set[int] = set()
    branches: dict[int, int] = {}
    for event in history:
        number, previous = event["id"], event.get("previousEventId", 0)
        if event["type"] == "ParallelStateStarted":
            starts.add(number)
        elif event["type"] == "MapIterationStarted":
            branches[number] = number
        elif event["type"] in _ITERATION_OVER and previous in branches:
            branches[number] = branches[previous]
        if _is_outside(event):
            continue
        if previous in starts and event["type"].endswith("StateEntered"):
            branches[number] = number
        elif previous in branches:
            branches[number] = branches[previous]
    return branches


def _lane_names(history: Sequence[Event], branches: Mapping[int, int]) -> dict[int, str]:
    """Returns the lane of each branch."""
    waits: dict[int, bool] = {}
    for event in history:
        if event["id"] in branches and event["type"] in ("WaitStateEntered", "TaskStateEntered"):
            waits.setdefault(branches[event["id"]], event["type"] == "WaitStateEntered")
    named: dict[int, str] = {}
    last: dict[int, int] = {}  # the last place after A that a Parallel has assigned
    has_a: set[int] = set()
    running: dict[int, int] = {}  # the place of each iteration that runs
    for event in history:
        number = event["id"]
        if event["type"] in _ITERATION_OVER:
            running.pop(branches.get(number, 0), None)
        if branches.get(number) != number:
            continue
        parallel = event.get("previousEventId", 0)
        if event["type"] == "MapIterationStarted":
            taken = set(running.values())
            place = running[number] = next(at for at in range(len(taken) + 1) if at not in taken)
        elif waits.get(number) and parallel not in has_a:
            has_a.add(parallel)
            place = 0
        else:
            place = last[parallel] = last.get(parallel, 0) + 1
        named[number] = _letters(place)
    return named


def _letters(place: int) -> str:
    text = ""
    place += 1
    while place:
        place, letter = divmod(place - 1, 26)
        text = chr(ord("A") + letter) + text
    return text

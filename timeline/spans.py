"""Reads what each lane did and when from an execution's history alone, AWS's as well as ours.

A history is the list that GetExecutionHistory answers with: each event has `id`, `previousEventId`, `type`,
`timestamp` and the details of its type. A lane is recognized by following previousEventId: the first state of a branch
points to its ParallelStateStarted. Lane A is the branch that waits before it has a Task, whatever comes before that;
the others are B, C … in order. A machine without a Parallel has the one lane B.

A Task that calls no function (it starts a successor, say) is no part of what a lane is there for, and is left out.
It knows nothing of connections: a Task that runs may still be connecting. Invariant: rows are in the order of the
history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Event = Mapping[str, Any]

_TASK_STARTED = frozenset({"TaskStarted", "LambdaFunctionStarted"})
_TASK_ENDED = {
    "TaskSucceeded": "taskSucceededEventDetails",
    "TaskFailed": "taskFailedEventDetails",
    "TaskTimedOut": "taskTimedOutEventDetails",
    "TaskStartFailed": "taskStartFailedEventDetails",
    "LambdaFunctionSucceeded": "lambdaFunctionSucceededEventDetails",
    "LambdaFunctionFailed": "lambdaFunctionFailedEventDetails",
    "LambdaFunctionTimedOut": "lambdaFunctionTimedOutEventDetails",
    "TaskStateAborted": "",
}
_WAIT_ENDED = frozenset({"WaitStateExited", "WaitStateAborted"})


@dataclass(frozen=True, slots=True)
class Row:
    """What a lane did: wait_started, wait_ended, task_started or task_ended; `error` names how a Task failed."""

    at_ms: int
    lane: str
    what: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a lane; `kind` is "wait" or "task"; `to_ms` is None while it lasts."""

    lane: str
    kind: str
    from_ms: int
    to_ms: int | None
    error: str = ""


def timestamp_ms(event: Event) -> int:
    """Returns an event's time in milliseconds, be it our integer, boto3's datetime, or ISO text or seconds."""
    value = event["timestamp"]
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, str):
        return round(datetime.fromisoformat(value).timestamp() * 1000)
    if isinstance(value, float):
        return round(value * 1000)
    return int(value)


def rows(history: Iterable[Event]) -> list[Row]:
    """Returns what the lanes did, times in milliseconds from the execution's start."""
    lane_rows: list[Row] = []
    running: set[str] = set()
    start_ms: int | None = None
    for event, lane in _with_lanes(list(history)):
        at_ms = timestamp_ms(event)
        start_ms = at_ms if start_ms is None else start_ms
        what, error = _reading(event)
        if not lane or not what:
            continue
        if what == "task_ended":
            if lane not in running:
                continue  # TaskStateAborted follows TaskFailed where nobody caught it: the Task has ended already
            running.discard(lane)
        elif what == "task_started":
            running.add(lane)
        lane_rows.append(Row(at_ms - start_ms, lane, what, error))
    return lane_rows


def spans(lane_rows: Iterable[Row]) -> list[Span]:
    """Returns each Wait and each attempt of a Task as a span, in the order in which they began."""
    done: list[Span] = []
    open_rows: dict[tuple[str, str], int] = {}
    for row in lane_rows:
        kind, _, verb = row.what.partition("_")
        key = (row.lane, kind)
        if verb == "started":
            open_rows[key] = len(done)
            done.append(Span(row.lane, kind, row.at_ms, None))
        elif key in open_rows:
            at = open_rows.pop(key)
            done[at] = Span(row.lane, kind, done[at].from_ms, row.at_ms, row.error)
    return done


def transitions(history: Iterable[Event]) -> int:
    """Returns the state transitions that are billed: every state entered, and every retry."""
    entered = 0
    attempts = 0
    tasks_entered = 0
    for event in history:
        kind = event["type"]
        entered += kind.endswith("StateEntered")
        tasks_entered += kind == "TaskStateEntered"
        attempts += kind in ("TaskScheduled", "LambdaFunctionScheduled")
    return entered + max(0, attempts - tasks_entered)


def _reading(event: Event) -> tuple[str, str]:
    kind = event["type"]
    if kind == "WaitStateEntered":
        return "wait_started", ""
    if kind in _WAIT_ENDED:
        return "wait_ended", ""
    if kind in _TASK_STARTED:
        details = event.get("taskStartedEventDetails", {})
        return ("task_started", "") if details.get("resourceType", "lambda") == "lambda" else ("", "")
    if kind in _TASK_ENDED:
        return "task_ended", event.get(_TASK_ENDED[kind], {}).get("error", "")
    return "", ""


def _with_lanes(history: list[Event]) -> Iterator[tuple[Event, str]]:
    """Yields each event with its lane, "" where it belongs to none."""
    if not any(event["type"] == "ParallelStateStarted" for event in history):
        for event in history:
            yield event, "" if _is_outside(event) else "B"
        return
    branches = _branches(history)
    letters = _letters(history, branches)
    for event in history:
        yield event, letters.get(branches.get(event["id"], 0), "")


def _is_outside(event: Event) -> bool:
    return bool(event["type"].startswith(("ParallelState", "Execution")))


def _branches(history: list[Event]) -> dict[int, int]:
    """Returns the branch of each event that has one: the id of the event that entered the branch's first state."""
    starts: set[int] = set()
    branches: dict[int, int] = {}
    for event in history:
        number, previous = event["id"], event.get("previousEventId", 0)
        if event["type"] == "ParallelStateStarted":
            starts.add(number)
        if _is_outside(event):
            continue
        if previous in starts and event["type"].endswith("StateEntered"):
            branches[number] = number
        elif previous in branches:
            branches[number] = branches[previous]
    return branches


def _letters(history: list[Event], branches: Mapping[int, int]) -> dict[int, str]:
    """Returns the letter of each branch: of those of a Parallel, A is the first one that waits before it has a Task."""
    waits: dict[int, bool] = {}
    for event in history:
        if event["id"] in branches and event["type"] in ("WaitStateEntered", "TaskStateEntered"):
            waits.setdefault(branches[event["id"]], event["type"] == "WaitStateEntered")
    letters: dict[int, str] = {}
    taken: dict[int, str] = {}  # the last letter of a Parallel after A; and whether A is taken, under its negative
    for event in history:
        number, parallel = event["id"], event.get("previousEventId", 0)
        if branches.get(number) != number:
            continue
        if waits.get(number) and -parallel not in taken:
            letters[number] = taken[-parallel] = "A"
        else:
            letters[number] = taken[parallel] = chr(ord(taken.get(parallel, "A")) + 1)
    return letters

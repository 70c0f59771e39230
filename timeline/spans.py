"""Reads from an execution's history alone, AWS's or ours, what each lane did and when.

A history is GetExecutionHistory's list: each event has `id`, `previousEventId`, `type`, `timestamp` and the details of
its type. It shows no connections: a running Task may still be connecting. Invariant: rows are in the order of the
history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from timeline.lanes import Event, with_lanes

_FUNCTION_STARTED = "LambdaFunctionStarted"
_TASK_STARTED = frozenset({"TaskStarted", _FUNCTION_STARTED, "ActivityStarted"})
_TASK_ENDED = frozenset(
    [f"{kind}{end}" for kind in ("Task", "LambdaFunction", "Activity") for end in ("Succeeded", "Failed", "TimedOut")]
    + ["TaskStartFailed", "TaskStateAborted"]
)
_WAIT_ENDED = frozenset({"WaitStateExited", "WaitStateAborted"})


@dataclass(frozen=True, slots=True)
class Row:
    """What a lane did: wait_started, wait_ended, task_started or task_ended; `error` is a failed Task's error."""

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
    """Returns an event's time in milliseconds, from our integer, boto3's datetime, ISO text or seconds."""
    value = event["timestamp"]
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, str):
        return round(datetime.fromisoformat(value).timestamp() * 1000)
    if isinstance(value, float):
        return round(value * 1000)
    return int(value)


def rows(history: Iterable[Event]) -> list[Row]:
    """Returns what the lanes did, times in milliseconds from the execution's start.

    If any Task calls a function, only such Tasks count: a Task that starts a successor is not a lane's work.
    """
    events = list(history)
    lane_rows: list[Row] = []
    running: set[str] = set()
    start_ms: int | None = None
    only_functions = calls_functions(events)
    for event, lane in with_lanes(events):
        at_ms = timestamp_ms(event)
        start_ms = at_ms if start_ms is None else start_ms
        what, error = _row_of_event(event, only_functions)
        if not lane or not what:
            continue
        if what == "task_ended":
            if lane not in running:
                continue  # TaskStateAborted follows an uncaught TaskFailed, by which the Task has ended already
            running.discard(lane)
        elif what == "task_started":
            running.add(lane)
        lane_rows.append(Row(at_ms - start_ms, lane, what, error))
    return lane_rows


def calls_functions(history: Iterable[Event]) -> bool:
    """Returns whether a Task of the history calls a function."""
    return any(_calls_function(event) for event in history)


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
    kinds: list[str] = [event["type"] for event in history]
    attempts = sum(kind in ("TaskScheduled", "LambdaFunctionScheduled") for kind in kinds)
    return sum(kind.endswith("StateEntered") for kind in kinds) + max(0, attempts - kinds.count("TaskStateEntered"))


def _calls_function(event: Event) -> bool:
    """Returns whether an event starts a call of a function; one without details counts as such."""
    if event["type"] != "TaskStarted":
        return bool(event["type"] == _FUNCTION_STARTED)
    return bool(event.get("taskStartedEventDetails", {}).get("resourceType", "lambda") == "lambda")


def _row_of_event(event: Event, only_functions: bool) -> tuple[str, str]:
    kind = event["type"]
    if kind == "WaitStateEntered":
        return "wait_started", ""
    if kind in _WAIT_ENDED:
        return "wait_ended", ""
    if kind in _TASK_STARTED:
        return ("task_started", "") if _calls_function(event) or not only_functions else ("", "")
    if kind in _TASK_ENDED:
        return "task_ended", event.get(f"{kind[:1].lower()}{kind[1:]}EventDetails", {}).get("error", "")
    return "", ""

"""Reads from an execution's history alone, AWS's or ours, what each lane did and when.

A history is GetExecutionHistory's list: each event has `id`, `previousEventId`, `type`, `timestamp` and the details of
its type. It shows no connections: a running Task may still be connecting. Rows are in its order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Event = Mapping[str, Any]

_CONTAINERS = ("ParallelState", "MapState", "MapRun", "MapIteration", "Execution")
_ITERATION_OVER = frozenset({"MapIterationSucceeded", "MapIterationFailed", "MapIterationAborted"})
ONLY_LANE = "B"
"""The lane of a machine without a Parallel or a Map."""


def with_lanes(history: Sequence[Event]) -> Iterator[tuple[Event, str]]:
    """Yields each event with its lane, "" if it belongs to none.

    The states of a lane run one after the other: a lane is a branch of a Parallel, or a place in which iterations of a
    Map follow each other. previousEventId shows it: the first state of a branch points to its ParallelStateStarted,
    that of an iteration to its MapIterationStarted. Lane A is the first branch of a Parallel that waits before its
    first Task; the other branches are B, C … in order. A machine without a Parallel or a Map has only lane B.

        Parallel ── Wait, Task, Wait …      A
                 └─ Task, Wait, Task …      B
        Map of five, two at once            A, B: an iteration takes the first free lane

    Invariant: a lane never has two branches or iterations that run at the same time.
    """
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

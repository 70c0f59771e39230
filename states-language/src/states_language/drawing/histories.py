"""Reads each attempt of a Task, and the path of the execution, from its history alone.

Call #1  ━━━━━                     2.000 s  States.Timeout, tried again after 1.000 s
Call #2       ···━━━━━             2.000 s  States.Timeout, caught: Fallback
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from states_language.history import ENTERED, EXITED, Event, details_of

WAITING, RUNNING, FAILED = "·", "━", "╳"
ASCII = str.maketrans({WAITING: ".", RUNNING: "=", FAILED: "x"})
"""Replaces the marks for a terminal that knows ASCII only: `text.translate(ASCII)`."""
_BEGIN_TYPES = frozenset({"TaskScheduled", "LambdaFunctionScheduled", "ActivityScheduled"})
_ENDS = ("Failed", "TimedOut", "Succeeded", "StateAborted")
_TASK_PREFIXES = ("Task", "LambdaFunction", "Activity")
_LABEL = 28


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a Task. Times count from the execution's start; `to_ms` is None while the attempt runs.

    `error` is "" if it did not fail; `then` describes the next step; the wait before the attempt began at `rest_ms`.
    """

    state: str
    number: int
    from_ms: int
    to_ms: int | None
    error: str
    then: str
    rest_ms: int


def attempts(history: Sequence[Event]) -> list[Attempt]:
    """Return every attempt, in the order in which they began."""
    start_ms = history[0]["timestamp"] if history else 0
    after: dict[int, list[Event]] = {}
    for event in history:
        after.setdefault(event.get("previousEventId", 0), []).append(event)
    visits = (_attempts_of_visit(event, after, start_ms) for event in history if event["type"] == "TaskStateEntered")
    return sorted((attempt for visit in visits for attempt in visit), key=lambda attempt: attempt.from_ms)


def _attempts_of_visit(entered: Event, after: dict[int, list[Event]], start_ms: int) -> Iterator[Attempt]:
    """Yield the attempts of one visit of a Task; after a redrive they begin again where it was entered."""
    number = 0
    for first in after.get(entered["id"], ()):
        begun: Event | None = first
        rest_ms = first["timestamp"] - start_ms
        while begun is not None and begun["type"] in _BEGIN_TYPES:
            number += 1
            over = _find_end(begun, after)
            following = None if over is None else _next_event(over, after)
            to_ms = None if over is None else over["timestamp"] - start_ms
            error, then = ("", "") if over is None else (_error_name(over), _describe_next_step(over, following, after))
            yield Attempt(_state_name(entered), number, begun["timestamp"] - start_ms, to_ms, error, then, rest_ms)
            begun, rest_ms = following, to_ms or 0


def _find_end(begun: Event, after: dict[int, list[Event]]) -> Event | None:
    """Return the event that ended an attempt; None while it runs."""
    event = _next_event(begun, after)
    while event is not None and event["type"].startswith(_TASK_PREFIXES) and not event["type"].endswith(_ENDS):
        event = _next_event(event, after)
    return event


def _describe_next_step(over: Event, following: Event | None, after: dict[int, list[Event]]) -> str:
    if over["type"] == "TaskStateAborted":
        return "stopped from outside"
    if over["type"].endswith("Succeeded"):
        return "succeeded"
    if following is not None and following["type"] in _BEGIN_TYPES:
        return f"tried again after {(following['timestamp'] - over['timestamp']) / 1000:.3f} s"
    if following is not None and following["type"] == "TaskStateExited":
        reached = _next_event(following, after)
        return f"caught: {_state_name(reached)}" if reached and reached["type"].endswith("StateEntered") else "caught"
    return "nobody caught it"


def _next_event(event: Event, after: dict[int, list[Event]]) -> Event | None:
    return next(iter(after.get(event["id"], ())), None)


def _state_name(entered: Event) -> str:
    return str(entered.get("stateEnteredEventDetails", {}).get("name", "?"))


def _error_name(over: Event) -> str:
    if over["type"].endswith("Succeeded"):
        return ""
    default = "States.Timeout" if over["type"].endswith("TimedOut") else ""
    return str(details_of(over).get("error") or default)


def draw(found: Sequence[Attempt], until_ms: int, width: int) -> list[str]:
    """Return a line for each attempt: its bar of `width` columns, its length, and the next step."""
    lines = []
    for attempt in found:
        label = f"{attempt.state} #{attempt.number}"
        label = label if len(label) < _LABEL else f"{label[: _LABEL - 6]}… #{attempt.number}"
        to_ms = until_ms if attempt.to_ms is None else attempt.to_ms
        bar = _bar(attempt.rest_ms, attempt.from_ms, to_ms, until_ms, width, FAILED if attempt.error else RUNNING)
        said = ", ".join(filter(None, (attempt.error, attempt.then))) or "running"
        lines.append(f"{label:<{_LABEL}} {bar} {(to_ms - attempt.from_ms) / 1000:>9.3f} s  {said}")
    return lines


def _bar(rest_ms: int, from_ms: int, to_ms: int, until_ms: int, width: int, last: str) -> str:
    """Return the bar of an attempt: the wait from `rest_ms` on, then the attempt; `last` marks how it ended."""
    whole = max(1, until_ms)
    rest, begin = (min(at * width // whole, width - 1) for at in (rest_ms, from_ms))
    end = min(max(begin + 1, -(-to_ms * width // whole)), width)
    bar = " " * rest + WAITING * (begin - rest) + RUNNING * (end - begin - 1) + last
    return bar.ljust(width)


@dataclass
class Marks:
    """How often each state and each transition between two was taken; `ended` says how often a state was left for no
    other, `failed` is the one in which the execution failed.
    """

    states: Counter[str] = field(default_factory=Counter)
    ways: Counter[tuple[str, str]] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    failed: str | None = None


def marks(history: Iterable[Mapping[str, Any]]) -> Marks:
    """Return the marks of an execution; its history may begin with the first event or the last.

    A branch that is retried begins at its Parallel or Map again.
    """
    counted = Marks()
    by_id: dict[int, Mapping[str, Any]] = {}
    for event in sorted(history, key=lambda one: int(one["id"])):
        by_id[event["id"]], previous = event, event.get("previousEventId", 0)
        if EXITED in event:
            counted.ended[event[EXITED]["name"]] += 1
        if ENTERED in event:
            name = event[ENTERED]["name"]
            counted.states[name] += 1
            before = _state_of_event(by_id, previous)
            if before is not None:
                counted.ways[before, name] += 1
                counted.ended[before] -= EXITED in by_id[previous]
        if event["type"] in ("ExecutionFailed", "ExecutionTimedOut", "ExecutionAborted"):
            counted.failed = _state_of_event(by_id, previous)
        elif event["type"] == "ExecutionRedriven":
            counted.failed = None
    return counted


def _state_of_event(by_id: Mapping[int, Mapping[str, Any]], at: int) -> str | None:
    """Return the state that an event belongs to: the nearest one that was entered or left before it."""
    while at in by_id:
        event = by_id[at]
        details = event.get(ENTERED) or event.get(EXITED)
        if details is not None:
            return str(details["name"])
        at = event.get("previousEventId", 0)
    return None

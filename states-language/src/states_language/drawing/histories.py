"""Reads each attempt of a Task, and the way of the execution, from its history alone.

Call #1  ━━━━━                     2.000 s  States.Timeout, tried again after 1.000 s
Call #2       ···━━━━━             2.000 s  States.Timeout, caught: Fallback
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from states_language.history import ENTERED, EXITED, Event, details_of

WAITING, RUNNING, FAILED = "·", "━", "╳"
ASCII = str.maketrans({WAITING: ".", RUNNING: "=", FAILED: "x"})
"""Replaces the marks for a terminal that knows ASCII only: `text.translate(ASCII)`."""
_BEGUN = frozenset({"TaskScheduled", "LambdaFunctionScheduled", "ActivityScheduled"})
_ENDS = ("Failed", "TimedOut", "Succeeded", "StateAborted")
_OF_A_TASK = ("Task", "LambdaFunction", "Activity")
_LABEL = 28


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a Task; times count from the execution's start, `to_ms` is None while it lasts.

    `error` is "" if it did not fail; `then` says what followed.
    """

    state: str
    number: int
    from_ms: int
    to_ms: int | None
    error: str
    then: str


def attempts(history: Sequence[Event]) -> list[Attempt]:
    """Return every attempt, in the order in which they began."""
    start_ms = history[0]["timestamp"] if history else 0
    after: dict[int, list[Event]] = {}
    for event in history:
        after.setdefault(event.get("previousEventId", 0), []).append(event)
    found: list[Attempt] = []
    for event in history:
        if event["type"] == "TaskStateEntered":
            found += _visit(event, after, start_ms)
    return sorted(found, key=lambda attempt: attempt.from_ms)


def _visit(entered: Event, after: dict[int, list[Event]], start_ms: int) -> list[Attempt]:
    """Return the attempts of one visit of a Task."""
    name = _name(entered)
    found: list[Attempt] = []
    begun = _next(entered, after)
    while begun is not None and begun["type"] in _BEGUN:
        over = _ended(begun, after)
        following = None if over is None else _next(over, after)
        found.append(
            Attempt(
                state=name,
                number=len(found) + 1,
                from_ms=begun["timestamp"] - start_ms,
                to_ms=None if over is None else over["timestamp"] - start_ms,
                error="" if over is None else _error(over),
                then="" if over is None else _then(over, following, after),
            )
        )
        begun = following
    return found


def _ended(begun: Event, after: dict[int, list[Event]]) -> Event | None:
    """Return the event that ended an attempt: None while it lasts."""
    event = _next(begun, after)
    while event is not None and event["type"].startswith(_OF_A_TASK) and not event["type"].endswith(_ENDS):
        event = _next(event, after)
    return event


def _then(over: Event, following: Event | None, after: dict[int, list[Event]]) -> str:
    if over["type"] == "TaskStateAborted":
        return "stopped from outside"
    if over["type"].endswith("Succeeded"):
        return "succeeded"
    if following is not None and following["type"] in _BEGUN:
        return f"tried again after {(following['timestamp'] - over['timestamp']) / 1000:.3f} s"
    if following is not None and following["type"] == "TaskStateExited":
        reached = _next(following, after)
        return f"caught: {_name(reached)}" if reached and reached["type"].endswith("StateEntered") else "caught"
    return "nobody caught it"


def _next(event: Event, after: dict[int, list[Event]]) -> Event | None:
    return next(iter(after.get(event["id"], ())), None)


def _name(entered: Event) -> str:
    return str(entered.get("stateEnteredEventDetails", {}).get("name", "?"))


def _error(over: Event) -> str:
    if over["type"].endswith("Succeeded"):
        return ""
    default = "States.Timeout" if over["type"].endswith("TimedOut") else ""
    return str(details_of(over).get("error") or default)


def draw(found: Sequence[Attempt], until_ms: int, width: int) -> list[str]:
    """Return a line for each attempt: its bar of `width` columns, its length, and what followed."""
    lines = []
    ended: dict[str, int] = {}
    for attempt in found:
        label = f"{attempt.state} #{attempt.number}"
        label = label if len(label) < _LABEL else f"{label[: _LABEL - 6]}… #{attempt.number}"
        to_ms = until_ms if attempt.to_ms is None else attempt.to_ms
        rest_ms = ended.get(attempt.state, attempt.from_ms) if attempt.number > 1 else attempt.from_ms
        ended[attempt.state] = to_ms
        bar = _bar(rest_ms, attempt.from_ms, to_ms, until_ms, width, FAILED if attempt.error else RUNNING)
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
    """How often each state and each transition between two was taken; `left` are the states that were left, `failed`
    is the one in which the execution failed.
    """

    states: Counter[str] = field(default_factory=Counter)
    ways: Counter[tuple[str, str]] = field(default_factory=Counter)
    left: set[str] = field(default_factory=set)
    failed: str | None = None


def marks(history: Iterable[Mapping[str, Any]]) -> Marks:
    """Return the marks of an execution; its history may begin with the first event or the last.

    A branch that is retried begins at its Parallel or Map again.
    """
    counted = Marks()
    by_id: dict[int, Mapping[str, Any]] = {}
    for event in sorted(history, key=lambda one: int(one["id"])):
        by_id[event["id"]] = event
        if EXITED in event:
            counted.left.add(event[EXITED]["name"])
        if ENTERED in event:
            name = event[ENTERED]["name"]
            counted.states[name] += 1
            before = _owner(by_id, event.get("previousEventId", 0))
            if before is not None:
                counted.ways[before, name] += 1
        if event["type"] in ("ExecutionFailed", "ExecutionTimedOut", "ExecutionAborted"):
            counted.failed = _owner(by_id, event.get("previousEventId", 0))
    return counted


def _owner(by_id: Mapping[int, Mapping[str, Any]], at: int) -> str | None:
    """Return the state that an event belongs to: the nearest one that was entered or left before it."""
    while at in by_id:
        event = by_id[at]
        details = event.get(ENTERED) or event.get(EXITED)
        if details is not None:
            return str(details["name"])
        at = event.get("previousEventId", 0)
    return None

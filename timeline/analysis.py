"""Finds lanes, gaps, limits and billed transitions of a machine's executions, from their histories alone.

A running Task counts as a connection, because the history shows no more of it; it may still have been connecting. A gap
is a time without such a Task between the first Task and the end. Times count from the start of the first execution.
Invariant: it reads no clock; a running execution is analysed as of its last event, or as of `now_ms`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from timeline import spans
from timeline.coverage import Connection, Gap, connected_percent, gaps, overlap_ms
from timeline.spans import Event, Row, Span, timestamp_ms

EVENTS_LIMIT = 25_000
"""The events of a history at which Step Functions ends a Standard execution (Step Functions quotas)."""
_ENDS = {
    "ExecutionSucceeded": "SUCCEEDED",
    "ExecutionFailed": "FAILED",
    "ExecutionTimedOut": "TIMED_OUT",
    "ExecutionAborted": "ABORTED",
}
RUNNING = "RUNNING"
SUCCEEDED = "succeeded"
"""The name for the end of a Task that raised no error."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution; `to_ms` is None while it runs.

    `limit_in_ms` is the time from its last event until it reaches the limit of events, at the rate of the later half of
    its time; None if it has ended or its rate is not known.
    """

    name: str
    status: str
    from_ms: int
    to_ms: int | None
    events: int
    transitions: int
    limit_in_ms: int | None


@dataclass(frozen=True, slots=True)
class Analysis:
    """The findings; `tasks` are the attempts of Tasks, as connections. `until_ms` is the end of the histories.

    `functions` are those of the tasks that call Lambda functions.
    """

    executions: list[Execution]
    rows: list[Row]
    spans: list[Span]
    tasks: list[Connection]
    functions: list[Connection]
    gaps: list[Gap]
    overlap_ms: int
    until_ms: int

    @property
    def transitions(self) -> int:
        """Returns the state transitions that are billed."""
        return sum(execution.transitions for execution in self.executions)

    @property
    def running_ms(self) -> int:
        """Returns how long functions ran in sum; time in which two ran at once counts twice."""
        return sum(function.to_ms - function.from_ms for function in self.functions)

    @property
    def task_percent(self) -> float | None:
        """Returns the share of the time since the first Task in which a Task ran; None if none ever ran."""
        is_none = not self.tasks or self.until_ms <= min(task.from_ms for task in self.tasks)
        return None if is_none else connected_percent(self.tasks, self.gaps)


def analyse(histories: Sequence[tuple[str, Sequence[Event]]], now_ms: int | None = None) -> Analysis:
    """Returns the findings about executions, each given by its name and its whole history."""
    ordered = sorted(histories, key=lambda named: timestamp_ms(named[1][0]))
    origin_ms = timestamp_ms(ordered[0][1][0])
    executions, all_rows, all_spans, of_functions = [], [], [], []
    until_ms = 0
    for name, history in ordered:
        from_ms = timestamp_ms(history[0]) - origin_ms
        execution = _execution(name, history, from_ms)
        rows = [replace(row, at_ms=row.at_ms + from_ms) for row in spans.rows(history)]
        end_ms = execution.to_ms
        if end_ms is None:
            last_ms = timestamp_ms(history[-1]) - origin_ms
            end_ms = last_ms if now_ms is None else max(last_ms, now_ms - origin_ms)
        until_ms = max(until_ms, end_ms)
        executions.append(execution)
        all_rows += rows
        own = [_close_span(span, execution, end_ms) for span in spans.spans(rows)]
        all_spans += own
        of_functions += own if spans.calls_functions(history) else []
    tasks = [_connection_of_task(span, until_ms) for span in all_spans if span.kind == "task"]
    functions = [_connection_of_task(span, until_ms) for span in of_functions if span.kind == "task"]
    if all(execution.status == "SUCCEEDED" for execution in executions[-1:]) and tasks:
        # An execution that has succeeded needs no further Task.
        until_ms = max(task.to_ms for task in tasks)
    return Analysis(
        executions=executions,
        rows=sorted(all_rows, key=lambda row: row.at_ms),
        spans=all_spans,
        tasks=tasks,
        functions=functions,
        gaps=gaps(tasks, until_ms),
        overlap_ms=overlap_ms(tasks),
        until_ms=until_ms,
    )


def _execution(name: str, history: Sequence[Event], from_ms: int) -> Execution:
    status, limit_in_ms = _ENDS.get(history[-1]["type"], RUNNING), None
    to_ms: int | None = from_ms + timestamp_ms(history[-1]) - timestamp_ms(history[0])
    if status == RUNNING:
        to_ms, limit_in_ms = None, _limit_in_ms(history)
    return Execution(name, status, from_ms, to_ms, len(history), spans.transitions(history), limit_in_ms)


def _limit_in_ms(history: Sequence[Event]) -> int | None:
    first_ms, last_ms = timestamp_ms(history[0]), timestamp_ms(history[-1])
    half_ms = (first_ms + last_ms) // 2
    later = [event for event in history if timestamp_ms(event) > half_ms]
    if last_ms == half_ms or not later:
        return None
    return max(0, EVENTS_LIMIT - len(history)) * (last_ms - half_ms) // len(later)


def _close_span(span: Span, execution: Execution, end_ms: int) -> Span:
    """Returns the span, ended with its execution: a Task that runs at its time-out gets no event of its own."""
    if span.to_ms is not None or execution.to_ms is None:
        return span
    return replace(span, to_ms=end_ms, error=execution.status)


def _connection_of_task(span: Span, until_ms: int) -> Connection:
    if span.to_ms is None:
        return Connection(span.lane, span.from_ms, until_ms, RUNNING)
    return Connection(span.lane, span.from_ms, span.to_ms, span.error or SUCCEEDED)


_SECONDS_BELOW = 100_000_000_000
_LAST_MS = 253_402_300_799_999  # of the year 9999


class HistoryError(Exception):
    """The input is no history, or an incomplete one; the message says what is wrong or missing."""


def read_page(answer: object) -> list[Event]:
    """Returns the events of one answer, oldest first; raises HistoryError if it is no such answer."""
    events = answer.get("events") if isinstance(answer, Mapping) else answer
    if not isinstance(events, list):
        raise HistoryError('it has no list "events", as `aws stepfunctions get-execution-history` prints it')
    if not events:
        raise HistoryError("it has no events")
    for place, event in enumerate(events):
        _check_event(event, f"events[{place}]")
    return sorted((_in_seconds(event) for event in events), key=lambda event: int(event["id"]))


def join_histories(pages: Sequence[tuple[str, Sequence[Event]]]) -> list[list[Event]]:
    """Returns the history of each execution, in the order of their first pages; `pages` are named for messages.

    Raises HistoryError if a page is missing, or belongs to no execution.

    A page belongs to the execution whose events it continues; each ExecutionStarted begins another execution.

        [1 … 1000] [1001 … 1400]            one execution
        [1 … 1000] [1 … 700] [701 … 900]    two: the third page continues the second

    Invariant: a history's events are numbered from 1, without holes and duplicates.
    """
    firsts = [(name, page) for name, page in pages if page[0]["id"] == 1]
    if not firsts:
        raise HistoryError(
            f"{pages[0][0]}: the page with event 1 is missing; this one begins at {pages[0][1][0]['id']}"
        )
    found: list[list[Sequence[Event]]] = []
    waiting: list[Sequence[Event]] = []
    for _, page in pages:
        if page[0]["id"] == 1:
            found.append([page])
        elif len(firsts) == 1 or not found:
            waiting.append(page)
        else:
            found[-1].append(page)
    found[0] += waiting
    return [_join_pages(parts) for parts in found]


def _join_pages(parts: list[Sequence[Event]]) -> list[Event]:
    events: list[Event] = []
    for part in sorted(parts, key=lambda page: int(page[0]["id"])):
        for event in part:
            number, expected = event["id"], len(events) + 1
            if number > expected:
                missing = f"event {expected} is" if number == expected + 1 else f"events {expected} to {number - 1} are"
                raise HistoryError(f"{missing} missing: give every page of the history")
            if number == expected:
                events.append(event)
            elif (event["type"], event["timestamp"]) != (events[number - 1]["type"], events[number - 1]["timestamp"]):
                raise HistoryError(
                    f"event {number} occurs twice with different contents: "
                    "give the histories of one execution at a time"
                )
    return events


def _in_seconds(event: Event) -> Event:
    """Returns the event with whole seconds as a float: only a float shows that the unit is the second."""
    at: Any = event["timestamp"]
    return {**event, "timestamp": float(at)} if isinstance(at, int) and at < _SECONDS_BELOW else event


def _check_event(event: object, where: str) -> None:
    if not isinstance(event, Mapping):
        raise HistoryError(f"{where} is no object")
    if type(event.get("id")) is not int or event["id"] < 1:
        raise HistoryError(f"{where}.id must be a whole number of at least 1")
    if not isinstance(event.get("type"), str):
        raise HistoryError(f"{where}.type must be a text such as ExecutionStarted")
    if type(event.get("previousEventId", 0)) is not int:
        raise HistoryError(f"{where}.previousEventId must be a whole number")
    for name, details in event.items():
        if name.endswith("EventDetails") and not isinstance(details, Mapping):
            raise HistoryError(f"{where}.{name} must be an object")
    try:
        if abs(timestamp_ms(event)) > _LAST_MS:
            raise OverflowError
    except (KeyError, TypeError, ValueError, OverflowError):
        raise HistoryError(f"{where}.timestamp must be an instant: ISO 8601, or seconds since 1970") from None

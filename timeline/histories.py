"""Joins the pages that GetExecutionHistory answered into whole histories.

A page is the object that `aws stepfunctions get-execution-history` prints, or only its list of events, in either order.
A page belongs to the execution whose events it continues; each ExecutionStarted begins another execution.

    [1 … 1000] [1001 … 1400]            one execution
    [1 … 1000] [1 … 700] [701 … 900]    two: the third page continues the second

Invariant: a history's events are numbered from 1, without holes and duplicates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timeline.lanes import Event
from timeline.spans import timestamp_ms

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

"""Records the history of one execution, in the wire shape of GetExecutionHistory.

It numbers and stamps events and counts up to the limit of 25,000. Invariant: ids count from 1, times never go back, and
nothing follows the event that ends the execution.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NotRequired, TypedDict

EVENT_LIMIT = 25_000
"""The most events of one execution; the last of them is its end (AWS Step Functions quotas)."""

ENTERED, EXITED = "stateEnteredEventDetails", "stateExitedEventDetails"

PAYLOAD_LIMIT_BYTES = 262_144
"""The largest input or output in bytes of UTF-8 (AWS Step Functions quotas)."""


class StateEntered(TypedDict):
    """A state and its input, as JSON text."""

    name: str
    input: NotRequired[str]
    inputDetails: NotRequired[dict[str, Any]]


class StateExited(TypedDict):
    """A state, its output as JSON text, and the variables that it assigned."""

    name: str
    output: NotRequired[str]
    outputDetails: NotRequired[dict[str, Any]]
    assignedVariables: NotRequired[dict[str, str]]


_Any = dict[str, Any]


_Details = TypedDict("_Details", {  # noqa: UP013  # as a class it would be three times as long
    "activityFailedEventDetails": _Any, "activityScheduleFailedEventDetails": _Any,
    "activityScheduledEventDetails": _Any, "activityStartedEventDetails": _Any,
    "activitySucceededEventDetails": _Any, "activityTimedOutEventDetails": _Any, "taskFailedEventDetails": _Any,
    "taskScheduledEventDetails": _Any, "taskStartFailedEventDetails": _Any, "taskStartedEventDetails": _Any,
    "taskSubmitFailedEventDetails": _Any, "taskSubmittedEventDetails": _Any, "taskSucceededEventDetails": _Any,
    "taskTimedOutEventDetails": _Any, "executionFailedEventDetails": _Any, "executionStartedEventDetails": _Any,
    "executionSucceededEventDetails": _Any, "executionAbortedEventDetails": _Any,
    "executionTimedOutEventDetails": _Any, "executionRedrivenEventDetails": _Any,
    "mapStateStartedEventDetails": _Any, "mapIterationStartedEventDetails": _Any,
    "mapIterationSucceededEventDetails": _Any, "mapIterationFailedEventDetails": _Any,
    "mapIterationAbortedEventDetails": _Any, "lambdaFunctionFailedEventDetails": _Any,
    "lambdaFunctionScheduleFailedEventDetails": _Any, "lambdaFunctionScheduledEventDetails": _Any,
    "lambdaFunctionStartFailedEventDetails": _Any, "lambdaFunctionSucceededEventDetails": _Any,
    "lambdaFunctionTimedOutEventDetails": _Any, "mapRunStartedEventDetails": _Any,
    "mapRunFailedEventDetails": _Any, "mapRunRedrivenEventDetails": _Any, "evaluationFailedEventDetails": _Any,
}, total=False)  # fmt: skip


class Event(_Details):
    """An event of a history, in the wire shape of GetExecutionHistory; `timestamp` in milliseconds since 1970."""

    timestamp: int
    type: str
    id: int
    previousEventId: int
    stateEnteredEventDetails: NotRequired[StateEntered]
    stateExitedEventDetails: NotRequired[StateExited]


class History:
    """The events of an execution; `on_event` is called with each one right after it was added.

    limit: the most events, None for any number. events_left: how many may still come before the one that ends the
    execution; 0 means full, a negative number no limit. keep: whether `events` keeps them. events_before: how many
    events the execution had before its redrive; `events` has none of these.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        on_event: Callable[[Event], object] | None = None,
        *,
        limit: int | None = EVENT_LIMIT,
        keep: bool = True,
        events_before: int = 0,
    ) -> None:
        self.events: list[Event] = []
        self.count = events_before
        self.events_left = -1 if limit is None else max(0, limit - 1 - self.count)
        self._now_ms = now_ms
        self._keep = keep
        self._on_event = on_event

    def add(
        self,
        kind: str,
        previous_id: int,
        details: dict[str, Any] | None = None,
        key: str | None = None,
        *,
        at_ms: int | None = None,
    ) -> int:
        """Add an event and return its id. `key` names its details if their name is not the type in lower camel case.

        at_ms: when it happened, None for now.
        """
        self.count = event_id = self.count + 1
        self.events_left -= 1
        at_ms = self._now_ms() if at_ms is None else at_ms
        event: Any = {"timestamp": at_ms, "type": kind, "id": event_id, "previousEventId": previous_id}
        if details is not None:
            event[key or _details_key(kind)] = details
        if self._keep:
            self.events.append(event)
        if self._on_event is not None:
            self._on_event(event)
        return event_id


@functools.cache
def _details_key(kind: str) -> str:
    return f"{kind[0].lower()}{kind[1:]}EventDetails"


NOT_TRUNCATED = {"truncated": False}
"""The details that go with every text; nothing writes to them, so all events share them."""

_TRUNCATION_KEYS = {"input": "inputDetails", "output": "outputDetails"}


def payload_details(name: str, text: str) -> dict[str, Any]:
    """Return the two members that carry JSON text in an event's details."""
    return {name: text, _TRUNCATION_KEYS[name]: NOT_TRUNCATED}


def details_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of an event; {} if it has none."""
    return next((value for name, value in event.items() if name.endswith("EventDetails")), {})


def is_within_limit(text: str) -> bool:
    """Return whether JSON text is within the payload limit."""
    return len(text) * 4 <= PAYLOAD_LIMIT_BYTES or utf8_bytes(text) <= PAYLOAD_LIMIT_BYTES


def utf8_bytes(text: str) -> int:
    """Return the length of the text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def failure_details(error: str | None, cause: str | None) -> dict[str, str]:
    """Return the details of a failure, without the members that are None."""
    details = {}
    if error is not None:
        details["error"] = error
    if cause is not None:
        details["cause"] = cause
    return details

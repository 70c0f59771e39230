"""The types of the API's answers; docs/api.md explains each field. An answer may have further fields."""

from typing import Any, NotRequired, TypedDict


class StreamRow(TypedDict):
    """The status of a stream, as the list has it."""

    stream: str
    status: str
    verdict: str
    since_at: str | None
    since_before_at: str | None
    reason: str | None
    execution: str | None
    generation: int
    fence: int
    started_at: str | None
    stop_requested_at: str | None
    ended_at: str | None
    holder: dict[str, Any] | None
    last_event_at: str | None
    events_per_s: float | None
    open_gaps: int
    open_gaps_at_least: bool
    last_error: dict[str, Any] | None
    ids_restarted_at: str | None
    lag_ms: NotRequired[int | None]
    group: NotRequired[str]
    parts: NotRequired[list[dict[str, Any]]]


class Status(StreamRow):
    """The status of a stream, with all that is known."""

    lanes: dict[str, Any]
    cursor: dict[str, Any] | None
    coverage: dict[str, Any] | None
    pace: dict[str, Any]
    counts: dict[str, Any]
    stuck_at_cursor: dict[str, Any] | None
    budget: dict[str, Any] | None
    bill: dict[str, Any] | None
    profile_problem: NotRequired[str]
    delivery: NotRequired[list[dict[str, Any]]]


class Gap(TypedDict):
    """A time without a connection, or in which events are missing."""

    position: NotRequired[str | None]
    from_at: str
    to_at: str | None
    length_ms: int
    cause: str
    state: str
    events: int | None
    repair: NotRequired[dict[str, Any]]
    stream: NotRequired[str]


class Started(TypedDict):
    """The answer to a start."""

    executionArn: str
    startDate: float
    already_running: bool
    streams: NotRequired[dict[str, Any]]
    parts: NotRequired[list[dict[str, Any]]]


class Stopped(TypedDict):
    """The answer to a stop."""

    stream: str
    status: str
    execution: str | None
    ended_at: str | None
    reason: str | None
    stop_requested_at: str | None
    holder: dict[str, Any] | None
    message: str

"""Holds what ListMapRuns and DescribeMapRun report of a Map Run."""

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from states_language.history import Event
from states_language.place import PERIOD_MS, TOO_MANY_EVENTS, Part
from states_language.scheduling.lanes import BATCH_SIZE, Lanes
from states_language.values import compact


class ChildExecution(Protocol):
    """An execution of one item or one batch; `states_language.Execution` documents the members."""

    name: str
    arn: str
    machine_arn: str
    output: Any
    error: str | None
    cause: str | None
    started_ms: int
    stopped_ms: int | None
    redrives: int
    redriven_ms: int | None

    @property
    def input_text(self) -> str: ...
    @property
    def output_text(self) -> str | None: ...
    @property
    def status(self) -> str: ...
    @property
    def event_count(self) -> int: ...
    @property
    def history(self) -> list[Event]: ...
    def redrive_record(self) -> dict[str, Any]: ...


class RunningExecution(Protocol):
    """An execution that this process runs."""

    arn: str
    stopped_ms: int | None

    def stop(self, error: str | None = None, cause: str | None = None, *, unwinds: bool = True) -> None: ...
    def unwind(self) -> None: ...


def unwind_some(ended: deque[RunningExecution], lanes: Lanes | None) -> None:
    """Unwind the executions: all of them, or in lanes a few, and a few in each of the next passes."""
    for _ in range(len(ended) if lanes is None else min(BATCH_SIZE, len(ended))):
        ended.popleft().unwind()
    if lanes is not None and ended:
        lanes.call_in_batches(functools.partial(unwind_some, ended, lanes), BATCH_SIZE)


class FormerExecution:
    """An execution of a Map Run from before a redrive.

    kept: what `left` returned. part: where the execution stood. pending: whether it waits to be redriven.
    """

    def __init__(self, kept: dict[str, Any], machine_arn: str, input_: Any) -> None:
        self.kept = kept
        self.name: str = kept["name"]
        self.arn: str = kept["arn"]
        self.machine_arn, self._input = machine_arn, input_
        self.output: Any = kept["output"]
        self.error: str | None = kept["error"]
        self.cause: str | None = kept["cause"]
        self.started_ms: int = kept["started_ms"]
        self.stopped_ms: int | None = kept["stopped_ms"]
        self.redrives: int = kept["redrives"]
        self.redriven_ms: int | None = kept["redriven_ms"]
        self.event_count: int = kept["events"]
        self.part: Part = kept["part"]
        self.history: list[Event] = []
        self.pending = False

    @functools.cached_property
    def input_text(self) -> str:
        """Return the input as JSON text."""
        return compact(self._input)

    @functools.cached_property
    def output_text(self) -> str:
        """Return the output as JSON text."""
        return compact(self.output)

    @property
    def status(self) -> str:
        """Return how the execution ended; PENDING_REDRIVE while it waits to be redriven."""
        return "PENDING_REDRIVE" if self.pending else str(self.kept["status"])

    def redrive_record(self) -> dict[str, Any]:
        """Return the record from which this object was made."""
        return self.kept

    def can_go_on(self, express: bool, now_ms: int) -> bool:
        """Return whether a redrive of the Map Run goes on with this execution; an Express one always starts afresh."""
        return express or (self.event_count < TOO_MANY_EVENTS and now_ms - self.kept["stopped_ms"] <= PERIOD_MS)


@dataclass
class MapRunReport:
    """The report of a Map Run; its redrives continue it.

    status: RUNNING, SUCCEEDED, FAILED or ABORTED. tolerated_count, tolerated_percentage: how many items may fail, None
    for an absent field. batched: whether an execution may have several items. express: whether the executions are
    Express ones. total, failed: numbers of items. running: those of the executions that run, by their numbers.
    is_place_whole: whether a redrive's list of the executions is complete, if one is made. changed: called after
    `update`.
    """

    name: str
    arn: str
    machine_name: str
    machine_arn: str
    max_concurrency: int
    tolerated_count: float | None
    tolerated_percentage: float | None
    batched: bool
    express: bool
    started_ms: int
    redrives: int = 0
    redriven_ms: int | None = None
    stopped_ms: int | None = None
    status: str = "RUNNING"
    total: int = 0
    failed: int = 0
    executions: list[ChildExecution] = field(default_factory=list)
    running: dict[int, RunningExecution] = field(default_factory=dict, repr=False)
    is_place_whole: bool = True
    changed: Callable[[], None] = field(default=lambda: None, repr=False)

    @property
    def has_too_many_failures(self) -> bool:
        """Return whether more items failed than the Map tolerates."""
        count, share = self.tolerated_count, self.tolerated_percentage
        if count is None and share is None:
            return self.failed > 0
        # "If you specify both …, the Map Run fails when either threshold is exceeded" (Developer Guide)
        return (count is not None and self.failed > count) or (
            share is not None and self.failed * 100 > share * self.total
        )

    def update(self, max_concurrency: int | None, count: float | None, percentage: float | None) -> None:
        """Change the bounds of a running Map Run; None leaves a bound as it is."""
        if max_concurrency is not None:
            self.max_concurrency = max_concurrency
        if count is not None:
            self.tolerated_count = count
        if percentage is not None:
            self.tolerated_percentage = percentage
        self.changed()

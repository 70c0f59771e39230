"""Holds what ListMapRuns and DescribeMapRun report of a Map Run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from states_language.history import Event


class ChildExecution(Protocol):
    """An execution of one item or one batch; `states_language.Execution` documents the members."""

    name: str
    arn: str
    machine_arn: str
    status: str
    input: Any
    output: Any
    error: str | None
    cause: str | None
    started_ms: int
    stopped_ms: int | None

    @property
    def history(self) -> list[Event]:
        """Return its events so far."""
        ...

    def stop(self, error: str | None = None, cause: str | None = None) -> None:
        """Abort it at once, if it runs."""
        ...


@dataclass
class MapRunReport:
    """One attempt of a distributed Map.

    status: RUNNING, SUCCEEDED, FAILED or ABORTED. tolerated_count, tolerated_percentage: how many items may fail, None
    for an absent field. batched: whether an execution may have several items. total, failed: items. changed: is called
    after `update`.
    """

    name: str
    arn: str
    machine_name: str
    machine_arn: str
    max_concurrency: int
    tolerated_count: float | None
    tolerated_percentage: float | None
    batched: bool
    started_ms: int
    stopped_ms: int | None = None
    status: str = "RUNNING"
    total: int = 0
    failed: int = 0
    executions: list[ChildExecution] = field(default_factory=list)
    changed: Callable[[], None] = field(default=lambda: None, repr=False)

    @property
    def too_many(self) -> bool:
        """Return whether more items failed than may."""
        count, share = self.tolerated_count, self.tolerated_percentage
        if count is None and share is None:
            return self.failed > 0
        # "If you specify both …, the Map Run fails when either threshold is exceeded" (Developer Guide)
        return (count is not None and self.failed > count) or (
            share is not None and self.failed * 100 > share * self.total
        )

    def update(self, max_concurrency: int | None, count: float | None, percentage: float | None) -> None:
        """Change the bounds of a Map Run that runs; None leaves one as it is."""
        if max_concurrency is not None:
            self.max_concurrency = max_concurrency
        if count is not None:
            self.tolerated_count = count
        if percentage is not None:
            self.tolerated_percentage = percentage
        self.changed()

"""Keeps a stream's connections for the timeline of a replay, and leaves out steps that would only cost time.

Events and gaps are not written, because the timeline counts them, and the ledger's record is written only at the end.
The lease is read at the same instants, but only after another function has changed it (`Await` allows that). Invariant:
no step is left out on which another step or another function depends.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from handlers.connection.effects import (
    Claim,
    CloseUpstream,
    Heartbeat,
    MarkConnected,
    ReadLease,
    RecordGaps,
    SaveRecord,
    Write,
)
from handlers.connection.inputs import LeaseRead, Written
from handlers.connection.lease import Lease
from handlers.connection.steps import Answer, Await, Ended, Step, Steps
from handlers.framing.oversize import Oversize
from local.simulation.slots import Slot, Upstream, perform_each
from local.simulation.virtual_function import VirtualFunction

T = TypeVar("T")
NEVER_MS = 1 << 60


@dataclass(eq=False)
class VirtualConnection:
    """A connection as the timeline shows it: when the upstream was opened, and how it ended."""

    link: Any = None
    ended_by: str = ""


class SkippingSlot(Slot):
    """A stream's slot; `connections` has all connections that the function made for the stream.

    With `is_watched`, other functions check when its lease expires, which each read renews, so reads are kept. With
    `is_notified`, a group's function notifies the connection of each change of its lease, so it reads none.
    """

    def __init__(
        self,
        function: VirtualFunction,
        upstream: Upstream,
        *,
        is_watched: bool = False,
        is_notified: bool = False,
    ) -> None:
        super().__init__(function, upstream)
        self._is_watched = is_watched
        self._is_notified = is_notified
        self._lease_every_ms = function.task.invocation.lease_every_ms
        self._is_marked = False  # it is marked as connected and not closed: only a change of the lease matters
        self._has_changed = False  # the lease has changed since it was read
        self._waits = False  # it waits for an arrival, or for a change of the lease
        self.connections: list[VirtualConnection] = []

    def open(self, cursor: str | None, on_arrival: Callable[[], None]) -> Any:
        """Opens the stream's upstream."""
        reader = super().open(cursor, on_arrival)
        self.connections[-1].link = reader.link
        return reader

    def close(self) -> None:
        """Closes its socket, as a function's death does."""
        for connection in self.connections[-1:]:
            if connection.link is not None and connection.link.closed_ms is None:
                connection.ended_by = "killed"
        super().close()

    def mark_lease_changed(self) -> None:
        """Records that another function has changed the lease; while this function is awake, the change is its own."""
        if self.function.is_awake:
            return
        self._has_changed = True
        if self._waits:
            self._waits = False
            self.notify(Lease)
            self.function.bell.ring("")

    def wrap_steps(self, steps: Steps[T]) -> Steps[T]:
        """Returns the steps that are performed."""
        return perform_each(steps, self._perform)

    def _skipped_answer(self, step: Step) -> Answer | None:
        """Returns the answer to a skipped step; None for a step that must be performed."""
        match step:
            case Write(events=events):
                too_long = sum(isinstance(event.data, Oversize) for event in events)
                return Answer(self.function.now_ms(), Written(len(events) - too_long, 0, too_long))
            case SaveRecord(progress):
                self.connections[-1].ended_by = progress.ended_by
            case RecordGaps():
                pass
            case _:
                return None
        return Answer(self.function.now_ms())

    def _perform(self, step: Step) -> Steps[Answer]:
        """Performs the step and returns its answer."""
        if (skipped := self._skipped_answer(step)) is not None:
            return skipped
        answer: Answer
        match step:
            case Await(wake_ms, int(lease_ms)) if self._waits_for_changes():
                wake_ms = NEVER_MS if wake_ms is None and not self._is_notified else wake_ms
                if self._is_notified or not self._has_changed:
                    self._waits = not self._is_notified
                    answer = yield step if wake_ms is None else Await(wake_ms, None)
                    self._waits = False
                    if self._is_notified or not isinstance(answer.value, LeaseRead):
                        return answer
                # It is read at the next instant at which the lease would have been read.
                late_ms = max(0, self.function.now_ms() - lease_ms)
                return (yield Await(wake_ms, lease_ms + -(-late_ms // self._lease_every_ms) * self._lease_every_ms))
            case Claim():
                self.connections.append(VirtualConnection())
                self._has_changed = self._is_marked = False
            case ReadLease() | Heartbeat():
                self._has_changed = False
            case MarkConnected() | CloseUpstream():
                self._is_marked = isinstance(step, MarkConnected)
            case Ended(report):
                self._is_marked = False
                if report.progress.opened_ms is not None and not self._is_notified:
                    yield SaveRecord(report.progress)
        return (yield step)

    def _waits_for_changes(self) -> bool:
        return self._is_marked and not self._is_watched

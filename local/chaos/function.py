"""Performs the steps of one invocation in virtual time, with a store that takes time and a clock that may be wrong.

As `handlers/run/performer.py` does on threads; it chooses nothing of what is done or in which order. It is written as a
generator of pauses, so that it can be killed at any of them, inside a request, or between any two steps (`running.py`).
Beside the steps it notes on each link what the rules on rests and limits must know (`notes.py`). Invariant: after
`kill` nothing of it runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from handlers.connection.effects import CloseUpstream, Open, Outcome
from handlers.connection.inputs import Arrival, Closed
from handlers.connection.reconnection import attempts
from handlers.connection.steps import Answer, Await, Ended, Pause, Report, Step
from handlers.profile.behaviour import Profile
from handlers.store.connection_store import Store
from handlers.store.requests import Requests
from local.chaos.chaotic_upstream import ChaoticUpstream
from local.chaos.link import Link
from local.chaos.notes import Notes
from local.chaos.running import Running
from local.chaos.slow_requests import Task, Waits
from local.simulation.unreliable_tables import UnreliableDynamoDB
from states_language.clock import VirtualClock

CLOSED_HERE = Closed("closed_here")


class VirtualFunction(Running):
    """The function of one stream."""

    def __init__(
        self,
        clock: VirtualClock,
        profile: Profile,
        store: Store,
        dynamodb: UnreliableDynamoDB,
        upstream: ChaoticUpstream,
        task: Task,
        on_end: Callable[[Outcome], None],
    ) -> None:
        super().__init__(clock, dynamodb, task, on_end)
        self._upstream = upstream
        self._requests = Requests(profile, store, task.invocation, self.now_ms)
        self._attempts = attempts(profile, task.invocation, self.now_ms(), self._draw)
        self._notes = Notes(clock, task.invocation, self.now_ms)
        self._inbox: deque[tuple[Arrival, int]] = deque()
        self.link: Link | None = None

    @property
    def links_by_fence(self) -> dict[int, Link]:
        """Its openings, by their fencing tokens."""
        return self._notes.links_by_fence

    def arrived(self, link: Link, arrival: Arrival) -> None:
        """Takes what the link brings, unless it was left already."""
        if self.is_alive and link is self.link:
            self._inbox.append((arrival, self.now_ms()))
            self.heard()

    def _run(self) -> Waits[Outcome]:
        answer: Answer | None = None
        while True:
            try:
                step = self._attempts.send(answer)  # type: ignore[arg-type]  # the first is None
            except StopIteration as ended:
                report: Report = ended.value
                self._notes.settle()
                return report.outcome
            self._notes.before(step)
            value, arrived_ms = yield from self._perform(step)
            self._notes.after(step, value)
            unread_ms = self._inbox[0][1] if self._inbox else None
            answer = Answer(self.now_ms(), value, arrived_ms, unread_ms)
            self.steps_on(step)

    def _perform(self, step: Step) -> Waits[tuple[Any, int | None]]:
        """What the step is answered by, and when that had come where it waited."""
        match step:
            case Await():
                return (yield from self._await(step))
            case Open(cursor):
                self._leave_link()
                self.link = self._upstream.open(self, cursor)
                self._notes.opened(self.link)
            case CloseUpstream():
                if self.link is not None:
                    self._upstream.close(self.link)
                    self._inbox.append((CLOSED_HERE, self.now_ms()))  # after what had arrived
            case Ended():
                self._leave_link()
            case Pause(for_ms):
                yield self._clock.now_ms() + for_ms, False
            case _:
                return (yield from self._ask(step)), None
        return None, None

    def _ask(self, step: Step) -> Waits[Any]:
        return (yield from self.slow.ask(*self._requests.of(step)))

    def _await(self, step: Await) -> Waits[tuple[Arrival | None, int | None]]:
        if not self._inbox:
            yield step.until_ms - self.task.skew_ms, True
        if not self._inbox:
            return None, None
        arrival, arrived_ms = self._inbox.popleft()
        if isinstance(arrival, Closed):
            self._leave_link()
        return arrival, arrived_ms

    def _draw(self, least: float, most: float) -> float:
        value = self._draws.uniform(least, most)
        self._notes.drew(least, most, value)
        return value

    def _close_sockets(self) -> None:
        if self.link is not None:
            self._upstream.close(self.link)

    def _leave_link(self) -> None:
        if self.link is not None:
            self._upstream.close(self.link)
            self.link = None
        self._notes.left()
        self._inbox.clear()

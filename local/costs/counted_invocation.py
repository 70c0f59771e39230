"""Performs every step of an invocation in virtual time, so that each of its requests is made and can be counted.

As `handlers/run/performer.py` does on threads; it chooses nothing of what is done or in which order, and leaves nothing
out, which is what it differs in from a replay's (`local/replay/virtual_invocation.py`). No request takes time.
Invariant: after `kill` nothing of it runs.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from handlers.connection.effects import CloseUpstream, Open, Outcome
from handlers.connection.inputs import Arrival, Closed
from handlers.connection.reconnection import attempts
from handlers.connection.steps import Answer, Await, Ended, Invocation, Pause, ReadSecrets, Report, Step
from handlers.profile.behaviour import Profile
from handlers.store.connection_store import Store
from handlers.store.requests import Requests
from local.costs.steady_upstream import Link, SteadyUpstream
from local.replay.virtual_invocation import VirtualConnection
from states_language.clock import Clock, Timer

CLOSED_HERE = Closed("closed_here")


class CountedInvocation:
    """`on_end` is called once with the outcome, unless it is killed; `reports` are those of its connections."""

    def __init__(
        self,
        clock: Clock,
        profile: Profile,
        store: Store,
        upstream: SteadyUpstream,
        invocation: Invocation,
        on_end: Callable[[Outcome], None],
    ) -> None:
        self._clock = clock
        self._upstream = upstream
        self._on_end = on_end
        self._requests = Requests(profile, store, invocation, clock.now_ms)
        self._steps = attempts(profile, invocation, clock.now_ms(), self._draw)
        self._inbox: deque[Arrival] = deque()
        self._link: Link | None = None
        self._timer: Timer | None = None
        self._is_alive = True
        self._is_waiting = False
        self.reports: list[Report] = []
        self.connections: list[VirtualConnection] = []  # a counted run draws no picture

    def advance(self, answer: Answer | None = None) -> None:
        """Begins, or goes on with the answer to the last step, until a step takes time."""
        self._is_waiting = False
        try:
            step = self._steps.send(answer)  # type: ignore[arg-type]  # the first is None
            while (until_ms := self._until_ms(step)) is None:
                step = self._steps.send(Answer(self._clock.now_ms(), self._perform(step)))
        except StopIteration as ended:
            self._is_alive = False
            report: Report = ended.value
            self._on_end(report.outcome)
            return
        self._is_waiting = isinstance(step, Await)
        self._timer = self._clock.call_at(until_ms, self._resume)

    def kill(self) -> None:
        """Ends it as SIGKILL does."""
        self.freeze()
        self._leave()

    def freeze(self) -> None:
        """Halts it as SIGSTOP does."""
        self._is_alive = False
        if self._timer is not None:
            self._timer.cancel()

    def lease_changed(self) -> None:
        """Nothing: it reads the lease whenever a reading is due."""

    def arrived(self, arrival: Arrival) -> None:
        """Takes what the upstream sends."""
        if self._is_alive:
            self._inbox.append(arrival)
            if self._is_waiting and self._timer is not None:
                self._timer.cancel()
                self._resume()

    def _draw(self, least: float, most: float) -> float:
        return least + (most - least) * self._clock.random()

    def _until_ms(self, step: Step) -> int | None:
        """When a step is answered that takes time; None where it is answered at once."""
        if isinstance(step, Pause):
            return self._clock.now_ms() + step.for_ms
        is_wait = isinstance(step, Await) and not self._inbox and step.until_ms > self._clock.now_ms()
        return step.until_ms if is_wait and isinstance(step, Await) else None

    def _resume(self) -> None:
        if self._is_alive:
            value = self._inbox.popleft() if self._is_waiting and self._inbox else None
            self.advance(Answer(self._clock.now_ms(), value))

    def _perform(self, step: Step) -> Any:
        """What the step is answered by."""
        match step:
            case Await():
                return self._inbox.popleft() if self._inbox else None
            case Open(cursor):
                self._leave()
                self._inbox.clear()
                self._link = self._upstream.open(self, cursor)
            case CloseUpstream():
                if self._link is not None:
                    self._leave()
                    self._inbox.append(CLOSED_HERE)
            case Ended(report):
                self._leave()
                self._inbox.clear()
                self.reports.append(report)
            case ReadSecrets():
                return {}
            case _:
                return [request() for request in self._requests.of(step)][-1]
        return None

    def _leave(self) -> None:
        if self._link is not None:
            self._upstream.close(self._link)
            self._link = None

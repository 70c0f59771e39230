"""Performs the steps of one invocation in virtual time: a scripted upstream on one side, tables in memory on the other.

As `handlers/run/performer.py` does on threads; it chooses nothing of what is done or in which order. It differs in what
costs time and changes nothing: no step takes any but a pause and the wait for an arrival; events and gaps are not
written, for the timeline counts them; the ledger's record is written at the end alone. And the lease, which a real
connection reads again and again, is read on the same grid of instants but only once somebody has changed it (`Await`
allows that): a reading that shows nothing new renews the lease, and only where `is_watched` does anybody look at when a
lease runs out.

Invariant: after `kill` or `freeze` nothing of it runs: no step is performed and none is answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from handlers.connection.effects import (
    Claim,
    CloseUpstream,
    Heartbeat,
    MarkConnected,
    Open,
    Outcome,
    Progress,
    ReadLease,
    RecordGaps,
    SaveRecord,
    Write,
)
from handlers.connection.inputs import Arrival, Closed, Written
from handlers.connection.reconnection import attempts
from handlers.connection.steps import Answer, Await, Ended, Invocation, Pause, Report, Step
from handlers.framing.oversize import Oversize
from handlers.profile.behaviour import Profile
from handlers.store.connection_store import Store
from handlers.store.requests import Requests
from local.replay.scripted_upstream import Link, ScriptedUpstream
from states_language.clock import Clock, Timer

CLOSED_HERE = Closed("closed_here")


@dataclass(eq=False)
class VirtualConnection:
    """What the timeline shows of a connection: its opening of the upstream, and the last word on how it ended."""

    link: Link | None = None
    ended_by: str = ""


class VirtualInvocation:
    """`on_end` is called once with the outcome, unless it is killed; `connections` are all that it made."""

    def __init__(
        self,
        clock: Clock,
        profile: Profile,
        store: Store,
        upstream: ScriptedUpstream,
        invocation: Invocation,
        on_end: Callable[[Outcome], None],
    ) -> None:
        self._clock = clock
        self._upstream = upstream
        self._on_end = on_end
        self._lease_every_ms = invocation.lease_every_ms
        self._requests = Requests(profile, store, invocation, clock.now_ms)
        self._steps = attempts(profile, invocation, clock.now_ms(), self._draw)
        self._is_alive = True
        # Whether anybody looks at when its lease runs out, so that each renewal counts.
        self._is_watched = profile.overlap == "forbids" or profile.standby == "hot"
        self._awaits: Await | None = None
        self._timers: list[Timer] = []
        self._poll: Timer | None = None
        self._link: Link | None = None
        self._inbox: deque[Arrival] = deque()
        self._is_busy = False
        self._is_reading = False  # marked as connected and not closed yet: only a change of the lease moves it
        self._has_news = False  # somebody has changed the lease since it was read
        self.connections: list[VirtualConnection] = []

    def _draw(self, least: float, most: float) -> float:
        return least + (most - least) * self._clock.random()

    def advance(self, answer: Answer | None = None) -> None:
        """Begins, or goes on with the answer to the last step, until a step takes time."""
        self._is_busy = True
        try:
            step = self._steps.send(answer)  # type: ignore[arg-type]  # the first is None
            while not isinstance(step, Pause | Await) or (isinstance(step, Await) and self._inbox):
                step = self._steps.send(Answer(self._clock.now_ms(), self._perform(step)))
        except StopIteration as ended:
            self._is_alive = False
            report: Report = ended.value
            self._on_end(report.outcome)
            return
        self._is_busy = False
        if isinstance(step, Await):
            self._wait(step)
        else:
            self._timers.append(self._clock.call_at(self._clock.now_ms() + step.for_ms, self._resume))

    def kill(self) -> None:
        """Ends it as SIGKILL does: its socket closes, and nothing of it runs again."""
        self.freeze()
        if self._link is not None:
            self._upstream.close(self._link)
            self._link = None
            self.connections[-1].ended_by = "killed"

    def freeze(self) -> None:
        """Halts it as SIGSTOP does: nothing of it runs again, and its socket stays open until it is killed."""
        self._is_alive = False
        self._disarm()

    # --- what happens while it waits ----------------------------------------------------------------------------------

    def arrived(self, link: Link, arrival: Arrival) -> None:
        """Takes what the upstream sends, which is nothing while a step is performed."""
        if self._is_alive and link is self._link:
            self._link = None if isinstance(arrival, Closed) else link
            self._resume(arrival)

    def lease_changed(self) -> None:
        """Notes that the lease was changed; a change of its own, while a step is performed, is no news."""
        if self._is_alive and not self._is_busy:
            self._has_news = True
            self._arm_poll()

    def _resume(self, value: Arrival | None = None) -> None:
        self._disarm()
        self.advance(Answer(self._clock.now_ms(), value))

    def _wait(self, step: Await) -> None:
        self._awaits = step
        if step.wake_ms is not None:
            self._timers.append(self._clock.call_at(step.wake_ms, self._resume))
        self._arm_poll()

    def _arm_poll(self) -> None:
        """Sets the next instant at which the lease is read; none where a reading would show nothing new."""
        if self._poll is not None or self._awaits is None or self._awaits.lease_ms is None:
            return
        at_ms = self._awaits.lease_ms
        if self._is_reading and not self._is_watched:
            if not self._has_news:
                return
            late_ms = max(0, self._clock.now_ms() - at_ms)
            at_ms += -(-late_ms // self._lease_every_ms) * self._lease_every_ms
        self._poll = self._clock.call_at(at_ms, self._resume)

    def _disarm(self) -> None:
        for timer in (*self._timers, *([self._poll] if self._poll is not None else [])):
            timer.cancel()
        self._timers, self._poll, self._awaits = [], None, None

    # --- one step -----------------------------------------------------------------------------------------------------

    def _perform(self, step: Step) -> Any:
        """What the step is answered by."""
        match step:
            case Await():
                return self._inbox.popleft()
            case Claim():
                self.connections.append(VirtualConnection())
                self._has_news = self._is_reading = False
            case ReadLease() | Heartbeat():
                self._has_news = False
            case MarkConnected():
                self._is_reading = True
            case Open():
                self.connections[-1].link = self._link = self._upstream.open(self)
                return None
            case Write(events=events):
                too_long = sum(isinstance(event.data, Oversize) for event in events)
                return Written(len(events) - too_long, 0, too_long)
            case SaveRecord(progress):
                self.connections[-1].ended_by = progress.ended_by
                return None  # it is written at the end, once
            case RecordGaps():
                return None  # the timeline counts them
            case CloseUpstream():
                self._close()
                return None
            case Ended(report):
                self._end(report.progress)
                return None
        return [request() for request in self._requests.of(step)][-1]

    def _close(self) -> None:
        self._is_reading = False
        if self._link is not None:
            self._upstream.close(self._link)
            self._link = None
            self._inbox.append(CLOSED_HERE)

    def _end(self, progress: Progress) -> None:
        self._close()
        self._inbox.clear()
        if progress.opened_ms is not None:
            for request in self._requests.of(SaveRecord(progress)):
                request()

"""Performs the steps of one invocation in virtual time, with a store that takes time and a clock that may be wrong.

As `handlers/driver.py` does on threads; it chooses nothing of what is done or in which order. It is written as a
generator of pauses, so that it can be killed at any of them, inside a request, or between any two steps. Beside the
steps it notes on each link what the rules on rests and limits must know (`local/chaos/link.py`). Invariant: after
`kill` nothing of it runs.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from handlers.connection.effects import Claim, CloseUpstream, MarkConnected, Open, Outcome, Write
from handlers.connection.inputs import Arrival, Claimed, Closed, StoreFailed
from handlers.connection.reconnection import attempts, lived
from handlers.connection.steps import Answer, Await, ChangeRest, Ended, Pause, ReadRest, Report, Step
from handlers.profile.behaviour import Profile
from handlers.store.connection_store import Store
from handlers.store.requests import Requests
from local.chaos.chaotic_upstream import ChaoticUpstream
from local.chaos.link import Again, Link
from local.chaos.slow_requests import Killed, SlowRequests, Task, Waits
from local.chaos.unreliable_dynamodb import UnreliableDynamoDB
from states_language.clock import Timer, VirtualClock

CLOSED_HERE = Closed("closed_here")


class VirtualFunction:
    """`on_end` is called once with the outcome, unless it is killed."""

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
        self._clock = clock
        self._upstream = upstream
        self.task = task
        self._on_end = on_end
        self._draws = random.Random(task.number)
        self.slow = SlowRequests(clock, dynamodb, task, self._draws)
        self._requests = Requests(profile, store, task.invocation, self._now_ms)
        self._attempts = attempts(profile, task.invocation, self._now_ms(), self._draw)
        self._inbox: deque[tuple[Arrival, int]] = deque()
        self._claimed_ms = 0
        self._looked_ms = 0
        self._took_ms: int | None = None
        self._timer: Timer | None = None
        self._listens = False
        self._frozen_until_ms = 0
        self._fence = 0
        self._failed: Link | None = None  # the one whose outcome not all can know yet
        self._drawn: dict[int, float] = {}  # since the last connection: a pause and the longest that it could have been
        self._again: Again | None = None
        self.dies_after: int | None = None  # so many more steps
        self.link: Link | None = None
        self.links_by_fence: dict[int, Link] = {}
        self.is_alive = True
        self.is_lost = False  # the machine hears no more of it
        self.died_ms: int | None = None
        self.was_frozen = self.timed_out = False
        self.on_kill: Callable[[], None] = self.kill
        self._waits = self._run()

    @property
    def skew_ms(self) -> int:
        """How far its clock is wrong."""
        return self.task.skew_ms

    @property
    def execution(self) -> str:
        """The execution that it runs for."""
        return self.task.invocation.execution

    def start(self) -> None:
        """Begins; every further step comes from the clock and the upstream."""
        self._step()

    def kill(self, linger_ms: int = 0) -> None:
        """Ends it as SIGKILL does; its socket closes after a while."""
        self.is_alive = False
        self.died_ms = self._clock.now_ms() if self.died_ms is None else self.died_ms
        if self._timer is not None:
            self._timer.cancel()
        link = self.link
        if link is not None and linger_ms:
            self._clock.call_at(self._clock.now_ms() + linger_ms, lambda: self._upstream.close(link))
        elif link is not None:
            self._upstream.close(link)

    def freeze(self, until_ms: int) -> None:
        """Lets nothing of it run until then; what arrives waits."""
        self._frozen_until_ms = max(self._frozen_until_ms, until_ms)
        self.was_frozen = True

    def arrived(self, link: Link, arrival: Arrival) -> None:
        """Takes what the link brings, unless it was left already."""
        if self.is_alive and link is self.link:
            self._inbox.append((arrival, self._now_ms()))
            if self._listens:
                self._listens = False
                self._resume_at(self._clock.now_ms())

    # --- the trampoline -----------------------------------------------------------------------------------------------

    def _resume_at(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_at(at_ms, self._step)

    def _step(self) -> None:
        self._timer, self._listens = None, False
        if not self.is_alive:
            return
        if self._clock.now_ms() < self._frozen_until_ms:
            self._resume_at(self._frozen_until_ms)
            return
        try:
            until_ms, listens = next(self._waits)
            # The answer to a request: mostly nothing else happens until it is there.
            while not listens and self._frozen_until_ms < until_ms and self._clock.skip_to(until_ms):
                until_ms, listens = next(self._waits)
        except StopIteration as ended:
            self.is_alive = False
            self._on_end(ended.value)
        except Killed:
            self.on_kill()
        else:
            self._listens = listens
            self._resume_at(until_ms)

    # --- the steps ----------------------------------------------------------------------------------------------------

    def _run(self) -> Waits[Outcome]:
        answer: Answer | None = None
        while True:
            try:
                step = self._attempts.send(answer)  # type: ignore[arg-type]  # the first is None
            except StopIteration as ended:
                report: Report = ended.value
                self._settle()
                return report.outcome
            if not isinstance(step, ChangeRest | ReadRest | Ended):
                self._settle()
            value, arrived_ms = yield from self._perform(step)
            unread_ms = self._inbox[0][1] if self._inbox else None
            answer = Answer(self._now_ms(), value, arrived_ms, unread_ms)
            if self.dies_after is not None and not isinstance(step, Await):
                self.dies_after -= 1
                if self.dies_after < 0:
                    raise Killed

    def _perform(self, step: Step) -> Waits[tuple[Any, int | None]]:
        """What the step is answered by, and when that had come where it waited."""
        match step:
            case Await():
                return (yield from self._await(step))
            case Open(cursor):
                self._open(cursor)
            case CloseUpstream():
                if self.link is not None:
                    self._upstream.close(self.link)
                    self._inbox.append((CLOSED_HERE, self._now_ms()))  # after what had arrived
            case Ended(report):
                self._end(report)
            case Pause(for_ms):
                if self._again is not None:
                    self._again = replace(self._again, draw_most_ms=self._drawn.get(for_ms, 0))
                yield self._clock.now_ms() + for_ms, False
            case _:
                return (yield from self._ask(step)), None
        return None, None

    def _await(self, step: Await) -> Waits[tuple[Arrival | None, int | None]]:
        if not self._inbox:
            yield step.until_ms - self.task.skew_ms, True
        if not self._inbox:
            return None, None
        arrival, arrived_ms = self._inbox.popleft()
        if isinstance(arrival, Closed):
            self._leave_link()
        return arrival, arrived_ms

    def _ask(self, step: Step) -> Waits[Any]:
        asked_ms = self._clock.now_ms()
        if isinstance(step, Claim):
            self._claimed_ms = asked_ms
            # Another rest than it knows of refuses the claim, and of a rest that is over it takes the try.
            self._looked_ms, self._took_ms = asked_ms, asked_ms if step.try_until_ms else None
        value = yield from self.slow.ask(*self._requests.of(step))
        if isinstance(step, Write) and not isinstance(value, StoreFailed) and step.fence in self.links_by_fence:
            self.links_by_fence[step.fence].written += len(step.events)
        if isinstance(value, Claimed):
            self._fence = value.lease.fence
        elif isinstance(step, MarkConnected) and not isinstance(value, StoreFailed) and self.link is not None:
            self.link.marked_ms = self._clock.now_ms()
        return value

    def _open(self, cursor: str | None) -> None:
        self._leave_link()
        self.link = link = self._upstream.open(self, cursor)
        link.claimed_ms, link.looked_ms, link.took_ms = self._claimed_ms, self._looked_ms, self._took_ms
        link.again = self._again
        self.links_by_fence[self._fence] = link

    def _end(self, report: Report) -> None:
        self._leave_link()
        self._took_ms = None
        before = 0 if self._again is None else self._again.failures
        failures = 0 if lived(report.progress) else before + 1
        left_ms, margin_ms = self.task.invocation.deadline_ms - self._now_ms(), self.task.invocation.margin_ms
        self._again = Again(failures, left_ms / margin_ms, 0)
        self._drawn.clear()
        self._failed = self.links_by_fence.get(report.progress.fence)
        if report.outcome.error == "StoreUnavailable":
            self._failed = None  # what it comes to may never be written down

    def _draw(self, least: float, most: float) -> float:
        value = self._draws.uniform(least, most)
        if least < most:
            self._drawn[round(1000 * value)] = 1000 * most
        return value

    def _settle(self) -> None:
        """From now on whoever looks knows what became of the connection that failed last."""
        if self._failed is not None and self._failed.settled_ms is None:
            self._failed.settled_ms = self._clock.now_ms()
        self._failed = None

    def _now_ms(self) -> int:
        return self._clock.now_ms() + self.task.skew_ms

    def _leave_link(self) -> None:
        if self.link is not None:
            self._upstream.close(self.link)
            self.link = None
        self._inbox.clear()

"""A function of a run that may be killed, frozen, or end: a generator of pauses, moved on by the clock.

It knows neither streams nor steps. Invariant: after `kill` nothing of it runs, and while it is frozen nothing does.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from handlers.connection.effects import Outcome
from handlers.connection.steps import Await, Step
from local.chaos.link import Link
from local.chaos.slow_requests import Killed, SlowRequests, Task, Waits
from local.simulation.unreliable_tables import UnreliableDynamoDB
from states_language.clock import Timer, VirtualClock


class Running:
    """`on_end` is called once with the outcome, unless it is killed."""

    def __init__(
        self, clock: VirtualClock, dynamodb: UnreliableDynamoDB, task: Task, on_end: Callable[[Outcome], None]
    ) -> None:
        self._clock = clock
        self.task = task
        self._on_end = on_end
        self._draws = random.Random(task.number)
        self.slow = SlowRequests(clock, dynamodb, task, self._draws)
        self._timer: Timer | None = None
        self._listens = False
        self.frozen_until_ms = 0
        self.dies_after: int | None = None  # so many more steps
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

    @property
    def links_by_fence(self) -> dict[int, Link]:
        """Its openings, by their fencing tokens."""
        raise NotImplementedError

    def start(self) -> None:
        """Begins; every further step comes from the clock and the upstream."""
        self._step()

    def kill(self, linger_ms: int = 0) -> None:
        """Ends it as SIGKILL does; its sockets close after a while."""
        self.is_alive = False
        self.died_ms = self._clock.now_ms() if self.died_ms is None else self.died_ms
        if self._timer is not None:
            self._timer.cancel()
        if linger_ms:
            self._clock.call_at(self._clock.now_ms() + linger_ms, self._close_sockets)
        else:
            self._close_sockets()

    def freeze(self, until_ms: int) -> None:
        """Lets nothing of it run until then; what arrives waits."""
        self.frozen_until_ms = max(self.frozen_until_ms, until_ms)
        self.was_frozen = True

    def heard(self) -> None:
        """Goes on at once where it waits for something to arrive."""
        if self._listens:
            self._listens = False
            self._resume_at(self._clock.now_ms())

    def steps_on(self, step: Step) -> None:
        """Counts a step that was performed, after which it may be killed."""
        if self.dies_after is not None and not isinstance(step, Await):
            self.dies_after -= 1
            if self.dies_after < 0:
                raise Killed

    def now_ms(self) -> int:
        """The time by its own clock."""
        return self._clock.now_ms() + self.task.skew_ms

    def _run(self) -> Waits[Outcome]:
        raise NotImplementedError

    def _close_sockets(self) -> None:
        raise NotImplementedError

    def _resume_at(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_at(at_ms, self._step)

    def _step(self) -> None:
        self._timer, self._listens = None, False
        if not self.is_alive:
            return
        if self._clock.now_ms() < self.frozen_until_ms:
            self._resume_at(self.frozen_until_ms)
            return
        try:
            until_ms, listens = next(self._waits)
            # The answer to a request: mostly nothing else happens until it is there.
            while not listens and self.frozen_until_ms < until_ms and self._clock.skip_to(until_ms):
                until_ms, listens = next(self._waits)
        except StopIteration as ended:
            self.is_alive = False
            self._on_end(ended.value)
        except Killed:
            self.on_kill()
        else:
            self._listens = listens
            self._resume_at(until_ms)

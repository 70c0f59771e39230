"""Runs the product's own function in virtual time; it may be killed, frozen, slow, or have a wrong clock.

The function's needs (`Ask` and `Wait` of `handlers/run`) become a generator of pauses, which the clock resumes.
Invariant: nothing of it runs after `kill`, or while it is frozen.
"""

import functools
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from handlers.connection.effects import Outcome
from handlers.connection.inputs import StoreFailed
from handlers.connection.steps import Await, Invocation, Step
from handlers.errors import StoreUnavailable
from handlers.run.group_ports import Ask, Needs
from handlers.run.threads import Answered
from local.simulation.virtual_ports import OwnThread, VirtualBell
from states_language.clock import Timer, VirtualClock

T = TypeVar("T")
# A pause until an instant of the run's clock; with True, an arrival ends it earlier.
Wait = tuple[int, bool]
Waits = Generator[Wait, None, T]


class Killed(BaseException):
    """The function was killed inside a request, or between two steps."""


@dataclass(frozen=True, slots=True)
class Task:
    """An invocation, with its number from 1, the deployed version, its time limit and the error of its clock."""

    number: int
    invocation: Invocation
    version: int = 1
    limit_ms: int = 0
    skew_ms: int = 0


class InstantRequests:
    """Requests of a function that take no time; `slow_requests.py` has those that do."""

    ran_out = False  # a request got no time, although no slow store had used up the margin for leaving
    dies_in: int | None = None  # after so many more steps of its requests the function dies

    def ask(self, *requests: Callable[[], T]) -> Waits[T | StoreFailed]:
        """Returns the answer of the last request; after the first one without an answer, no further one is made."""
        yield from ()
        return [request() for request in requests][-1]

    def record_missed(self) -> None:
        """Records that a request was not made because no time was left."""


def as_answered(waits: Waits[Any]) -> Waits[Answered]:
    """Returns the same pauses; the result is the requests' value or error, or that the store did not answer."""
    try:
        value = yield from waits
    except Exception as error:
        return Answered(error=error)
    if isinstance(value, StoreFailed):
        return Answered(error=StoreUnavailable(value.detail))
    return Answered(value)


class VirtualFunction:
    """One function; `on_end` is called once with the outcome, unless the function is killed.

    With `is_prompt` it continues within the call that brings an arrival; otherwise the clock resumes it, after all
    other actions of that millisecond.
    """

    def __init__(
        self,
        clock: VirtualClock,
        task: Task,
        on_end: Callable[[Outcome], None],
        *,
        is_prompt: bool = False,
    ) -> None:
        self._clock = clock
        self.task = task
        self._on_end = on_end
        self._is_prompt = is_prompt
        self.draws = random.Random(task.number)
        self.draw: Callable[[float, float], float] = self.draws.uniform
        self.requests = InstantRequests()
        self.bell = VirtualBell(self._wake)
        self.own_thread = OwnThread()
        self.slots: dict[str, Any] = {}  # by stream (`slots.py`)
        self._timer: Timer | None = None
        self._listens = False
        self.is_awake = False  # it runs at this moment
        self.frozen_until_ms = self._frozen_from_ms = 0
        self.dies_after: int | None = None  # after so many more steps it dies
        self.is_alive = True
        self.is_lost = False  # the machine is not notified of its end
        self.died_ms: int | None = None
        self.was_frozen = self.timed_out = False
        self.on_kill: Callable[[], None] = self.kill
        self._waits: Waits[Outcome]

    @property
    def skew_ms(self) -> int:
        """Returns the error of its clock."""
        return self.task.skew_ms

    @property
    def execution(self) -> str:
        """Returns the execution that it runs for."""
        return self.task.invocation.execution

    def mask(self) -> bytes:
        """Returns four random bytes."""
        return self.draws.randbytes(4)

    def start(self, needs: Needs) -> None:
        """Performs the first need; the clock and the upstreams trigger every further step."""
        self._waits = self._perform(needs)
        self._step()

    def kill(self, linger_ms: int = 0) -> None:
        """Ends it as SIGKILL does; its sockets close after `linger_ms`."""
        self.is_alive = False
        self.died_ms = self._clock.now_ms() if self.died_ms is None else self.died_ms
        if self._timer is not None:
            self._timer.cancel()
        if linger_ms:
            self._clock.call_at(self._clock.now_ms() + linger_ms, self._close_sockets)
        else:
            self._close_sockets()

    def freeze(self, until_ms: int) -> None:
        """Stops it until `until_ms`, as SIGSTOP does; arrivals wait."""
        if self._clock.now_ms() >= self.frozen_until_ms:
            self._frozen_from_ms = self._clock.now_ms()
        self.frozen_until_ms = max(self.frozen_until_ms, until_ms)
        self.was_frozen = True

    def count_step(self, step: Step) -> None:
        """Counts a step that was performed, after which it may be killed."""
        if self.dies_after is not None and not isinstance(step, Await):
            self.dies_after -= 1
            if self.dies_after < 0:
                raise Killed

    def now_ms(self) -> int:
        """Returns the time by its own clock."""
        return self._clock.now_ms() + self.task.skew_ms

    def last_run_ms(self) -> int:
        """Returns when it last ran, by its own clock; an arrival while it is frozen may have come at any time since."""
        return self.now_ms() if self._clock.now_ms() >= self.frozen_until_ms else self._frozen_from_ms + self.skew_ms

    def _perform(self, needs: Needs) -> Waits[Outcome]:
        move: Callable[[], Any] = functools.partial(next, needs)
        bell, own = self.bell, self.own_thread
        while True:
            try:
                need = move()
            except StopIteration as ended:
                outcome: Outcome = ended.value
                return outcome
            except StoreUnavailable as error:
                return Outcome("StoreUnavailable", "", str(error))
            if isinstance(need, Ask):
                answered = yield from as_answered(self.requests.ask(need.request))
                if answered.error is not None:
                    move = functools.partial(needs.throw, answered.error)
                else:
                    move = functools.partial(needs.send, answered.value)
                continue
            if own.requests is not None:
                own.add_answer((yield from as_answered(self.requests.ask(*own.requests))))
            rung = bell.wait(0)
            if not rung and need.for_s > 0:
                yield self._clock.now_ms() + max(1, round(1000 * need.for_s)), True
                rung = bell.wait(0)
            move = functools.partial(needs.send, rung)

    def _wake(self) -> None:
        """Resumes it if it waits for an arrival."""
        if self._listens:
            if self._is_prompt:
                self._step()
            else:
                self._listens = False
                self._resume_at(self._clock.now_ms())

    def _close_sockets(self) -> None:
        for slot in self.slots.values():
            slot.close()

    def _resume_at(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_at(at_ms, self._step)

    def _step(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._listens = None, False
        if not self.is_alive:
            return
        if self._clock.now_ms() < self.frozen_until_ms:
            self._resume_at(self.frozen_until_ms)
            return
        self.is_awake = True
        try:
            until_ms, listens = next(self._waits)
            # While a request waits for its answer, usually nothing else happens.
            while not listens and self.frozen_until_ms < until_ms and self._clock.skip_to(until_ms):
                until_ms, listens = next(self._waits)
        except StopIteration as ended:
            self.is_alive = self.is_awake = False
            self._on_end(ended.value)
        except Killed:
            self.on_kill()
        else:
            self._listens = listens
            self._resume_at(until_ms)
        finally:
            self.is_awake = False

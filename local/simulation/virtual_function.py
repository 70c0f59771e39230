"""A function in virtual time: what it does is the product's own; it may be killed, frozen, slow, or have a wrong clock.

It performs what the product needs (`handlers/run`: `Ask`, `Wait`) as a generator of pauses, which the clock moves on.
Invariant: after `kill` nothing of it runs, and while it is frozen nothing does.
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
    """An invocation's task, its time limit, and the error of its clock.

    `version` is the deployed one's. Tasks are numbered from 1.
    """

    number: int
    invocation: Invocation
    version: int = 1
    limit_ms: int = 0
    skew_ms: int = 0


class AtOnce:
    """Requests of a function that take no time; `slow_requests.py` has those that do."""

    ran_out = False  # of time for a request, though no slow store had taken some of what is kept for leaving
    dies_in: int | None = None  # so many more steps of its requests

    def ask(self, *requests: Callable[[], T]) -> Waits[T | StoreFailed]:
        """The answer of the last, or that there is none of one: then the others are not made."""
        yield from ()
        return [request() for request in requests][-1]

    def missed(self) -> None:
        """Notes requests that were not made, for no time was left."""


def answering(waits: Waits[Any]) -> Waits[Answered]:
    """The same pauses, with what was returned, raised or not answered by the store."""
    try:
        value = yield from waits
    except Exception as error:
        return Answered(error=error)
    if isinstance(value, StoreFailed):
        return Answered(error=StoreUnavailable(value.detail))
    return Answered(value)


class VirtualFunction:
    """`on_end` is called once with the outcome, unless it is killed.

    Where `is_prompt`, it goes on within the call that brings something; otherwise when the clock comes to it, behind
    what else happens in that millisecond.
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
        self.requests = AtOnce()
        self.bell = VirtualBell(self._heard)
        self.own_thread = OwnThread()
        self.slots: dict[str, Any] = {}  # by stream (`slots.py`)
        self._timer: Timer | None = None
        self._listens = False
        self.is_awake = False  # does something at this moment
        self.frozen_until_ms = self._frozen_from_ms = 0
        self.dies_after: int | None = None  # so many more steps
        self.is_alive = True
        self.is_lost = False  # the machine is not notified of its end
        self.died_ms: int | None = None
        self.was_frozen = self.timed_out = False
        self.on_kill: Callable[[], None] = self.kill
        self._waits: Waits[Outcome]

    @property
    def skew_ms(self) -> int:
        """How far its clock is wrong."""
        return self.task.skew_ms

    @property
    def execution(self) -> str:
        """The execution that it runs for."""
        return self.task.invocation.execution

    def mask(self) -> bytes:
        """Four bytes by chance."""
        return self.draws.randbytes(4)

    def start(self, needs: Needs) -> None:
        """Begins with what it needs first; every further step comes from the clock and the upstreams."""
        self._waits = self._perform(needs)
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
        """Lets nothing of it run until then, as SIGSTOP does; what arrives waits."""
        if self._clock.now_ms() >= self.frozen_until_ms:
            self._frozen_from_ms = self._clock.now_ms()
        self.frozen_until_ms = max(self.frozen_until_ms, until_ms)
        self.was_frozen = True

    def performed(self, step: Step) -> None:
        """Counts a step that was performed, after which it may be killed."""
        if self.dies_after is not None and not isinstance(step, Await):
            self.dies_after -= 1
            if self.dies_after < 0:
                raise Killed

    def now_ms(self) -> int:
        """The time by its own clock."""
        return self._clock.now_ms() + self.task.skew_ms

    def ran_ms(self) -> int:
        """When it last ran, by its own clock: what comes while it is frozen may have come at any time since."""
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
                answered = yield from answering(self.requests.ask(need.request))
                if answered.error is not None:
                    move = functools.partial(needs.throw, answered.error)
                else:
                    move = functools.partial(needs.send, answered.value)
                continue
            if own.asked is not None:
                own.answers((yield from answering(self.requests.ask(*own.asked))))
            rung = bell.wait(0)
            if not rung and need.for_s > 0:
                yield self._clock.now_ms() + max(1, round(1000 * need.for_s)), True
                rung = bell.wait(0)
            move = functools.partial(needs.send, rung)

    def _heard(self) -> None:
        """Goes on where it waits for something to arrive."""
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
            # The answer to a request: mostly nothing else happens until it is there.
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

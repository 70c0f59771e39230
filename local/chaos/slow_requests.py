"""How a function of a run asks the store: every request takes time, and the function may die inside one.

Decides when a request is done and when its answer is there: half of them are done at once and answered late, half are
done late. It knows no manager. Invariant: the caller goes on before the hard stop, and after `Killed` not at all.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from handlers.connection.inputs import StoreFailed
from handlers.connection.steps import Invocation
from handlers.errors import StoreUnavailable
from handlers.run.performer import hard_stop_ms
from local.simulation.unreliable_tables import UnreliableDynamoDB, nothing
from states_language.clock import Clock

T = TypeVar("T")
# A pause: until an instant of the run's clock, or, where it says so, until something arrives.
Wait = tuple[int, bool]
Waits = Generator[Wait, None, T]
# How long a request takes at most while no fault slows the store down.
MOST_MS = 8
NOTHING_ASKED = StoreFailed("nothing was asked")


class Killed(BaseException):
    """The function was killed inside a request."""


@dataclass(frozen=True, slots=True)
class Task:
    """What the invocation is asked for, for how long it is to live, and how far its clock is wrong.

    `version` is the deployed one's. Tasks are numbered from 1.
    """

    number: int
    invocation: Invocation
    version: int
    limit_ms: int
    skew_ms: int


class SlowRequests:
    """The requests of one function; `dies_in` is how many steps of them it survives, None for all."""

    def __init__(self, clock: Clock, dynamodb: UnreliableDynamoDB, task: Task, draws: random.Random) -> None:
        self._clock = clock
        self._dynamodb = dynamodb
        self._hard_stop_ms = hard_stop_ms(clock.now_ms() + task.limit_ms, task.invocation.margin_ms)
        self._draws = draws
        self.dies_in: int | None = None
        self._leaves_from_ms = self._hard_stop_ms - task.invocation.margin_ms
        self._slow_until_ms = 0
        self.ran_out = False  # of time, though no slow store had taken some of what is kept for leaving

    def ask(self, *requests: Callable[[], T]) -> Waits[T | StoreFailed]:
        """The answer of the last, or that there is none of one: then the others are not made."""
        answer: T | StoreFailed = NOTHING_ASKED
        for request in requests:
            now_ms = self._clock.now_ms()
            left_ms = self._hard_stop_ms - now_ms
            if self._dynamodb.latency_ms:
                self._slow_until_ms = now_ms + self._dynamodb.latency_ms
            self.ran_out = self.ran_out or (left_ms <= MOST_MS and self._slow_until_ms <= self._leaves_from_ms)
            if left_ms <= 0:
                return StoreFailed("no time is left to ask the store")
            # At times less than a millisecond: two chunks may then be read in the same one.
            latency_ms = self._dynamodb.latency_ms + int(self._draws.random() * (MOST_MS + 1))
            if latency_ms > left_ms:
                # The request goes on in its thread and lands when it likes; nobody waits for it.
                self._clock.call_at(now_ms + latency_ms, functools.partial(_unheard, request))
                yield now_ms + left_ms, False
                return StoreFailed("the store did not answer before the function's deadline")
            if self._draws.random() < 0.5:
                yield now_ms + latency_ms, False
                answer = self._send(request)
            else:
                answer = self._send(request)
                yield now_ms + latency_ms, False
            if isinstance(answer, StoreFailed):
                break
        return answer

    def _send(self, request: Callable[[], T]) -> T | StoreFailed:
        dynamodb = self._dynamodb
        if self.dies_in is not None:
            dynamodb.before = dynamodb.after = self._count_down
        try:
            return request()
        except StoreUnavailable as error:
            return StoreFailed(str(error))
        finally:
            dynamodb.before = dynamodb.after = nothing

    def _count_down(self) -> None:
        assert self.dies_in is not None
        self.dies_in -= 1
        if self.dies_in < 0:
            raise Killed


def _unheard(request: Callable[[], object]) -> None:
    try:
        request()
    except StoreUnavailable:
        return

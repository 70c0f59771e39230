"""Requests of a function that take time: the function may die inside one, or go on before its answer.

Invariants: the caller goes on before the hard stop, and never after `Killed`; at most as many requests run at a time as
there are threads; they begin in their order.
"""

import functools
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from handlers.connection.inputs import StoreFailed
from handlers.errors import StoreUnavailable
from handlers.run.ports import NO_TIME, TOO_LATE, hard_stop_ms
from handlers.run.threads import Answered
from local.simulation.unreliable_clients import UnreliableDynamoDB
from local.simulation.virtual_function import InstantRequests, Killed, VirtualFunction, Waits, as_answered
from local.simulation.virtual_ports import Answers, Requests
from states_language.clock import Clock

T = TypeVar("T")
# The longest time of a request without a fault of the store.
MOST_MS = 8
NOTHING_ASKED = StoreFailed("nothing was asked")


class SlowRequests(InstantRequests):
    """The requests of one function."""

    def __init__(self, clock: Clock, dynamodb: UnreliableDynamoDB, function: VirtualFunction) -> None:
        self._clock = clock
        self._dynamodb = dynamodb
        task = function.task
        self._hard_stop_ms = hard_stop_ms(clock.now_ms() + task.limit_ms, task.invocation.margin_ms)
        self._draws = function.draws
        self._leaves_from_ms = self._hard_stop_ms - task.invocation.margin_ms
        self._slow_until_ms = 0

    def ask(self, *requests: Callable[[], T]) -> Waits[T | StoreFailed]:
        """Returns the answer of the last request; after the first one without an answer, no further one is made."""
        answer: T | StoreFailed = NOTHING_ASKED
        for request in requests:
            now_ms = self._clock.now_ms()
            left_ms = self._hard_stop_ms - now_ms
            if left_ms <= MOST_MS:
                self.record_missed()
            elif self._dynamodb.latency_ms:
                self._slow_until_ms = now_ms + self._dynamodb.latency_ms
            if left_ms <= 0:
                return StoreFailed(NO_TIME)
            # The time may be less than a millisecond, so two chunks may be read in the same one.
            latency_ms = self._dynamodb.latency_ms + int(self._draws.random() * (MOST_MS + 1))
            if latency_ms > left_ms:
                # The request goes on in its thread, but its answer is not awaited.
                self._clock.call_at(now_ms + latency_ms, functools.partial(_without_answer, request))
                yield now_ms + left_ms, False
                return StoreFailed(TOO_LATE)
            if self._draws.random() < 0.5:
                yield now_ms + latency_ms, False
                answer = self._send(request)
            else:
                answer = self._send(request)
                yield now_ms + latency_ms, False
            if isinstance(answer, StoreFailed):
                break
        return answer

    def record_missed(self) -> None:
        """Records a request for which hardly any time is left, or none."""
        if self._dynamodb.latency_ms:
            self._slow_until_ms = self._clock.now_ms() + self._dynamodb.latency_ms
        self.ran_out = self.ran_out or self._slow_until_ms <= self._leaves_from_ms

    def _send(self, request: Callable[[], T]) -> T | StoreFailed:
        dynamodb = self._dynamodb
        if self.dies_in is not None:
            dynamodb.step = self._count_down
        try:
            return request()
        except StoreUnavailable as error:
            return StoreFailed(str(error))
        finally:
            dynamodb.step = None

    def _count_down(self) -> None:
        assert self.dies_in is not None
        self.dies_in -= 1
        if self.dies_in < 0:
            raise Killed


def _without_answer(request: Callable[[], object]) -> None:
    try:
        request()
    except StoreUnavailable:
        return


class VirtualPool(Answers):
    """A pool of `threads` of a function; each answer rings the function's bell for `name`.

    `pauses_of` returns the pauses of some requests, and their answer; by default they are requests to the store.
    """

    def __init__(
        self,
        clock: Clock,
        function: VirtualFunction,
        threads: int,
        name: str,
        pauses_of: Callable[..., Waits[Any]] | None = None,
    ) -> None:
        super().__init__()
        self._pauses_of = pauses_of or function.requests.ask
        self._clock = clock
        self._function = function
        self._name = name
        self._free = threads
        self._asked: deque[tuple[str, Requests]] = deque()

    def ask(self, stream_id: str, *requests: Callable[[], Any]) -> None:
        """Makes a thread send the requests; `take_answers` has the last answer later."""
        self._asked.append((stream_id, requests))
        self._begin()

    def _begin(self) -> None:
        while self._free and self._asked:
            self._free -= 1
            stream_id, requests = self._asked.popleft()
            self._go_on(stream_id, as_answered(self._pauses_of(*requests)))

    def _go_on(self, stream_id: str, waits: Waits[Answered]) -> None:
        """Continues requests as far as they can go now."""
        function = self._function
        if function.died_ms is not None:
            return
        if self._clock.now_ms() < function.frozen_until_ms:
            self._clock.call_at(function.frozen_until_ms, lambda: self._go_on(stream_id, waits))
            return
        try:
            until_ms, _ = next(waits)
        except StopIteration as done:
            self._free += 1
            self._answers.append((stream_id, done.value))
            self._begin()
            function.bell.ring(self._name)
        except Killed:
            function.on_kill()
        else:
            self._clock.call_at(until_ms, lambda: self._go_on(stream_id, waits))

"""Gives each execution of a server its own time, in which Waits and pauses are skipped.

While no code of an execution runs and it waits for nothing outside, its time jumps to its next timer. While it waits
for a function, a service, a worker or the holder of a token, its time runs with the server's, so time-outs take their
full length. Invariants: time never goes back; timers fire in their order, each at its own millisecond.
"""

import asyncio
import functools
import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

from states_language import Perform, TaskCall
from states_language.clock import Clock, Timer, wake

_QUIET = 6
"""After so many passes of the event loop without an event, a timer or a call, all of an execution waits."""
_BUSY_S = 0.001


class _Timer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class SkippingClock:
    """The time of one execution, `ahead_ms` ahead of the server's `base`.

    busy: returns whether lanes of the server, perhaps this execution's, wait for a turn or an evaluator.
    """

    def __init__(self, base: Clock, busy: Callable[[], bool], ahead_ms: int = 0) -> None:
        self._base = base
        self._busy = busy
        self._ahead_ms = ahead_ms
        self._calls_waiting = self._sleepers = self._quiet_passes = 0
        self._timers: list[tuple[int, int, _Timer]] = []
        self._order = count()
        self._next_timer: Timer | None = None
        self._watching = False

    def now_ms(self) -> int:
        """Return the execution's time in milliseconds since 1970."""
        return self._base.now_ms() + self._ahead_ms

    def random(self) -> float:
        """Return the server's next random number."""
        return self._base.random()

    async def sleep_until(self, at_ms: int) -> None:
        """Return once the execution's time is at_ms."""
        if at_ms <= self.now_ms():
            return
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_at(at_ms, functools.partial(wake, woken))
        self._sleepers += 1
        try:
            await woken
        finally:
            self._sleepers -= 1
            timer.cancel()

    def call_at(self, at_ms: int, callback: Callable[[], object]) -> Timer:
        """Return a timer for at_ms of the execution's time."""
        timer = _Timer(callback)
        heapq.heappush(self._timers, (at_ms, next(self._order), timer))
        self._arm()
        self.mark_active()
        return timer

    def watch_calls(self, perform: Perform) -> Perform:
        """Return `perform` so that time does not jump while one of its calls, or the call's Task, waits."""

        async def watched(call: TaskCall) -> Any:
            self._calls_waiting += 1
            if call.pending is not None:
                self._calls_waiting += 1
                call.pending.outcome.add_done_callback(lambda _: self._end_call())
            try:
                return await perform(call)
            finally:
                self._end_call()

        return watched

    def mark_active(self, _event: Any = None) -> None:
        """Note that the execution is not idle."""
        self._quiet_passes = 0
        if not self._watching:
            self._watching = True
            asyncio.get_running_loop().call_soon(self._watch)

    def _end_call(self) -> None:
        self._calls_waiting -= 1
        self.mark_active()

    def _watch(self) -> None:
        """Jump once the execution has been quiet for a while; sleep if only time or an outside event can wake it."""
        if self._calls_waiting or not self._sleepers:
            self._watching = False
        elif self._busy():
            self._quiet_passes = 0
            asyncio.get_running_loop().call_later(_BUSY_S, self._watch)
        elif self._quiet_passes < _QUIET:
            self._quiet_passes += 1
            asyncio.get_running_loop().call_soon(self._watch)
        else:
            self._watching = False
            self._ahead_ms += max(0, (self._earliest() or 0) - self.now_ms())
            self._fire()

    def _earliest(self) -> int | None:
        """Drop the cancelled timers, and return the due time of the next one."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _arm(self) -> None:
        if self._next_timer is not None:
            self._next_timer.cancel()
        at_ms = self._earliest()
        self._next_timer = None if at_ms is None else self._base.call_at(at_ms - self._ahead_ms, self._fire)

    def _fire(self) -> None:
        """Call the timers that are due: those of one millisecond together, late ones in their order."""
        now_ms = self.now_ms()
        while self._timers and self._timers[0][0] <= now_ms:
            _, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                timer.callback()
        self._arm()
        self.mark_active()

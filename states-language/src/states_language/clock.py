"""Provides virtual and real time, and randomness, behind one small interface.

No other module reads the time or draws random numbers. Invariant of the virtual clock: time moves only when nothing is
ready to run, and then exactly to the next timer. So two runs with the same seed do the same things in the same order at
the same milliseconds.
"""

import asyncio
import contextlib
import contextvars
import gc
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from states_language.virtual_loop import Deadlock as Deadlock
from states_language.virtual_loop import VirtualLoop

T = TypeVar("T")

_RARE_THRESHOLD = 1000
"""How many collections of the middle generation come before one of the oldest: about seven million objects."""

EPOCH_2026_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z, where virtual time starts by default."""


class Timer(Protocol):
    """A callback that is due later."""

    def cancel(self) -> None:
        """Drop the callback; it is never called."""


class Clock(Protocol):
    """Where time and randomness come from."""

    def now_ms(self) -> int:
        """Return the time in milliseconds since 1970-01-01T00:00:00Z."""

    async def sleep_until(self, at_ms: int) -> None:
        """Return once the time is at_ms or later; at once when it already is."""

    def random(self) -> float:
        """Return the next random number, 0 <= x < 1."""

    def call_at(self, at_ms: int, callback: Callable[[], object]) -> Timer:
        """Return a timer that calls the callback at at_ms, or as soon as possible when that is past."""


class VirtualClock:
    """Time that jumps: a day of sleeping costs milliseconds, and the same seed gives the same day."""

    def __init__(self, start_ms: int = EPOCH_2026_MS, seed: int = 0) -> None:
        self.start_ms = start_ms
        self.seed = seed
        self._random = random.Random(seed)
        self._loop = VirtualLoop(repr(self))

    def __repr__(self) -> str:
        return f"VirtualClock(start_ms={self.start_ms}, seed={self.seed})"

    def now_ms(self) -> int:
        """Return the virtual time in milliseconds since 1970-01-01T00:00:00Z."""
        return self.start_ms + self._loop.elapsed_ms

    async def sleep_until(self, at_ms: int) -> None:
        """Return at exactly at_ms of virtual time; at once when that is past."""
        if at_ms <= self.now_ms():
            return
        woken: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_at_ms(at_ms - self.start_ms, wake, woken)
        try:
            await woken
        except BaseException:
            timer.cancel()
            raise

    def random(self) -> float:
        """Return the next number of the seeded generator, 0 <= x < 1."""
        return self._random.random()

    def call_at(self, at_ms: int, callback: Callable[[], object]) -> Timer:
        """Return a timer that calls the callback at exactly at_ms of virtual time, now when that is past."""
        return self._loop.call_at_ms(at_ms - self.start_ms, callback)

    def skip_to(self, at_ms: int) -> bool:
        """Move the time to at_ms and return True if nothing else runs before or at it; otherwise return False.

        This replaces a timer whose callback would run next anyway, without the timer's cost.
        """
        return self._loop.skip_to(at_ms - self.start_ms)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Return what the coroutine returns, however much virtual time it takes; all other tasks then stop.

        A later call goes on from there. Raises Deadlock when nothing can ever happen again, and the exception of a
        callback or of a task that was never awaited. Within another event loop, such as a notebook's, it blocks.
        """
        if not _is_loop_running():
            return self._run(main)
        # A thread runs one loop at a time.
        with ThreadPoolExecutor(1) as beside:
            return beside.submit(contextvars.copy_context().run, self._run, main).result()

    def _run(self, main: Coroutine[Any, Any, T]) -> T:
        task = self._loop.create_task(main)
        try:
            with few_collections():
                result = self._loop.run_until_complete(task)
        except Deadlock:
            task.cancel()
            raise
        if self._loop.failures:
            raise self._loop.failures.pop(0)
        return result


class RealClock:
    """The machine's own time, on whichever event loop is running."""

    def __init__(self) -> None:
        # The system's own: a process that is forked later draws other numbers.
        self._random = random.SystemRandom()

    def now_ms(self) -> int:
        """Return the system's time in whole milliseconds since 1970-01-01T00:00:00Z."""
        return time.time_ns() // 1_000_000

    async def sleep_until(self, at_ms: int) -> None:
        """Return when the system's time has reached at_ms, never earlier."""
        while (left_ms := at_ms - self.now_ms()) > 0:
            await asyncio.sleep(left_ms / 1000)

    def random(self) -> float:
        """Return a random number, 0 <= x < 1."""
        return self._random.random()

    def call_at(self, at_ms: int, callback: Callable[[], object]) -> Timer:
        """Return a timer that calls the callback when the system's time is at_ms, as near as the event loop can."""
        return asyncio.get_running_loop().call_later(max(0, at_ms - self.now_ms()) / 1000, callback)


def thread_cpu_s() -> float:
    """Return the CPU seconds of this thread. They bound work that cannot be counted; no result depends on them."""
    return time.thread_time()


def uuid4(random: Callable[[], float]) -> str:
    """Return a version 4 UUID made of the generator's next four numbers."""
    bits = 0
    for _ in range(4):
        bits = bits << 32 | int(random() * 2**32)
    bits = bits & ~(0xF << 76) & ~(0x3 << 62) | 4 << 76 | 2 << 62
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_threshold_lock = threading.Lock()
_thresholds_before: list[int] = []
"""The threshold of the oldest generation before each run that goes on, of whichever thread."""


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """Search for garbage among all objects rarely, until the last of the overlapping runs has ended.

    A run makes mostly a history, which is kept. Searching through all of it repeatedly would cost more than half of the
    time. Young objects are still searched.
    """
    with _threshold_lock:
        young, middle, old = gc.get_threshold()
        _thresholds_before.append(_thresholds_before[0] if _thresholds_before else old)
        gc.set_threshold(young, middle, max(old, _RARE_THRESHOLD))
    try:
        yield
    finally:
        with _threshold_lock:
            old = _thresholds_before.pop()
            young, middle, now = gc.get_threshold()
            # Other code may have set another threshold in the meantime.
            if not _thresholds_before and now == max(old, _RARE_THRESHOLD):
                gc.set_threshold(young, middle, old)


def process_cpu_s(process: int) -> float:
    """Return the CPU seconds that the process of this id has used; 0 if there is no such process."""
    try:
        # clock_getcpuclockid(3), which Python does not have, makes a clock of a process id so.
        return time.clock_gettime(~process << 3 | 2)
    except OSError:
        return 0.0


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def wake(sleeper: asyncio.Future[None]) -> None:
    """Let a sleeper go on, unless it was cancelled."""
    if not sleeper.done():
        sleeper.set_result(None)

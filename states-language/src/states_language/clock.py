"""Provides virtual and real time, and randomness, behind one small interface.

No other module reads the time or draws random numbers. Invariant of the virtual clock: time moves only when nothing is
ready to run, and then exactly to the next timer. So two runs with the same seed do the same things in the same order at
the same milliseconds.
"""

import asyncio
import contextlib
import contextvars
import gc
import heapq
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

_RARELY = 1000
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


class Deadlock(RuntimeError):
    """Nothing is ready to run and no timer is set, so what the code awaits can never happen."""


class Killable(Protocol):
    """Something whose code can be killed: see `owner`."""

    killed: bool


owner: contextvars.ContextVar[Killable | None] = contextvars.ContextVar("owner", default=None)
"""The owner of the running code. Tasks, timers and callbacks inherit it; those of a killed owner never run again."""


class _Timer:
    """A callback that is due at an instant of virtual time: asyncio's TimerHandle, for a tenth of its cost."""

    __slots__ = ("_args", "_at_ms", "_callback", "_cancelled", "_context")

    def __init__(
        self,
        at_ms: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self._at_ms = at_ms
        self._callback = callback
        self._args = args
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = False

    def when(self) -> float:
        return self._at_ms / 1000

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _nothing, ()

    def cancelled(self) -> bool:
        return self._cancelled


class _VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without selector, sockets or threads; its time is a number of milliseconds that it sets itself."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self.elapsed_ms = 0
        self.label = label
        self.failures: list[BaseException] = []
        self._order = count()
        self._timers: list[tuple[int, int, _Timer]] = []

    def time(self) -> float:
        return self.elapsed_ms / 1000

    # What asyncio's own methods do where nobody debugs, for each future and each task.
    get_debug: Any = bool

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:  # type: ignore[override]
        return asyncio.Task(coro, loop=self, **options)

    def call_at(  # type: ignore[override]  # asyncio's stub wants a TypeVarTuple
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        # A timer never fires early: it is rounded up to a millisecond (1e-5 absorbs what the division by 1000 lost).
        timer: Any = self.call_at_ms(-int(-(when * 1000 - 1e-5) // 1), callback, *args, context=context)
        handle: asyncio.TimerHandle = timer
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.elapsed_ms / 1000 + delay, callback, *args, context=context)

    def call_at_ms(
        self, at_ms: int, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Timer:
        """Return a timer for at_ms, counted from the start of the loop."""
        timer = _Timer(at_ms, callback, args, context)
        heapq.heappush(self._timers, (at_ms, next(self._order), timer))
        return timer

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle: Any = _Timer(self.elapsed_ms, callback, args, context)
        self._ready.append(handle)  # type: ignore[attr-defined]  # asyncio's own queue
        soon: asyncio.Handle = handle
        return soon

    def skip_to(self, at_ms: int) -> bool:
        """Move to at_ms, counted from the loop's start, and return True, if nothing else runs before it or at it."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if self._ready or (timers and timers[0][0] <= at_ms):  # type: ignore[attr-defined]  # asyncio's own queue
            return False
        self.elapsed_ms = max(self.elapsed_ms, at_ms)
        return True

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is dropped when its turn comes."""

    def _run_once(self) -> None:
        """Run all passes until the loop is stopped; asyncio calls this once for each of its own."""
        ready: Any = self._ready  # type: ignore[attr-defined]  # asyncio's own queue, filled by its call_soon
        timers = self._timers
        while True:
            if not ready:
                while timers and timers[0][2]._cancelled:
                    heapq.heappop(timers)
                if not timers:
                    raise Deadlock(f"nothing is ready and no timer is set at {self.elapsed_ms} ms of {self.label}")
                self.elapsed_ms = max(self.elapsed_ms, timers[0][0])
            while timers and timers[0][0] <= self.elapsed_ms:
                ready.append(heapq.heappop(timers)[2])
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                running = handle._context.get(owner)
                if running is not None and running.killed:
                    continue
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"exception": error})
            if self._stopping:  # type: ignore[attr-defined]  # what asyncio's own loop asks after each pass
                return

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the exception for `VirtualClock.run` to raise; an unfinished task is not a failure."""
        error = context.get("exception")
        if error is not None:
            self.failures.append(error)

    def _write_to_self(self) -> None:
        """Do nothing: there is no selector to wake."""

    def __del__(self) -> None:
        """Do nothing: there is no resource to let go."""


class VirtualClock:
    """Time that jumps: a day of sleeping costs milliseconds, and the same seed gives the same day."""

    def __init__(self, start_ms: int = EPOCH_2026_MS, seed: int = 0) -> None:
        self.start_ms = start_ms
        self.seed = seed
        self._random = random.Random(seed)
        self._loop = _VirtualLoop(repr(self))

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
        """Move the time to at_ms and return True if nothing else runs before it or at it; otherwise return False.

        It replaces a timer whose callback would run next anyway, without the cost of the timer.
        """
        return self._loop.skip_to(at_ms - self.start_ms)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Return what the coroutine returns, however much virtual time it takes; all other tasks then stop.

        A later call goes on from there. Raises Deadlock when nothing can ever happen again, and the exception of a
        callback or of a task that was never awaited. Within another event loop, such as a notebook's, it blocks.
        """
        if not _in_a_loop():
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


def worked_s() -> float:
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


_collections = threading.Lock()
_runs: list[int] = []
"""The threshold of the oldest generation before each run that goes on, of whichever thread."""


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """Look through all objects for garbage rarely, until the last of the runs that overlap has ended.

    Nearly all that a run makes is a history, which is kept: to look through all of it again and again would cost more
    than half of the time. The young are still looked at.
    """
    with _collections:
        young, middle, old = gc.get_threshold()
        _runs.append(_runs[0] if _runs else old)
        gc.set_threshold(young, middle, max(old, _RARELY))
    try:
        yield
    finally:
        with _collections:
            old = _runs.pop()
            young, middle, now = gc.get_threshold()
            # Somebody else may have set another meanwhile.
            if not _runs and now == max(old, _RARELY):
                gc.set_threshold(young, middle, old)


def calculated_s(process: int) -> float:
    """Return the CPU seconds that the process of this id has used; 0 if there is no such process."""
    try:
        # clock_getcpuclockid(3), which Python does not have, makes a clock of a process id so.
        return time.clock_gettime(~process << 3 | 2)
    except OSError:
        return 0.0


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _nothing() -> None:
    return


def wake(sleeper: asyncio.Future[None]) -> None:
    """Let a sleeper go on, unless it was cancelled."""
    if not sleeper.done():
        sleeper.set_result(None)

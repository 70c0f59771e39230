"""The event loop of virtual time: asyncio's interface without a selector, sockets or threads.

Invariant: time moves only when nothing is ready to run, and then exactly to the next timer.
"""

import asyncio
import contextvars
import heapq
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

_FEWEST_TO_PRUNE = 1_000
"""Among more timers than these, the cancelled ones are dropped; again once there are twice as many as were left."""


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
        self, at_ms: int, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
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
        self._callback, self._args = lambda: None, ()

    def cancelled(self) -> bool:
        return self._cancelled


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without selector, sockets or threads; its time is a number of milliseconds that it sets itself."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self.elapsed_ms = 0
        self.label = label
        self.failures: list[BaseException] = []
        self._order = count()
        self._timers: list[tuple[int, int, _Timer]] = []
        self._prune_above = _FEWEST_TO_PRUNE

    def time(self) -> float:
        return self.elapsed_ms / 1000

    # These do what asyncio's methods do without debug mode; each future and each task calls them.
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
        timers = self._timers
        heapq.heappush(timers, (at_ms, next(self._order), timer))
        if len(timers) > self._prune_above:
            # Each ended execution leaves the timer of its deadline, which is a year away.
            timers[:] = [entry for entry in timers if not entry[2]._cancelled]
            heapq.heapify(timers)
            self._prune_above = max(_FEWEST_TO_PRUNE, 2 * len(timers))
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
        """Do nothing: there is no resource to release."""

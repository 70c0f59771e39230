"""Makes the store's requests in a thread of its own, so that whoever asks can stop waiting for one.

Decides how long that is: to the hard stop, which is a little before the function's deadline. It knows no request.
Invariant: `ask` returns or raises before the hard stop. A request that nobody waits for runs to its end in the thread
and changes nothing that a repeated one would not.
"""

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from handlers.connection.steps import Invocation
from handlers.errors import StoreUnavailable

T = TypeVar("T")
# What is left of the function's time when it no longer waits for the store: a quarter of the margin, half a second at
# most. The manager has ended by then; this is for the answer's own way.
HARD_STOP_MS = 500


def hard_stop_ms(deadline_ms: int, margin_ms: int) -> int:
    """Until when an invocation waits for the store."""
    return deadline_ms - min(HARD_STOP_MS, margin_ms // 4)


class Worker:
    """The thread of one invocation, or of one connection; `now_ms` is its clock."""

    def __init__(self, invocation: Invocation, now_ms: Callable[[], int]) -> None:
        self._hard_stop_ms = hard_stop_ms(invocation.deadline_ms, invocation.margin_ms)
        self._now_ms = now_ms
        self._requests: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    def ask(self, request: Callable[[], T]) -> T:
        """What `request` returns or raises; StoreUnavailable where it does neither in time."""
        wait_s = (self._hard_stop_ms - self._now_ms()) / 1000
        if wait_s <= 0:
            raise StoreUnavailable("no time is left to ask the store")
        answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        def answer() -> None:
            try:
                answers.put((request(), None))
            except BaseException as error:
                answers.put((None, error))

        self._requests.put(answer)
        try:
            value, error = answers.get(timeout=wait_s)
        except queue.Empty:
            raise StoreUnavailable("the store did not answer before the function's deadline") from None
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def stop(self) -> None:
        """Lets the thread end after what it does now."""
        self._requests.put(None)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            request()
            del request  # and with it the events of a Write, which may be large, while this waits for the next

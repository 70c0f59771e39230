"""Reads definitions beside the event loop: the large ones in one thread, the small ones in another.

More threads that calculate would take the interpreter's lock in turns, and the event loop waits for each of them.

What was made of definitions is remembered by their texts, as many as together have so many characters.
"""

import asyncio
import contextvars
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from states_language.scheduling.lanes import beside

T = TypeVar("T")

LARGE = 20_000
"""The characters of a definition that keeps no small one waiting."""


AWAY_S = 0.001
"""How long a thread works, and how long it then sleeps."""


def _work_beside() -> None:
    """Has this thread sleep for a millisecond after each one of work.

    On a busy machine a thread that never sleeps loses its core while it has Python's lock, and all wait for both.
    """
    until_s = 0.0

    def rest() -> None:
        nonlocal until_s
        if time.monotonic() > until_s:
            time.sleep(AWAY_S)
            until_s = time.monotonic() + AWAY_S

    beside.rest = rest


class Reader:
    """The two threads; each is started when it is first needed."""

    def __init__(self) -> None:
        self._threads = {
            size: ThreadPoolExecutor(1, f"{size} definitions", _work_beside) for size in ("small", "large")
        }

    async def run(self, length: int, function: Callable[..., T], *arguments: Any) -> T:
        """Returns what the function returns, which reads a definition of so many characters."""
        thread = self._threads["large" if length > LARGE else "small"]
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(thread, context.run, function, *arguments)

    def close(self) -> None:
        """Ends the threads; what waits for them is cancelled."""
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)


class Remembered(Generic[T]):
    """The values by text; `most` is the sum of the texts' lengths. It may be asked from any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._values: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str) -> T | None:
        """Returns what was made of the text; None where it is not known."""
        with self._lock:
            value = self._values.get(text)
            if value is not None:
                self._values.move_to_end(text)
            return value

    def put(self, text: str, value: T) -> None:
        """Remembers a value; the last one stays however long its text is."""
        with self._lock:
            if self._values.pop(text, None) is None:
                self._size += len(text)
            self._values[text] = value
            while self._size > self._most and len(self._values) > 1:
                self._size -= len(self._values.popitem(last=False)[0])

"""Reads definitions beside the event loop: the large ones in one thread, the small ones in another.

More threads would take Python's lock in turns, and the event loop would wait for each of them.

The results are remembered by the definitions' texts, up to a total number of characters.
"""

import asyncio
import contextvars
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from states_language.scheduling.lanes import worker_thread
from states_language.server.requests import Refusal

T = TypeVar("T")

LARGE = 20_000
"""Up to how many characters a definition counts as small."""


AWAY_S = 0.001
"""How long a thread works, and for how long it then sleeps."""


def pause_regularly() -> None:
    """Lets this thread sleep for a millisecond after each millisecond of work.

    On a busy machine, a thread that never sleeps loses its core while it holds Python's lock, and all others wait.
    """
    until_s = 0.0

    def give_way() -> None:
        nonlocal until_s
        if time.monotonic() > until_s:
            time.sleep(AWAY_S)
            until_s = time.monotonic() + AWAY_S

    worker_thread.give_way = give_way


class DefinitionReader:
    """The two threads; each is started when it is first needed."""

    def __init__(self) -> None:
        self._threads = {
            size: ThreadPoolExecutor(1, f"{size} definitions", pause_regularly) for size in ("small", "large")
        }
        self._closed = False

    async def run_in_thread(self, length: int, function: Callable[..., T], *arguments: Any) -> T:
        """Returns the result of a function that reads a definition of so many characters; raises Refusal at the end."""
        if self._closed:
            raise Refusal("ServiceException", "The service is ending.")
        thread = self._threads["large" if length > LARGE else "small"]
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(thread, context.run, function, *arguments)

    def close(self) -> None:
        """Ends the threads and cancels what waits for them."""
        self._closed = True
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)


class BoundedCache(Generic[T]):
    """Values by text. `most` bounds the sum of the texts' lengths. Any thread may use it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._values: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str) -> T | None:
        """Returns the value for the text; None if it is not remembered."""
        with self._lock:
            value = self._values.get(text)
            if value is not None:
                self._values.move_to_end(text)
            return value

    def put(self, text: str, value: T) -> None:
        """Remembers a value; the last one stays, however long its text is."""
        with self._lock:
            if self._values.pop(text, None) is None:
                self._size += len(text)
            self._values[text] = value
            while self._size > self._most and len(self._values) > 1:
                self._size -= len(self._values.popitem(last=False)[0])

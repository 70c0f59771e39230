"""Waits for a condition without a fixed sleep, and runs a service in a thread."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

# What takes a second where nothing else runs may take this many on a busy machine. Only a failure waits for so long.
PATIENCE = 20
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 0.5
T = TypeVar("T")


@contextlib.contextmanager
def in_thread(service: Callable[[], contextlib.AbstractAsyncContextManager[T]]) -> Iterator[T]:
    """Keep an asynchronous context open on an event loop in a thread; yield its value."""
    started: list[tuple[T, asyncio.AbstractEventLoop, asyncio.Event]] = []
    ready = threading.Event()

    async def main() -> None:
        end = asyncio.Event()
        async with service() as value:
            started.append((value, asyncio.get_running_loop(), end))
            ready.set()
            await end.wait()

    def run() -> None:
        try:
            asyncio.run(main())
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(120)
    assert started, "the service did not start"
    value, loop, end = started[0]
    try:
        yield value
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(120)


def until(condition: Callable[[], T], within_s: float = 10.0) -> T:
    """Call the condition until it is true, and return its value, or its last value when time is up.

    `within_s` is the most that it takes on an idle machine; the limit is PATIENCE times as long. The pauses between the
    calls grow, because each call slows down the work that the test waits for.
    """
    began_s = time.monotonic()
    pause = threading.Event()
    while not (answer := condition()) and (waited_s := time.monotonic() - began_s) < within_s * PATIENCE:
        pause.wait(min(max(SHORTEST_PAUSE_S, waited_s / 5), LONGEST_PAUSE_S))
    return answer

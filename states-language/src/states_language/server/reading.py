"""Reads definitions beside the event loop: the large ones in one thread, the small ones in another.

More threads that calculate would take the interpreter's lock in turns, and the event loop waits for each of them.
"""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

LARGE = 20_000
"""The characters of a definition that keeps no small one waiting."""


class Reader:
    """The two threads; each is started when it is first needed."""

    def __init__(self) -> None:
        self._threads = {size: ThreadPoolExecutor(1, f"{size} definitions") for size in ("small", "large")}

    async def run(self, length: int, function: Callable[..., T], *arguments: Any) -> T:
        """Returns what the function returns, which reads a definition of so many characters."""
        thread = self._threads["large" if length > LARGE else "small"]
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(thread, context.run, function, *arguments)

    def close(self) -> None:
        """Ends the threads; what waits for them is cancelled."""
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)

"""Finds room on Python's stack without raising the recursion limit, which belongs to the host.

The limit counts the frames of one thread, so a new thread has room for all of them.
"""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def free_frames() -> int:
    """Return how many frames the limit leaves to this thread at least.

    Until Python 3.12 it also counts calls from C, of which no frame tells; they are less than half as many.
    """
    used, frame = 0, sys._getframe()
    while (outer := frame.f_back) is not None:
        used, frame = used + 1, outer
    return sys.getrecursionlimit() - used - used // 2


def on_new_stack(work: Callable[[], T]) -> T:
    """Return what the work returns, which runs in a thread of its own while this one waits; raises what it raises."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as problem:
            done.set_exception(problem)

    thread = threading.Thread(target=copy_context().run, args=(run,), daemon=True)
    thread.start()
    return done.result()

"""Pauses garbage collection while virtual time runs.

A replay keeps nearly everything that it makes, so collecting would cost a fifth of its time and find nothing.
Invariant: afterwards the process collects as before.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collects no garbage within the block."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

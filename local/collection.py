"""Pauses the collection of garbage while virtual time runs.

A replay keeps nearly all that it makes, so collecting costs a fifth of it and finds none. Invariant: afterwards the
process collects as before, or nothing there would ever be collected again.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Collects no garbage within; afterwards it is as before."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

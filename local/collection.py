"""When the interpreter looks for garbage: not while virtual time runs.

A replay keeps nearly all that it makes, so looking for garbage costs a fifth of it and finds none. Invariant: whoever
runs one in its own process has what it had before afterwards; else nothing there would ever be collected again.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Nobody looks for garbage within; what was so before holds again afterwards."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

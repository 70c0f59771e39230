"""Keeps an observer, such as a display, a log or a journal, from breaking what it observes.

    with suppress_failures("the display"):
        screen.show(lanes)

Invariant: no exception leaves the block; each cause is reported once per process, in a line on standard error.
"""

import contextlib
import sys
from collections.abc import Iterator

from local.printable import printable

_MOST = 100
_reported: set[tuple[str, str]] = set()


@contextlib.contextmanager
def suppress_failures(what: str) -> Iterator[None]:
    """Runs the body; an exception in it is reported once and ends only the body."""
    try:
        yield
    except Exception as problem:
        cause = (what, type(problem).__name__)
        if cause in _reported or len(_reported) >= _MOST:
            return
        _reported.add(cause)
        sentence = f"streamkeeper: {what} failed, and the service continues without it: {cause[1]}: {problem}"
        # Standard error may be the closed pipe or be on the full disk.
        with contextlib.suppress(Exception):
            print(printable(sentence).encode("ascii", "backslashreplace").decode(), file=sys.stderr, flush=True)

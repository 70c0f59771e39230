"""Keeps what only watches (a host's report, a journal) from failing what it watches.

Invariant: no exception leaves; each cause of a failure is one line on standard error, once in a process.
"""

import contextlib
import sys
from collections.abc import Iterator

_MOST = 100
_reported: set[tuple[str, str]] = set()


@contextlib.contextmanager
def harmless(what: str) -> Iterator[None]:
    """Runs the body; an exception in it is reported once and ends the body alone."""
    try:
        yield
    except Exception as problem:
        cause = (what, type(problem).__name__)
        if cause in _reported or len(_reported) >= _MOST:
            return
        _reported.add(cause)
        sentence = f"states-language: {what} failed, and the service goes on without it: {cause[1]}: {problem}"
        # Standard error may be the closed pipe or the full disk at fault; controls and odd characters are escaped.
        with contextlib.suppress(Exception):
            sys.stderr.write(sentence.encode("unicode_escape").decode("ascii") + "\n")
            sys.stderr.flush()

"""Runs the same work for many streams, some in parallel, shows the progress, and ends cleanly at Ctrl-C.

Invariant: after Ctrl-C no further step of a stream begins; the same command repeats unfinished steps.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from handlers.api.verdict import plural
from handlers.errors import StoreUnavailable
from local.backup.stream_source import NotRestored
from local.printable import printable, report_if_slow

T = TypeVar("T")
# A single stream mostly waits for answers; this many keep two cores and a new table busy.
THREADS = 8
SHOWN_EVERY_S = 2.0


class Interrupted(Exception):
    """The user has pressed Ctrl-C."""


class Work:
    """Work on many streams; `verb` begins the lines of progress."""

    def __init__(self, verb: str, *, is_quiet: bool) -> None:
        self._verb, self._is_quiet = verb, is_quiet
        self._is_interrupted = threading.Event()
        self._shown_s = time.monotonic()
        self.refused = 0

    def check(self) -> None:
        """Raises Unwanted after Ctrl-C."""
        if self._is_interrupted.is_set():
            raise Interrupted

    def say(self, line: str) -> None:
        """Prints a line about one stream."""
        if not self._is_quiet:
            print(printable(line), file=sys.stderr, flush=True)

    def run_for_each(self, stream_ids: Sequence[str], act: Callable[[str], T]) -> Iterator[tuple[str, T]]:
        """Yields the outcome of each stream; for a refused stream it prints the reason and counts it."""
        done, words = 0, f"{self._verb}: {plural(len(stream_ids), 'stream')} …"
        with report_if_slow(words, is_quiet=self._is_quiet), ThreadPoolExecutor(THREADS) as threads:
            asked = {threads.submit(act, one): one for one in stream_ids}
            try:
                for future in as_completed(asked):
                    try:
                        result = future.result()
                        done += 1
                        yield asked[future], result
                    except (NotRestored, StoreUnavailable) as problem:
                        self.refused += 1
                        print(printable(f"{asked[future]}: {problem}."), file=sys.stderr, flush=True)
                    self._print_progress(done + self.refused, len(asked))
            except BaseException:
                self._is_interrupted.set()
                threads.shutdown(cancel_futures=True)
                if done < len(asked):
                    words = f"{done:,} of {plural(len(asked), 'stream')} done; run the same command for the others."
                    print(f"streamkeeper: {words}", file=sys.stderr)
                raise

    def _print_progress(self, done: int, total: int) -> None:
        if not self._is_quiet and time.monotonic() - self._shown_s > SHOWN_EVERY_S:
            self._shown_s = time.monotonic()
            print(f"{self._verb}: {done:,} of {plural(total, 'stream')}", file=sys.stderr, flush=True)

"""Says on standard error how far a run of chaos has come: one line, rewritten on a terminal, else now and then.

1,240 of 10,000 schedules, 48 a second, all kept the promise, 3 min left
"""

import shutil
import time
from collections.abc import Callable, Iterable
from typing import TextIO

from handlers.api.verdict import counted

# How often a line is rewritten on a terminal, and written elsewhere.
TERMINAL_S, ELSEWHERE_S = 0.2, 15.0
# Before that the rate says more about the start than about the schedules.
KNOWN_S = 3.0


class Progress:
    """Of `total` schedules; `now_s` is a clock that never goes back."""

    def __init__(self, total: int, stream: TextIO, now_s: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._stream = stream
        self._now_s = now_s
        self._is_terminal = stream.isatty()
        self._began_s = self._said_s = now_s()
        self.done = 0
        self.broken = 0

    def add(self, seed: int, kinds: Iterable[str]) -> None:
        """Counts a schedule that is over, and what it broke."""
        self.done += 1
        broken = sorted(set(kinds))
        if broken:
            self.broken += 1
            self.clear()
            print(f"The schedule of seed {seed} broke: {', '.join(broken)}.", file=self._stream, flush=True)
        now_s = self._now_s()
        if now_s - self._said_s >= (TERMINAL_S if self._is_terminal else ELSEWHERE_S):
            self._said_s = now_s
            self._say(self.line())

    def clear(self) -> None:
        """Takes the line from the terminal, where there is one."""
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def line(self) -> str:
        """Returns how far it has come."""
        elapsed_s = self._now_s() - self._began_s
        kept = f"{self.broken:,} broke the promise" if self.broken else "all kept the promise"
        parts = [f"{self.done:,} of {counted(self._total, 'schedule')}", kept]
        if elapsed_s >= KNOWN_S:
            a_second = self.done / elapsed_s
            parts.insert(1, f"{a_second:.0f} a second")
            parts.append(f"{_duration((self._total - self.done) / a_second)} left")
        return ", ".join(parts)

    def _say(self, line: str) -> None:
        if not self._is_terminal:
            print(line, file=self._stream, flush=True)
            return
        # A line that wraps could not be rewritten.
        most = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r\x1b[K{line[:most]}")
        self._stream.flush()


def _duration(length_s: float) -> str:
    if length_s < 90:
        return f"{length_s:.0f} s"
    return f"{length_s / 60:.0f} min" if length_s < 5_400 else f"{length_s / 3_600:.1f} h"

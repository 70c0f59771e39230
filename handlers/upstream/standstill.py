"""Knows when this process last ran: it may stand still, stopped by a signal, starved of CPU or on a suspended host.

A process that stands still notices no close. What it finds when it runs again may have happened at any time since it
last ran, so only the time until then may count as good:

     7.95 s  the pulse ticks
     8.00 s  the process is stopped
     9.50 s  the upstream resets the connection
    20.00 s  the process goes on and reads the reset        known good until 7.95 s, and not until 20 s

Invariant: the first caller notices a standstill of more than `STILL_S`, in whatever order threads run again.
"""

import threading
import time
from collections.abc import Callable

TICK_S = 0.05
STILL_S = 0.1
MOST_STILLS = 32
# If the system has one, a clock that runs on while the host is suspended.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed_s() -> float:
    """Seconds since some instant, which no step of the wall clock changes."""
    return time.clock_gettime(_CLOCK)


class Pulse:
    """When the process ran; `ticks` is called every `TICK_S` while it does, `now_s` is its clock."""

    def __init__(self, now_s: Callable[[], float] = elapsed_s) -> None:
        self._now_s = now_s
        self._ran_s = now_s()
        # The standstills, the oldest first: when the process last ran before it, and when it ran again.
        self._stills: list[tuple[float, float]] = []
        self._lock = threading.Lock()

    def ticks(self) -> float:
        """Records that the process runs; returns the time."""
        with self._lock:
            now_s = self._now_s()
            if now_s - self._ran_s > STILL_S:
                self._stills.append((self._ran_s, now_s))
                if len(self._stills) > MOST_STILLS:
                    # A starved process stutters. Two standstills joined are never shorter than either.
                    (began_s, _), (_, ended_s) = self._stills[:2]
                    self._stills[:2] = [(began_s, ended_s)]
            self._ran_s = now_s
            return now_s

    def still_s(self, since_s: float) -> float | None:
        """Returns when the process last ran before the first standstill that ended after `since_s`, or None."""
        # It is called for each arrival, usually without a standstill.
        if self._now_s() - self._ran_s > STILL_S:
            self.ticks()
        if not self._stills or self._stills[-1][1] <= since_s:
            return None
        with self._lock:
            return next(max(since_s, began_s) for began_s, ended_s in self._stills if ended_s > since_s)


class Ticker:
    """A thread that lets a pulse tick while the block runs, its own unless one is given."""

    def __init__(self, pulse: Pulse | None = None) -> None:
        self.pulse = pulse or Pulse()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self.pulse

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()

    def _run(self) -> None:
        while not self._is_over.wait(TICK_S):
            self.pulse.ticks()

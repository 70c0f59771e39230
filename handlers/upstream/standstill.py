"""Knows when this process last ran: it may stand still, by a signal, for lack of CPU, or in a suspended host.

A process that stands still does not notice a close. Whatever it finds when it runs again may have happened at any time
since it last ran, so only the time until then counts as good:

     7.95 s  the pulse ticks
     8.00 s  the process is stopped
     9.50 s  the upstream resets the connection
    20.00 s  the process runs again and reads the reset        known good until 7.95 s, and not until 20 s

Invariant: the first caller after a standstill of more than `STILL_S` notices it, in whatever order threads run again.
"""

import functools
import socket
import sys
import threading
import time
from collections.abc import Callable

TICK_S = 0.05
STILL_S = 0.1
MOST_STILLS = 32
# Returns seconds since some instant; steps of the wall clock do not change it. It runs on while the host is suspended,
# if the system has such a clock. Each chunk reads it eight times, so no function of ours is called for that.
elapsed_s = functools.partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Pulse:
    """When the process ran: `tick` is called every `TICK_S` while it runs; `now_s` is its clock."""

    def __init__(self, now_s: Callable[[], float] = elapsed_s) -> None:
        self._now_s = now_s
        self._ran_s = now_s()
        # The standstills, oldest first: when the process last ran before each, and when it ran again.
        self._stills: list[tuple[float, float]] = []
        self._lock = threading.Lock()

    def tick(self) -> float:
        """Records that the process runs; returns the time."""
        with self._lock:
            now_s = self._now_s()
            if now_s - self._ran_s > STILL_S:
                self._stills.append((self._ran_s, now_s))
                if len(self._stills) > MOST_STILLS:
                    # A starved process stutters, so standstills are joined: the result is never shorter than either.
                    (began_s, _), (_, ended_s) = self._stills[:2]
                    self._stills[:2] = [(began_s, ended_s)]
            self._ran_s = now_s
            return now_s

    def last_run_before_s(self, since_s: float) -> float | None:
        """Returns when the process last ran before the first standstill that ended after `since_s`, or None."""
        # This is called for each arrival, and there is rarely a standstill.
        if self._now_s() - self._ran_s > STILL_S:
            self.tick()
        if not self._stills or self._stills[-1][1] <= since_s:
            return None
        with self._lock:
            return next(max(since_s, began_s) for began_s, ended_s in self._stills if ended_s > since_s)


class Ticker:
    """A thread that makes a pulse tick while the block runs: the given one, or one of its own."""

    def __init__(self, pulse: Pulse | None = None) -> None:
        self.pulse = pulse or Pulse()
        # Held while the block runs. Waiting for it costs a third of waiting for an Event, which makes a lock each time.
        self._block = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def __enter__(self) -> Pulse:
        self._block.acquire()
        self._thread.start()
        return self.pulse

    def __exit__(self, *_error: object) -> None:
        self._block.release()

    def _run(self) -> None:
        while not self._block.acquire(timeout=TICK_S):
            self.pulse.tick()


def waiting_bytes(connected: socket.socket) -> int:
    """Returns how many bytes wait at a socket; over TLS, those on the wire, which are more."""
    # Imported after the first standstill: most connections have none.
    import fcntl
    import termios

    try:
        return int.from_bytes(fcntl.ioctl(connected, termios.FIONREAD, bytes(4)), sys.byteorder)
    except (OSError, ValueError):  # the socket is closed already
        return 0

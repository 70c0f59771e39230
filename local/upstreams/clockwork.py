"""Makes events that are a pure function of the wall clock: event n happens at n times the interval after the epoch.

Invariant: two upstreams, or one before and after a restart, offer the same events; so a reader can ask for whatever it
missed in the last ten minutes.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

KEPT_MS = 600_000
_MOST_AT_ONCE = 200


def now_ms() -> int:
    """Returns the wall clock in epoch milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Clockwork:
    """Numbered events every `interval_ms`, and a heartbeat after `heartbeat_ms` of silence."""

    interval_ms: int = 100
    heartbeat_ms: int = 5_000

    def at_ms(self, number: int) -> int:
        """Returns when event `number` happens, in epoch milliseconds."""
        return number * self.interval_ms

    def first_after(self, cursor: str | None, at_ms: int) -> int:
        """Returns the number of the first event for a reader that connects at `at_ms` after `cursor`.

        Without a usable cursor it is the next event; events older than ten minutes are not offered.
        """
        newest = at_ms // self.interval_ms
        if cursor is None or not (cursor.isascii() and cursor.isdigit()) or int(cursor) > newest:
            return newest + 1
        return max(int(cursor) + 1, (at_ms - KEPT_MS) // self.interval_ms + 1)

    async def run(self, first: int, end: asyncio.Event) -> AsyncIterator[range]:
        """Yields runs of numbers as they fall due, an empty run as a heartbeat, until `end` is set."""
        number, last_sent_ms = first, now_ms()
        while not end.is_set():
            due = min(now_ms() // self.interval_ms + 1, number + _MOST_AT_ONCE)
            if due > number:
                yield range(number, due)
                number, last_sent_ms = due, now_ms()
                continue
            if now_ms() - last_sent_ms >= self.heartbeat_ms:
                yield range(0)
                last_sent_ms = now_ms()
            wait_ms = min(self.at_ms(number), last_sent_ms + self.heartbeat_ms) - now_ms()
            await _wait(end, max(wait_ms, 1) / 1000)


async def _wait(end: asyncio.Event, for_s: float) -> None:
    try:
        async with asyncio.timeout(for_s):
            await end.wait()
    except TimeoutError:
        return

"""Computes which events exist by the wall clock: event n happens at n times the interval after the epoch.

Invariant: two upstreams offer the same events, and so does one upstream before and after a restart. So a reader can
request whatever it missed in the last ten minutes.
"""

import asyncio
import contextlib
import math
import re
from collections.abc import AsyncIterator
from datetime import datetime

from handlers.aws.lambda_environment import now_ms
from local.upstreams.behaviours import Behaviour

KEPT_MS = 600_000
_MOST_AT_ONCE = 200
_LAST_NUMBER = re.compile(r"[0-9]{1,18}(?=[^0-9]*$)")


def oldest_number(behaviour: Behaviour, at_ms: int) -> int:
    """Returns the number of the oldest event that is still offered."""
    return (at_ms - KEPT_MS) // behaviour.interval_ms + 1


def first_number(behaviour: Behaviour, cursor: str | None, at_ms: int) -> int:
    """Returns the number of the first event that a request with `cursor` gets; without a cursor, the next event's.

    Raises ValueError for a cursor that should be an instant but is not.
    """
    newest = at_ms // behaviour.interval_ms
    if cursor and behaviour.is_cursor_instant:
        since_ms = datetime.fromisoformat(cursor).timestamp() * 1000
        return min(math.ceil(since_ms / behaviour.interval_ms), newest + 1)
    match = _LAST_NUMBER.search(cursor or "")
    if match is None:
        return newest + 1
    if behaviour.backfill:
        return newest - behaviour.backfill + 1
    return min(int(match[0]) + (not behaviour.is_inclusive), newest + 1)


async def due_numbers(behaviour: Behaviour, first: int, end: asyncio.Event) -> AsyncIterator[range]:
    """Yields ranges of numbers as they fall due, an empty range as a heartbeat after silence, until `end` is set."""
    number, last_sent_ms = first, now_ms()
    while not end.is_set():
        until = min(now_ms() // behaviour.interval_ms + 1, number + _MOST_AT_ONCE)
        if until > number:
            yield range(number, until)
            number, last_sent_ms = until, now_ms()
            continue
        if now_ms() - last_sent_ms >= behaviour.heartbeat_ms:
            yield range(0)
            last_sent_ms = now_ms()
        wait_ms = min(number * behaviour.interval_ms, last_sent_ms + behaviour.heartbeat_ms) - now_ms()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(end.wait(), max(wait_ms, 1) / 1000)

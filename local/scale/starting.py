"""Starts thousands of streams at once in virtual time, as after a region's outage: POSTs, their retries, and the quota.

Each client waits at random before its first POST. Behind the API a POST asks StartExecution and, where it is refused,
once more within a second (`statemachines/start.asl.yml`, `once_more`). One that was refused twice is answered by 503,
and its client comes again after a back-off with full jitter. The quota is a token bucket. Invariant: every stream is
started in the end, once.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

# What a client should do that is answered by 503: back off from this, doubled each time, up to this, drawn from 0 on.
BACKOFF_S, BACKOFF_MOST_S = 2.0, 60.0
RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Started:
    """How it went: requests that the quota refused, answers of 503, and after how many seconds all had been started."""

    streams: int
    spread_s: float
    refused: int
    unavailable: int
    over_after_s: float


def start(streams: int, spread_s: float, bucket: int, refill_per_s: float, seed: int = 1) -> Started:
    """Starts so many streams, each with an execution of its own, whose POSTs are spread over so many seconds."""
    draws = random.Random(seed)
    # When, whose, how many POSTs were refused, and whether it is the machine's own retry.
    due = [(draws.uniform(0, spread_s), stream, 0, False) for stream in range(streams)]
    heapq.heapify(due)
    tokens, before_s = float(bucket), 0.0
    refused = unavailable = 0
    at_s = 0.0
    while due:
        at_s, stream, times, is_retry = heapq.heappop(due)
        tokens, before_s = min(bucket, tokens + (at_s - before_s) * refill_per_s), at_s
        if tokens >= 1:
            tokens -= 1
            continue
        refused += 1
        if not is_retry:
            heapq.heappush(due, (at_s + draws.uniform(0, RETRY_S), stream, times, True))
            continue
        unavailable += 1
        rest_s = draws.uniform(0, min(BACKOFF_MOST_S, BACKOFF_S * 2.0**times))
        heapq.heappush(due, (at_s + rest_s, stream, times + 1, False))
    return Started(streams, spread_s, refused, unavailable, at_s)

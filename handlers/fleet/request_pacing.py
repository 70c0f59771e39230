"""Decides which request is made next, and when: as many a second as are not refused, each until it is answered.

The rate begins low, grows up to `most_per_s` while nothing is refused, and is halved when AWS or the service refuses. A
refused request is repeated after a back-off with full jitter; after TRIES it is left to the next round. Sans-I/O: the
caller calls `next_request`, makes the request, and reports its outcome. Invariants: a stream has one request at a time;
all streams up to `position` are answered, so continuing after it misses none.
"""

import heapq
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Any

from handlers.values import dataclass

# Requests a second: at first, the increase each second until a refusal, and the increase after that.
FIRST_PER_S, GROWTH, GROWTH_AFTER = 20.0, 10.0, 1.0
# Refusals within this time have one cause: the rate is halved once.
ONE_CAUSE_MS = 2_000
TRIES = 8
BACKOFF_MS, BACKOFF_MOST_MS = 1_000, 30_000
# Within these bounds, as many requests are under way as may be sent in a second. A request takes some hundred
# milliseconds; if it takes longer, something is at its limit.
LEAST_AT_ONCE, AT_ONCE = 3, 48
# Until an answer comes there is no request to make; the answer wakes the caller.
UNTIL_ANSWERED_MS = 100


# In a group, each start writes three units to one partition, which takes 1,000. A stream of its own needs one more
# function, of which Lambda adds 100 a second, and seven state transitions of 800 a second (local/scale/quotas.toml).
GROUPED_PER_S, ALONE_PER_S = 150.0, 90.0


def most_per_s(streams_per_function: int) -> float:
    """Returns the most streams started a second, which is below every quota of a new account in a small region."""
    return GROUPED_PER_S if streams_per_function > 1 else ALONE_PER_S


class Outcome(Enum):
    """The outcome of a request for a stream."""

    DONE = "done"
    # Too many requests, or no answer: the same request may succeed later.
    REFUSED = "refused"
    # The same request would fail again in this round.
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A stream that is to be started, or stopped; `is_known` if it is starting, so the request may change nothing."""

    stream_id: str
    is_connected: bool
    tries: int = 0
    is_known: bool = False


class Rate:
    """How many requests may be sent a second: fewer after a refusal, more while there is none."""

    def __init__(self, most_per_s: float, now_ms: int) -> None:
        self.most_per_s, self.per_s = most_per_s, min(FIRST_PER_S, most_per_s)
        self._growth = GROWTH
        self._at_ms, self._free_ms, self._refused_ms = now_ms, float(now_ms), now_ms - ONE_CAUSE_MS

    def take(self, now_ms: int) -> int:
        """Returns 0 if a request may be sent now, and counts it as sent; else after how many milliseconds one may."""
        if now_ms - self._refused_ms >= ONE_CAUSE_MS:
            self.per_s = min(self.most_per_s, self.per_s + self._growth * (now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms
        if self._free_ms > now_ms:
            return max(1, round(self._free_ms - now_ms))
        # Unused capacity is kept for one request only, so no burst follows a pause.
        self._free_ms = max(self._free_ms, now_ms - 1000 / self.per_s) + 1000 / self.per_s
        return 0

    def halve(self, now_ms: int) -> None:
        """Halves the rate, once for refusals of one cause."""
        if now_ms - self._refused_ms >= ONE_CAUSE_MS:
            self.per_s = max(1.0, self.per_s / 2)
            self._refused_ms, self._growth = now_ms, GROWTH_AFTER


class Unpaced(Rate):
    """The rate of a dry run, which sends no request."""

    def take(self, now_ms: int) -> int:  # noqa: ARG002
        """Returns 0: a request may be sent now."""
        return 0


class RequestQueue:
    """The requests for the streams, in their order unless one is refused; `draw` returns a number from 0 to 1.

    A text among `requests` is the id up to which all are known.
    """

    def __init__(
        self, requests: Iterator[StreamRequest | str], rate: Rate, draw: Callable[[], float], position: str = ""
    ) -> None:
        self._requests, self._rate, self._draw = requests, rate, draw
        self._next: StreamRequest | str | None = None
        self._again: list[tuple[int, str, StreamRequest]] = []
        # For each stream without an answer yet, the id of the stream before it.
        self._waiting: dict[str, str] = {}
        self._last = position
        self._under_way = 0
        # The streams behind `position` that are done: a later step begins there, and requests them again.
        self._done: list[tuple[bytes, str]] = []
        self._counts: Counter[str] = Counter()
        self.failed: dict[str, str] = {}

    def next_request(self, now_ms: int) -> StreamRequest | int | None:
        """Returns what to request now, or in how many milliseconds to ask again; None once all is answered."""
        if self._under_way >= min(AT_ONCE, max(LEAST_AT_ONCE, self._rate.per_s)):
            return UNTIL_ANSWERED_MS
        is_again = bool(self._again) and self._again[0][0] <= now_ms
        if not is_again and self._next is None:
            self._next = next(self._requests, None)
        if isinstance(self._next, str):
            # The streams up to this id need nothing more; reading on may take long, so the caller decides again.
            self._last, self._next = self._next, None
            return 1
        if not is_again and self._next is None:
            if not self._again:
                return UNTIL_ANSWERED_MS if self._under_way else None
            return max(1, self._again[0][0] - now_ms)
        if wait_ms := self._rate.take(now_ms):
            return wait_ms
        if is_again:
            ask = heapq.heappop(self._again)[2]
        else:
            assert self._next is not None
            ask, self._next = self._next, None
            self._waiting[ask.stream_id], self._last = self._last, ask.stream_id
        self._under_way += 1
        return ask

    def record_outcome(self, ask: StreamRequest, outcome: Outcome, why: str, now_ms: int) -> None:
        """Records the outcome of a request; `why` is a sentence if it was not done."""
        self._under_way -= 1
        if outcome is Outcome.REFUSED:
            self._counts["refused"] += 1
            self._rate.halve(now_ms)
            if ask.tries + 1 < TRIES:
                rest_ms = self._draw() * min(BACKOFF_MOST_MS, BACKOFF_MS * 2**ask.tries)
                again = replace(ask, tries=ask.tries + 1)
                heapq.heappush(self._again, (now_ms + round(rest_ms), ask.stream_id, again))
                return
        del self._waiting[ask.stream_id]
        if outcome is Outcome.DONE and not ask.is_known:
            heapq.heappush(self._done, (ask.stream_id.encode(), "started" if ask.is_connected else "stopped"))
        elif outcome is not Outcome.DONE:
            self.failed[ask.stream_id] = why

    @property
    def counts(self) -> Counter[str]:
        """How many streams up to `position` were started and stopped, and how many requests were refused."""
        while self._done and self._done[0][0] <= self.position.encode():
            self._counts[heapq.heappop(self._done)[1]] += 1
        return self._counts

    @property
    def position(self) -> str:
        """The id up to which all requests are answered."""
        return next(iter(self._waiting.values()), self._last)

    @property
    def per_s(self) -> float:
        """How many requests a second may be sent now."""
        return self._rate.per_s


_MANY = re.compile(r"Throttl|TooManyRequests|LimitExceeded|QuotaExceeded")


def start_stream(states: Any, machine_arn: str, stream_id: str) -> tuple[Outcome, str]:
    """Returns the outcome, and the stream's execution, or why the start failed.

    `states` is boto3's client of Step Functions.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    # As packaging/start-request.yml has it.
    text = json.dumps({"pathParameters": {"streamId": stream_id}})
    try:
        answer = states.start_sync_execution(stateMachineArn=machine_arn, input=text)
    except ClientError as refusal:
        error = refusal.response.get("Error", {})
        if error.get("Code") == "ExecutionLimitExceeded":
            return Outcome.FAILED, "no more executions may run here"
        is_server = refusal.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500) >= 500
        may_pass = is_server or _MANY.search(error.get("Code", ""))
        why = f"Step Functions refused the start: {error.get('Code', 'unknown')}"
        return (Outcome.REFUSED if may_pass else Outcome.FAILED), why
    except BotoCoreError as problem:
        return Outcome.REFUSED, f"Step Functions did not answer the start: {type(problem).__name__}"
    if answer["status"] == "SUCCEEDED":
        output = json.loads(answer.get("output", "{}"))
        # packaging/profiles-bucket.cjs has this output.
        if output == "UnknownStream":
            return Outcome.FAILED, "no profile has its name"
        return Outcome.DONE, output.get("executionArn", "")
    error = answer.get("error") or answer["status"]
    return Outcome.REFUSED, "AWS accepts no more starts now" if error == "Throttled" else "the start was not answered"

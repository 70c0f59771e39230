"""Sends messages of one stream to one sink as the sink's promises allow, and returns the outcome of each.

Pure except for `send`. Invariants: if a sink keeps an order, no message is sent before all earlier ones were taken
or are known to be poison; each message has one outcome; a batch keeps the sink's limits; at most PARALLEL requests are
under way.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from handlers.deliver.contract import Message, Order, Promises, Refusal
from handlers.values import dataclass

Send = Callable[[Sequence[Message]], Mapping[int, Refusal]]
# Runs a function for each of a few batches, one after the other or at the same time; returns the results in order.
Each = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
# How many requests are under way at once at a sink without an order.
PARALLEL = 8
# A sink that fails is tried again after 1, 2, 4 and 8 s, then after 1 minute, which doubles up to 5; later if it asks
# for that (`Refusal.rest_ms`).
SHORT_RESTS_MS = (1_000, 2_000, 4_000, 8_000)
REST_MS, LONGEST_REST_MS = 60_000, 300_000
TAKEN = Refusal("")
LATE = Refusal("there was no time left")


@dataclass(slots=True)
class Outcomes:
    """The outcomes of the messages."""

    taken: list[Message] = field(default_factory=list)
    poison: list[tuple[Message, str]] = field(default_factory=list)
    waiting: list[tuple[Message, Refusal]] = field(default_factory=list)

    def add(self, message: Message, refusal: Refusal) -> bool:
        """Records the outcome of one message; returns whether it waits."""
        if refusal is TAKEN:
            self.taken.append(message)
        elif refusal.is_final:
            self.poison.append((message, refusal.reason))
        else:
            self.waiting.append((message, refusal))
        return refusal is not TAKEN and not refusal.is_final

    @property
    def refusals(self) -> list[Refusal]:
        """Why the sink did not take those that wait; nothing of those for which there was no time."""
        return [refusal for _, refusal in self.waiting if refusal is not LATE]

    @property
    def rest_ms(self) -> int:
        """How long the sink asks to be left alone, LONGEST_REST_MS at most."""
        return min(max((refusal.rest_ms for refusal in self.refusals), default=0), LONGEST_REST_MS)


def send_all(
    messages: Iterable[Message],
    promises: Promises,
    send: Send,
    is_late: Callable[[], bool],
    *,
    in_order: bool = True,
    each: Each = map,
) -> Outcomes:
    """Sends the messages until each is taken or poison, until one has to wait, or until time is up.

    With an order, one request follows the other; without one, `each` makes several.
    """
    outcomes = Outcomes()
    order = promises.order if in_order or promises.order != "message" else "none"
    queue: deque[Message] = deque()
    for message in messages:
        if message.size_bytes + promises.around_bytes > promises.most_message_bytes:
            reason = f"too large for the sink: {message.size_bytes} bytes of {promises.most_message_bytes}"
            outcomes.add(message, Refusal(reason, is_final=True))
        else:
            queue.append(message)
    stopped: Refusal | None = None
    while queue and stopped is None:
        if is_late():
            stopped = LATE
            break
        several = [list(_take_batch(queue, promises, order))]
        while order == "none" and queue and len(several) < PARALLEL:
            several.append(list(_take_batch(queue, promises, order)))
        for tried in each(lambda batch: list(_try_batch(batch, send, order)), several):
            for message, refusal in tried:
                if outcomes.add(message, refusal):
                    stopped = stopped or refusal
    for message in queue:
        assert stopped is not None
        outcomes.add(message, stopped)
    return outcomes


def _try_batch(batch: Sequence[Message], send: Send, order: Order) -> Iterator[tuple[Message, Refusal]]:
    """Yields the outcome of each message of a batch; retries it in halves if all were refused for good.

    Then the sink does not show which of the messages is at fault.
    """
    refusals = send(batch)
    is_whole = len(batch) > 1 and len(refusals) == len(batch) and all(one.is_final for one in refusals.values())
    if not is_whole:
        for at, message in enumerate(batch):
            yield message, refusals.get(at, TAKEN)
        return
    stopped: Refusal | None = None
    half = len(batch) // 2
    for part in (batch[:half], batch[half:]):
        for message, refusal in ((one, stopped) for one in part) if stopped else _try_batch(part, send, order):
            if refusal is not TAKEN and not refusal.is_final and order != "none":
                stopped = refusal
            yield message, refusal


def _take_batch(queue: deque[Message], promises: Promises, order: Order) -> Iterator[Message]:
    """Takes the next batch out of the queue."""
    size = count = 0
    # If messages have an order, a request that may be refused in part holds one message.
    most = 1 if order == "message" else promises.most_messages
    apart = promises.apart(queue[0])
    while queue and count < most and promises.apart(queue[0]) == apart:
        weight = queue[0].size_bytes + promises.around_bytes
        if count and size + weight > promises.most_bytes:
            return
        size, count = size + weight, count + 1
        yield queue.popleft()


def rest_ms(failures: int) -> int:
    """Returns the back-off of a sink after this many tries in a row without an event taken."""
    if failures <= len(SHORT_RESTS_MS):
        return SHORT_RESTS_MS[failures - 1]
    return min(REST_MS << min(failures - len(SHORT_RESTS_MS) - 1, 10), LONGEST_REST_MS)

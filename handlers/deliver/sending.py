"""Sends messages of one stream to one sink as the sink's promises allow, and returns the outcome of each.

Pure except for `send`. Invariants: if a sink keeps an order, no message is sent before all earlier ones were taken or
are known to be poison; each message has one outcome; a batch keeps the sink's limits; at most PARALLEL requests run.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
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
# How long after it took an event a sink is not away.
NEAR_MS = 15_000
Name = tuple[str, str]
TAKEN = Refusal("")
LATE = Refusal("there was no time left")


@dataclass(slots=True)
class Outcomes:
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
    passes: bool = False,
    each: Each = map,
) -> Outcomes:
    """Sends the messages until each is taken or poison, until one has to wait, or until time is up.

    With an order, one request follows the other; without one, `each` makes several, and if it `passes` what is refused,
    others follow while the sink takes most.
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
        before = len(outcomes.taken)
        tried = each(lambda batch: list(_try_batch(batch, send, order)), several)
        refused = [refusal for part in tried for message, refusal in part if outcomes.add(message, refusal)]
        if refused and (not passes or outcomes.rest_ms or len(refused) > len(outcomes.taken) - before):
            stopped = refused[0]
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


def name_of(message: Message) -> Name:
    """Returns what tells a stream's messages apart."""
    return message.key, message.position


@dataclass
class Requests:
    """The requests of one worker; `size` is how many events one has at most, because a sink may refuse large ones."""

    promises: Promises
    send: Send
    now_ms: Callable[[], int]
    each: Each
    in_order: bool
    size: int = 0
    _since_ms: dict[Name, int] = field(default_factory=dict)
    _took_ms: int = 0
    _knows_refused: bool = True
    _slowest_ms: int = 0

    def __post_init__(self) -> None:
        self.size = self.promises.most_messages

    def send_messages(self, messages: Sequence[Message], is_late: Callable[[], bool]) -> tuple[Outcomes, int]:
        """Sends messages until it is late; returns the outcomes, and how long the slowest request took, 0 for none."""
        is_ordered = self.in_order and self.promises.order != "none"
        self._knows_refused, self._slowest_ms = True, 0
        promises = replace(self.promises, most_messages=self.size)
        outcomes = send_all(
            messages, promises, self._send_timed, is_late, in_order=self.in_order, passes=not is_ordered, each=self.each
        )
        if not outcomes.refusals:
            self.size = min(self.promises.most_messages, 2 * self.size)
        elif not (is_ordered or (outcomes.taken and self._knows_refused)):
            self.size = max(1, min(self.size, len(messages)) // 2)
        return outcomes, self._slowest_ms

    def to_set_apart(self, messages: Sequence[Message], finished: Container[Name]) -> list[Message]:
        """Returns the first messages that the sink refused, and took another just before, or later.

        `finished` are those that are done.
        """
        passed = list[Message]()
        for one in messages:
            if (name := name_of(one)) not in finished:
                if not 0 < self._since_ms.get(name, 0) <= self._took_ms + NEAR_MS:
                    break
                passed.append(one)
        return passed

    def _send_timed(self, batch: Sequence[Message]) -> Mapping[int, Refusal]:
        began_ms = self.now_ms()
        refusals = self.send(batch)
        now_ms = self.now_ms()
        self._slowest_ms = max(self._slowest_ms, now_ms - began_ms, 1)
        if len(refusals) < len(batch):
            self._took_ms = now_ms
        if 1 < len(batch) == len(refusals):
            self._knows_refused = False
        else:
            for at in refusals:
                self._since_ms.setdefault(name_of(batch[at]), began_ms)
        return refusals

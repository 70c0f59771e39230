"""Sends messages to one sink by what it promises, and returns the outcome of each.

Pure but for `send`. Messages are sent in the order of their positions. Invariants: where a sink keeps an order, no
message is sent before all earlier ones of its stream were taken or are known to be poison; each message has one
outcome; a batch keeps the sink's limits.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from handlers.deliver.contract import Message, Order, Promises, Refusal

Send = Callable[[Sequence[Message]], Mapping[int, Refusal]]
TAKEN = Refusal("")
LATE = Refusal("there was no time left")


@dataclass(slots=True)
class Outcomes:
    """The outcomes of the messages, by their place among those that were given."""

    taken: list[Message] = field(default_factory=list)
    poison: list[tuple[Message, str]] = field(default_factory=list)
    waiting: list[tuple[Message, str]] = field(default_factory=list)

    def add(self, message: Message, refusal: Refusal) -> None:
        """Records the outcome of one message."""
        if refusal is TAKEN:
            self.taken.append(message)
        elif refusal.is_final:
            self.poison.append((message, refusal.reason))
        else:
            self.waiting.append((message, refusal.reason))


def send_all(
    messages: Iterable[Message], promises: Promises, send: Send, is_late: Callable[[], bool], *, in_order: bool = True
) -> Outcomes:
    """Sends the messages until all are taken, poison or behind one that waits, or until it is late."""
    outcomes = Outcomes()
    order = promises.order if in_order or promises.order != "message" else "none"
    queues: dict[str, deque[Message]] = {}
    for message in sorted(messages, key=lambda one: (one.stream_id, one.position)):
        if message.size_bytes + promises.around_bytes > promises.most_message_bytes:
            reason = f"too large for the sink: {message.size_bytes} bytes of {promises.most_message_bytes}"
            outcomes.add(message, Refusal(reason, is_final=True))
        else:
            queues.setdefault(message.stream_id, deque()).append(message)
    while queues:
        if is_late():
            _drop(queues, list(queues), LATE, outcomes)
            return outcomes
        batch = list(_batch(queues, promises, order))
        for stream_id in [stream_id for stream_id, queue in queues.items() if not queue]:
            del queues[stream_id]
        stopped: dict[str, Refusal] = {}
        for message, refusal in _tried(batch, send, order):
            outcomes.add(message, refusal)
            if refusal is not TAKEN and not refusal.is_final:
                stopped[message.stream_id] = refusal
        for stream_id, refusal in stopped.items():
            _drop(queues, [stream_id], refusal, outcomes)
    return outcomes


def _tried(batch: Sequence[Message], send: Send, order: Order) -> Iterator[tuple[Message, Refusal]]:
    """The outcome of each message of a batch; one that is refused for good as a whole is tried message by message.

    For a sink names the batch, and not which message in it is at fault.
    """
    refusals = send(batch)
    is_whole = len(batch) > 1 and len(refusals) == len(batch) and all(one.is_final for one in refusals.values())
    if not is_whole:
        for at, message in enumerate(batch):
            yield message, refusals.get(at, TAKEN)
        return
    stopped: dict[str, Refusal] = {}
    for message in batch:
        refusal = stopped.get(message.stream_id) or send([message]).get(0, TAKEN)
        if refusal is not TAKEN and not refusal.is_final and order != "none":
            stopped[message.stream_id] = refusal
        yield message, refusal


def _batch(queues: Mapping[str, deque[Message]], promises: Promises, order: Order) -> Iterator[Message]:
    """Takes the next batch out of the queues."""
    size = count = 0
    for queue in islice(queues.values(), 1) if promises.is_per_stream else queues.values():
        while queue and count < promises.most_messages:
            weight = queue[0].size_bytes + promises.around_bytes
            if count and size + weight > promises.most_bytes:
                return
            size, count = size + weight, count + 1
            yield queue.popleft()
            if order == "message":
                break


def _drop(queues: dict[str, deque[Message]], streams: Iterable[str], refusal: Refusal, outcomes: Outcomes) -> None:
    """Everything that is left of these streams waits."""
    for stream_id in streams:
        for message in queues.pop(stream_id, ()):
            outcomes.add(message, refusal)

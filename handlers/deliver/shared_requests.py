"""Lets streams that send to one sink at the same time share a request, in which each has one message.

A request to an ordered queue or data stream holds only one message of each stream, because the sink might refuse that
one and take the next. The bells of a call are answered in threads beside each other (handlers/delivery.py): while a
request is under way, the messages of other streams gather for the next one. A request does not wait for messages that
may still come. Invariants: a request holds at most one message of each stream; a message is refused for good only if it
was alone in its request.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from handlers.deliver.contract import Message, Promises, Refusal
from handlers.deliver.sending import Send
from handlers.profile.deliver_field import Target
from handlers.values import dataclass

Sending = tuple[Promises, Send]


@dataclass(eq=False)
class _Part:
    """A stream's message. When `turn` is set, it has its `refusals`, or its thread makes the next request."""

    batch: Sequence[Message]
    turn: threading.Event = field(default_factory=threading.Event)
    refusals: Mapping[int, Refusal] | None = None
    must_be_alone: bool = False  # It was refused for good together with others.


class _SharedSender:
    """The messages for one sink."""

    def __init__(self, promises: Promises, send: Send) -> None:
        self._promises, self._send = promises, send
        self._lock = threading.Lock()
        self._waiting: list[_Part] = []
        self._is_busy = False

    def send(self, batch: Sequence[Message]) -> Mapping[int, Refusal]:
        part = _Part(batch)
        with self._lock:
            self._waiting.append(part)
            leads, self._is_busy = not self._is_busy, True
        if not leads:
            part.turn.wait()
        if part.refusals is None and not part.must_be_alone:
            self._send_for_all(part)
        return self._send(batch) if part.refusals is None else part.refusals

    def _send_for_all(self, own: _Part) -> None:
        """Makes one request for all parts that wait, as far as they fit, then gives the next part its turn."""
        with self._lock:
            self._waiting.remove(own)
            parts, size, streams = [own], _size(own, self._promises), {own.batch[0].stream_id}
            for part in list(self._waiting):
                size += _size(part, self._promises)
                if len(parts) == self._promises.most_messages or size > self._promises.most_bytes:
                    break
                if part.batch[0].stream_id not in streams:
                    self._waiting.remove(part)
                    streams.add(part.batch[0].stream_id)
                    parts.append(part)
                    part.must_be_alone = True  # Unless the request is answered.
        try:
            refusals = self._send([part.batch[0] for part in parts])
            final = sum(one.is_final for one in refusals.values())
            are_alone = final == len(parts) > 1
            for at, part in enumerate(parts):
                part.must_be_alone = are_alone
                part.refusals = None if are_alone else {0: refusals[at]} if at in refusals else {}
        finally:
            with self._lock:
                following = next(iter(self._waiting), None)
                self._is_busy = following is not None
            for part in (*parts[1:], *([] if following is None else [following])):
                part.turn.set()


def _size(part: _Part, promises: Promises) -> int:
    return part.batch[0].size_bytes + promises.around_bytes


class SharedRequests:
    """The requests of one call of the function."""

    def __init__(self, sending: Callable[[Target], Sending]) -> None:
        self._make_sender = sending
        self._lock = threading.Lock()
        self._senders: dict[tuple[str, str], _SharedSender] = {}

    def sender_of(self, target: Target) -> Sending:
        """Returns the target's promises, and how to send to it: in shared requests if they hold one message each."""
        promises, send = self._make_sender(target)
        if promises.order != "message" or not target.in_order or promises.most_messages == 1:
            return promises, send
        with self._lock:
            gathered = self._senders.setdefault((target.kind, target.name), _SharedSender(promises, send))
        return promises, gathered.send

"""Reads what dead-letter messages say: an event, a stream that ended, or neither.

handlers/store/overflow.py writes the first kind, in parts where it must, and the machine the second. Pure.
Invariant: an event is returned only where every byte of it is there; any other text is a `Remaining` with a reason.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from handlers.api import status_words
from handlers.framing.events import StreamEvent


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was received; `receipt` is what deletes it."""

    id: str
    receipt: str
    body: str


@dataclass(frozen=True, slots=True)
class Letter:
    """What one message says, or the parts of one together; `reason` is why it was sent."""

    messages: tuple[Message, ...]
    stream_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class EventLetter(Letter):
    """A whole event, which could not be stored; `fence` is the token of the connection that had it."""

    fence: int
    event: StreamEvent


@dataclass(frozen=True, slots=True)
class EndLetter(Letter):
    """A stream that was rejected, or could not be claimed."""


@dataclass(frozen=True, slots=True)
class Remaining(Letter):
    """What cannot be put back; `problem` says why. `key` is the event's, "" where there is none."""

    problem: str
    key: str


@dataclass(frozen=True, slots=True)
class Incomplete(Remaining):
    """An event of which parts have not come: they were deleted when it was stored, or are lost."""


NOT_OURS = "it is not a message of Streamkeeper's"
# Far more than an event of the largest frame has.
MOST_PARTS = 1000


@dataclass(frozen=True, slots=True)
class _About:
    """What each message of an event says of it."""

    stream_id: str
    fence: int
    key: str
    reason: str

    @classmethod
    def read(cls, fields: dict[str, Any]) -> "_About":
        stream_id, key, reason = (_text(fields[name]) for name in ("stream", "key", "reason"))
        if not (stream_id and key):
            raise ValueError
        return cls(stream_id, int(fields["fence"]), key, reason)


@dataclass(slots=True)
class _Parts:
    """The parts of one event that have come, by their number."""

    count: int
    pieces: dict[int, bytes] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)


class Reader:
    """Reads messages in any order; what has parts is returned when the last of them has come."""

    def __init__(self) -> None:
        self._parts: dict[tuple[_About, int], _Parts] = {}

    def read(self, message: Message) -> Letter | None:
        """What the message says; None where other parts are still to come."""
        try:
            fields = json.loads(message.body)
            if "error" in fields:
                return _end(message, fields)
            if "sink" in fields:
                return _undelivered(message, fields)
            if "event" in fields:
                return _event([message], _About.read(fields), fields["event"])
            return self._part(message, fields)
        except _MALFORMED:
            return Remaining((message,), "", "", NOT_OURS, "")

    def incomplete(self) -> Iterator[Letter]:
        """What is left of events of which a part has not come."""
        for (about, count), parts in self._parts.items():
            missing = count - len(parts.pieces)
            lacks = f"{missing} {'is' if missing == 1 else 'are'} not in the queue"
            problem = f"of its {count} parts {lacks}"
            yield Incomplete(tuple(parts.messages), about.stream_id, about.reason, problem, about.key)

    def _part(self, message: Message, fields: dict[str, Any]) -> Letter | None:
        about, number, count = _About.read(fields), int(fields["part"]), int(fields["parts"])
        piece = base64.b64decode(fields["event_base64"], validate=True)
        if not 1 <= number <= count <= MOST_PARTS:
            raise ValueError
        parts = self._parts.setdefault((about, count), _Parts(count))
        parts.pieces[number] = piece
        parts.messages.append(message)
        if len(parts.pieces) < count:
            return None
        del self._parts[about, count]
        try:
            content = json.loads(b"".join(parts.pieces[n] for n in range(1, count + 1)))
            return _event(parts.messages, about, content)
        except _MALFORMED:
            return Remaining(tuple(parts.messages), "", "", NOT_OURS, "")


_MALFORMED = (AttributeError, KeyError, TypeError, ValueError, RecursionError)


def _event(messages: Iterable[Message], about: _About, content: dict[str, Any]) -> Letter:
    if "size_bytes" in content:
        kept = len(base64.b64decode(content["head"]))
        problem = f"of its {int(content['size_bytes'])} bytes the first {kept} were kept alone"
        return Remaining(tuple(messages), about.stream_id, about.reason, problem, about.key)
    data: str | bytes = _text(content["data"])
    if content["encoding"] == "base64":
        data = base64.b64decode(data, validate=True)
    elif content["encoding"] != "text":
        raise ValueError
    own_id, name = (None if content[one] is None else _text(content[one]) for one in ("id", "name"))
    event = StreamEvent(about.key, data, own_id, name, None, int(content["received_at_ms"]))
    return EventLetter(tuple(messages), about.stream_id, about.reason, about.fence, event)


def _undelivered(message: Message, fields: dict[str, Any]) -> Letter:
    stream_id, sink, key, reason = (_text(fields[name]) for name in ("stream", "sink", "key", "reason"))
    return Remaining((message,), stream_id, reason, f"it was not delivered to {sink}; the table has it", key)


def _end(message: Message, fields: dict[str, Any]) -> Letter:
    stream_id, reason = _text(fields["stream"]), f"{fields['error']}: {status_words.of_cause(_text(fields['cause']))}"
    if not stream_id:
        return Remaining((message,), "", reason, "it names no stream", "")
    return EndLetter((message,), stream_id, reason)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value

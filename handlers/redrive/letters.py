"""Reads dead-letter messages: each has an event, a stream that ended, a gap that stays open, or none of these.

handlers/store/overflow.py writes the first kind, in parts if the event is large; the machine and a group's function
write the second, handlers/repairing.py the third. handlers/delivery.py names an event that the table has. Pure.
Invariant: an event is returned only if all its bytes are there; any other text is a letter with a problem.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from handlers.api import status_words
from handlers.framing.events import StreamEvent
from handlers.values import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """A received message; `receipt` is the handle by which it is deleted."""

    id: str
    receipt: str
    body: str


@dataclass(frozen=True, slots=True)
class Letter:
    """The content of a message, or of its parts together; `reason` is why it was sent.

    A letter has a whole `event` that could not be stored, and the token of its connection; or it reports a stream that
    was rejected or could not be claimed; or it has a `problem`, and cannot be put back. `key` is the event's key, "" if
    there is none. `is_part` is whether parts of the event are missing: they were deleted when the event was stored, or
    are lost.
    """

    messages: tuple[Message, ...]
    stream_id: str
    reason: str
    key: str = ""
    problem: str = ""
    fence: int = 0
    event: StreamEvent | None = None
    is_part: bool = False


NOT_OURS = "the message was not sent by Streamkeeper"
# Far more parts than an event of the largest frame has.
MOST_PARTS = 1000


def _common_fields(fields: dict[str, Any]) -> Letter:
    """Returns the fields that every message of an event has."""
    stream_id, key, reason = (_text(fields[name]) for name in ("stream", "key", "reason"))
    if not (stream_id and key):
        raise ValueError
    return Letter((), stream_id, reason, key, fence=int(fields["fence"]))


class LetterReader:
    """Reads messages in any order; returns an event in parts once the last part has come."""

    def __init__(self) -> None:
        # For each event, the parts that have come, by number, and their messages.
        self._parts: dict[tuple[Letter, int], dict[int, bytes]] = {}
        self._messages: dict[tuple[Letter, int], tuple[Message, ...]] = {}

    def read(self, message: Message) -> Letter | None:
        """Returns the message's letter; None while other parts of its event are still to come."""
        try:
            fields = json.loads(message.body)
            if "error" in fields:
                return _end(message, fields)
            if "sink" in fields:
                stream_id, sink, key, reason = (_text(fields[name]) for name in ("stream", "sink", "key", "reason"))
                return Letter((message,), stream_id, reason, key, f"it was not delivered to {sink}; the table has it")
            if "repair" in fields:
                words = "its gap stays open: POST /connections/{streamId}/repair tries again"
                return Letter((message,), _text(fields["stream"]), _text(fields["reason"]), problem=words)
            if "event" in fields:
                return _event((message,), _common_fields(fields), fields["event"])
            return self._part(message, fields)
        except _MALFORMED:
            return Letter((message,), "", "", problem=NOT_OURS)

    def incomplete(self) -> Iterator[Letter]:
        """Yields the letters of events of which a part has not come."""
        for (about, count), parts in self._parts.items():
            missing = count - len(parts)
            problem = f"{missing} of its {count} parts {'is' if missing == 1 else 'are'} not in the queue"
            yield replace(about, messages=self._messages[about, count], problem=problem, is_part=True)

    def _part(self, message: Message, fields: dict[str, Any]) -> Letter | None:
        about, number, count = _common_fields(fields), int(fields["part"]), int(fields["parts"])
        piece = base64.b64decode(fields["event_base64"], validate=True)
        if not 1 <= number <= count <= MOST_PARTS:
            raise ValueError
        parts = self._parts.setdefault((about, count), {})
        parts[number] = piece
        messages = self._messages[about, count] = (*self._messages.get((about, count), ()), message)
        if len(parts) < count:
            return None
        del self._parts[about, count], self._messages[about, count]
        try:
            return _event(messages, about, json.loads(b"".join(parts[n] for n in range(1, count + 1))))
        except _MALFORMED:
            return Letter(messages, "", "", problem=NOT_OURS)


_MALFORMED = (AttributeError, KeyError, TypeError, ValueError, RecursionError)


def _event(messages: tuple[Message, ...], about: Letter, content: dict[str, Any]) -> Letter:
    if "size_bytes" in content:
        kept = len(base64.b64decode(content["head"]))
        problem = f"only the first {kept} of its {int(content['size_bytes'])} bytes were kept"
        return replace(about, messages=messages, problem=problem)
    data: str | bytes = _text(content["data"])
    if content["encoding"] == "base64":
        data = base64.b64decode(data, validate=True)
    elif content["encoding"] != "text":
        raise ValueError
    own_id, name = (None if content[one] is None else _text(content[one]) for one in ("id", "name"))
    event = StreamEvent(about.key, data, own_id, name, None, int(content["received_at_ms"]))
    return replace(about, messages=messages, event=event)


def _end(message: Message, fields: dict[str, Any]) -> Letter:
    stream_id, reason = (
        _text(fields["stream"]),
        f"{fields['error']}: {status_words.cause_words(_text(fields['cause']))}",
    )
    return Letter((message,), stream_id, reason, problem="" if stream_id else "it names no stream")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value

"""Defines the messages on a socket, their answers and what close codes mean, and spells the messages.

    subscribe = [{ send = { op = "subscribe", channel = "{name}", since = "{cursor}" } }]

sends, for `prices:EUR` at the cursor 41, {"op":"subscribe","channel":"EUR","since":41}, and without a cursor
{"op":"subscribe","channel":"EUR"}. A reply may hold parts of the message that it answers: to {"ping":7}

    reply = { to = { "$.ping" = "*" }, send = { pong = "{$.ping}" } }

sends {"pong":7}. Invariant: values are filled in once; whatever looks like a placeholder or a reference in a value
stays as it is.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from handlers.framing.events import JsonPath, compact_json, parse_path, text_at_path, value_at_path
from handlers.framing.marks import Mark
from handlers.framing.numbers import LongNumber
from handlers.values import dataclass

# The cursor, and a path into the message that is answered.
_PLACE = re.compile(r"\{(cursor(?:\|text)?|\$[.\[][^{}]*)\}")
# RFC 8259, section 6: the whole numbers that every JSON reader takes without rounding, such as microseconds since 1970.
_NUMBER, _MOST_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,15}"), 2**53 - 1
# A longer part of the upstream's message is left out of a reply, which many streams may owe at a time.
MOST_PART_CHARACTERS = 4096
_LEFT_OUT = object()

CloseMeaning = Literal["retried", "throttled", "rejected", "ended", "expired"]
CLOSE_MEANINGS: tuple[CloseMeaning, ...] = get_args(CloseMeaning)
# RFC 6455, section 7.4.1, and IANA's registry of close codes. A code that blames the client, or its message, is a
# refusal, which may pass; 1013 is "Try Again Later". Every other code means trouble of the server or the network.
CLOSE_CODES: dict[int, CloseMeaning] = {
    **dict.fromkeys((1003, 1007, 1008, 1009, 1010, 3000, 3003), "rejected"),
    1013: "throttled",
}


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message and what answers it; `send` is JSON or a text, None for a ping of the protocol or no message.

    A message that fits one of `expect` answers it, within `within_ms`; a message that fits one of `refuse` refuses it,
    and its text at `reason` (the whole text if that is None) says why. It is sent every `every_ms`, 0 for once. A reply
    answers each message that fits its `expect`.
    """

    send: Any
    expect: tuple[Mark, ...] = ()
    refuse: tuple[Mark, ...] = ()
    reason: JsonPath | None = None
    within_ms: int = 10_000
    every_ms: int = 0

    @property
    def text(self) -> str:
        """Everything that it sends as one text, with its placeholders and references."""
        return self.send if isinstance(self.send, str) else "" if self.send is None else json.dumps(self.send)


@dataclass(frozen=True, slots=True)
class Numbering:
    """The path of an event's number in a row without holes; each value at `by` has a row of its own."""

    path: JsonPath
    by: JsonPath | None = None


def carries_cursor(exchanges: Sequence[Exchange]) -> bool:
    """Returns whether a message carries the cursor."""
    return any({"cursor", "cursor|text"} & {*_PLACE.findall(one.text)} for one in exchanges)


def paths_in(text: str) -> list[str]:
    """Returns the paths into the answered message that a text holds."""
    return [place for place in _PLACE.findall(text) if place.startswith("$")]


def message_bytes(send: Any, cursor: str | None, fill: Callable[[str], str], received: Any = None) -> bytes:
    """Returns the message to send at the cursor (None and "" for none); `fill` fills in all other placeholders.

    `received` is the body of the message that it answers.
    """
    if isinstance(send, str):
        return _text(send, cursor, fill, received).encode()
    return _json(_fill(send, cursor, fill, received)).encode()


def _json(value: Any) -> str:
    """Returns the value as compact JSON; a number of the upstream's keeps all its digits."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{compact_json(name)}:{_json(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return value.text if type(value) is LongNumber else compact_json(value)


def _fill(value: Any, cursor: str | None, fill: Callable[[str], str], received: Any) -> Any:
    """Returns the value with its texts filled in. Members that need a value that is not there are left out."""
    if isinstance(value, dict):
        members = ((name, _fill(inner, cursor, fill, received)) for name, inner in value.items())
        return {name: inner for name, inner in members if inner is not _LEFT_OUT}
    if isinstance(value, list):
        return [inner for one in value if (inner := _fill(one, cursor, fill, received)) is not _LEFT_OUT]
    if not isinstance(value, str):
        return value
    values = [_value(place, cursor, received) for place in _PLACE.findall(value)]
    if None in values:
        return _LEFT_OUT
    return values[0] if _PLACE.fullmatch(value) else _text(value, cursor, fill, received)


def _value(place: str, cursor: str | None, received: Any) -> Any:
    """Returns what fills the place as a whole; None if there is nothing, or a list or an object."""
    if place.startswith("$"):
        path = parse_path(place)
        value = None if path is None else value_at_path(received, path)[1]
        return value if isinstance(value, int | float) else _part(place, received) if isinstance(value, str) else None
    # A cursor that is a number is sent as one: nearly every feed counts with numbers.
    is_number = cursor and place == "cursor" and _NUMBER.fullmatch(cursor) and abs(int(cursor)) <= _MOST_NUMBER
    return int(cursor or 0) if is_number else cursor or None


def _part(place: str, received: Any) -> str | None:
    path = parse_path(place)
    text = None if path is None else text_at_path(received, path)
    return text if text is not None and len(text) <= MOST_PART_CHARACTERS else None


def _text(text: str, cursor: str | None, fill: Callable[[str], str], received: Any) -> str:
    # Every second part is a place. Nothing is filled into a cursor or into the upstream's words, which may be anything.
    return "".join(
        fill(part) if index % 2 == 0 else _part(part, received) or "" if part.startswith("$") else cursor or ""
        for index, part in enumerate(_PLACE.split(text))
    )

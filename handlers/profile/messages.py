"""Defines the messages on a socket, their answers and what close codes mean, and spells the messages.

    subscribe = [{ send = { op = "subscribe", channel = "{name}", since = "{cursor}" } }]

sends, for `prices:EUR` at the cursor 41, {"op":"subscribe","channel":"EUR","since":41}, and without a cursor
{"op":"subscribe","channel":"EUR"}. Invariant: values are filled in once; whatever looks like a placeholder or a
reference in a value stays as it is.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from handlers.framing.events import JsonPath
from handlers.framing.marks import Mark
from handlers.values import dataclass

CURSOR, CURSOR_AS_TEXT = "{cursor}", "{cursor|text}"
# The whole numbers that every JSON reader takes without rounding.
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,14}")
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
    """A message and what answers it; `send` is JSON or a text, None for a ping of the protocol.

    A message that fits one of `expect` answers it, within `within_ms`; a message that fits one of `refuse` refuses it,
    and its text at `reason` (the whole text if that is None) says why. It is sent every `every_ms`, 0 for once.
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


def asks_by_message(exchanges: Sequence[Exchange]) -> bool:
    """Returns whether a message carries the cursor."""
    return any(CURSOR in one.text or CURSOR_AS_TEXT in one.text for one in exchanges)


def spelled(send: Any, cursor: str | None, fill: Callable[[str], str]) -> bytes:
    """Returns the message to send at the cursor (None and "" for none); `fill` fills in all other placeholders."""
    if isinstance(send, str):
        return _text(send, cursor or "", fill).encode()
    filled = _filled(send, cursor or None, fill)
    return json.dumps(filled, ensure_ascii=False, separators=(",", ":")).encode()


def _filled(value: Any, cursor: str | None, fill: Callable[[str], str]) -> Any:
    """Returns the value with its texts filled in. Without a cursor, members that need one are left out."""
    if isinstance(value, dict):
        members = ((name, _filled(inner, cursor, fill)) for name, inner in value.items())
        return {name: inner for name, inner in members if inner is not _LEFT_OUT}
    if isinstance(value, list):
        return [inner for one in value if (inner := _filled(one, cursor, fill)) is not _LEFT_OUT]
    if not isinstance(value, str):
        return value
    if cursor is None and (CURSOR in value or CURSOR_AS_TEXT in value):
        return _LEFT_OUT
    # A cursor that is the whole text is sent as a number if it is one: nearly every feed counts with numbers.
    if value == CURSOR and cursor is not None and _NUMBER.fullmatch(cursor):
        return int(cursor)
    return _text(value, cursor or "", fill)


def _text(text: str, cursor: str, fill: Callable[[str], str]) -> str:
    # Nothing is filled into the cursor's own text, which may be anything.
    parts = re.split(r"\{cursor(?:\|text)?\}", text)
    return cursor.join(fill(part) for part in parts)

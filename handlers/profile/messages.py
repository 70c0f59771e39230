"""Knows what is sent on a socket, what answers it and what a close code means, and spells the messages.

    subscribe = [{ send = { op = "subscribe", channel = "{name}", since = "{cursor}" } }]

of `prices:EUR` at the cursor 41 is {"op":"subscribe","channel":"EUR","since":41}, and without a cursor
{"op":"subscribe","channel":"EUR"}. Invariant: values are filled in once, and what looks like a placeholder or a
reference in one stays as it is.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from handlers.framing.events import JsonPath
from handlers.framing.marks import Mark

CURSOR, CURSOR_AS_TEXT = "{cursor}", "{cursor|text}"
# What JSON's readers take for a whole number without rounding it.
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,14}")
_LEFT_OUT = object()

CloseMeaning = Literal["retried", "throttled", "rejected", "ended", "expired"]
CLOSE_MEANINGS: tuple[CloseMeaning, ...] = get_args(CloseMeaning)
# RFC 6455, section 7.4.1, and IANA's registry of close codes. What blames the client's message, or who it is, ends as a
# refusal does, which may pass; 1013 is "Try Again Later". Every other code is trouble of the server's or the network's.
CLOSE_CODES: dict[int, CloseMeaning] = {
    **dict.fromkeys((1003, 1007, 1008, 1009, 1010, 3000, 3003), "rejected"),
    1013: "throttled",
}


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message and what answers it; `send` is JSON or a text, None for a ping of the protocol.

    It is answered by a message that one of `expect` fits, within `within_ms`, and refused by one that one of `refuse`
    fits, whose text at `reason` says why; the whole text where that is None. `every_ms` is how often it is sent, 0 for
    once.
    """

    send: Any
    expect: tuple[Mark, ...] = ()
    refuse: tuple[Mark, ...] = ()
    reason: JsonPath | None = None
    within_ms: int = 10_000
    every_ms: int = 0

    @property
    def text(self) -> str:
        """All that it sends as one text, its placeholders and references among it."""
        return self.send if isinstance(self.send, str) else "" if self.send is None else json.dumps(self.send)


@dataclass(frozen=True, slots=True)
class Numbering:
    """Where an event has its number in a row without holes; each value at `by` has a row of its own."""

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
    # Where the cursor stands alone a number is sent as one, as nearly every feed counts.
    if value == CURSOR and cursor is not None and _NUMBER.fullmatch(cursor):
        return int(cursor)
    return _text(value, cursor or "", fill)


def _text(text: str, cursor: str, fill: Callable[[str], str]) -> str:
    # What the cursor spells is filled in nowhere: it may be any text.
    parts = re.split(r"\{cursor(?:\|text)?\}", text)
    return cursor.join(fill(part) for part in parts)

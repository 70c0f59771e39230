"""Recognizes the frames that a profile marks: a heartbeat, the end, a loss, a disconnect.

For example the mark `{ event = "error", json = { "$.code" = 410 } }` fits a frame with that event name whose body has
that code, and `{ absent = ["$.items"] }` a JSON frame without that place. Invariant: a frame that lacks something that
a mark names does not fit it, and only JSON fits a mark that reads JSON; nothing is raised, whatever the upstream sent.
"""

import enum
from collections.abc import Sequence
from typing import Any

from handlers.framing.events import JsonPath, parse_json, value_at_path
from handlers.framing.frames import Frame
from handlers.values import dataclass

ANYTHING = "*"
# A larger number of lost events is ignored as implausible.
MOST_LOST = 10**15
Value = str | int | float | bool


class Kind(enum.Enum):
    """What a frame means to the profile; tables and logs use the value."""

    EVENT = "event"
    COMMENT = "comment"
    HEARTBEAT = "heartbeat"
    END = "end"
    LOSS = "loss"
    DISCONNECT = "disconnect"
    EXPIRED = "expired"
    ANSWER = "answer"
    REFUSAL = "refusal"
    SNAPSHOT = "snapshot"
    # Each kind has one instance, so it can be hashed by identity, in a fifth of the time of hashing its name.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Mark:
    """The pattern of a frame of one kind; each part that is not None must hold.

    `event` is the event's name, `data` its whole text, `comment` the beginning of a comment. `json` pairs places in the
    body with values; ANYTHING fits any value. `absent` are places that must be missing or null.

    For a heartbeat or a disconnect, `cursor` is the place of its cursor, and `first_cursor` one that counts only on a
    connection that sent no cursor. For a loss, `count` is the place of the number of lost events.
    """

    event: str | None = None
    data: str | None = None
    comment: str | None = None
    json: tuple[tuple[JsonPath, Value], ...] = ()
    absent: tuple[JsonPath, ...] = ()
    cursor: JsonPath | None = None
    first_cursor: JsonPath | None = None
    count: JsonPath | None = None

    @property
    def needs_json(self) -> bool:
        """Whether the mark reads the body."""
        return bool(self.json or self.absent)

    @property
    def has_required_value(self) -> bool:
        """Whether it names what a frame must hold, rather than only where something must be."""
        return self.event is not None or self.data is not None or any(value != ANYTHING for _, value in self.json)

    def fits(self, frame: Frame, body: Any) -> bool:
        """Whether `frame` fits; `body` is its data as a JSON value, None if it is not JSON."""
        if frame.is_comment or self.comment is not None:
            # A comment is not an event, even if both have the same text.
            is_one = frame.is_comment and self.comment is not None and isinstance(frame.data, str)
            return is_one and str(frame.data).startswith(str(self.comment))
        if self.event is not None and (frame.name or "message") != self.event:
            return False
        if self.data is not None and frame.data != self.data:
            return False
        if self.absent and not (
            isinstance(body, dict | list) and not any(value_at_path(body, path)[0] for path in self.absent)
        ):
            return False
        return all(_has_value(body, path, value) for path, value in self.json)


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of each kind, and whether any reads the body or comments; the first kind that fits counts.

    `names` are those that an event must have to fit any mark; None if it may have any.
    """

    pairs: tuple[tuple[Kind, Mark], ...] = ()
    read_json: bool = False
    read_comments: bool = False
    names: frozenset[str] | None = None

    def kind(self, frame: Frame) -> Kind:
        """Returns the kind of `frame`; the body is parsed as JSON only if a mark reads it."""
        if self.pairs and (self.names is None or (frame.name or "message") in self.names):
            body = parse_json(frame.data) if self.read_json and not frame.is_comment else None
            for kind, mark in self.pairs:
                if mark.fits(frame, body):
                    return kind
        return Kind.COMMENT if frame.is_comment else Kind.EVENT

    def first(self, kind: Kind, frame: Frame) -> Mark | None:
        """The first mark of this kind that `frame` fits."""
        body = parse_json(frame.data) if self.read_json and not frame.is_comment else None
        return next((mark for of, mark in self.pairs if of is kind and mark.fits(frame, body)), None)

    def lost_count(self, frame: Frame) -> int | None:
        """Returns how many events an announced loss has; None if it gives no number."""
        mark = self.first(Kind.LOSS, frame)
        value = None if mark is None or mark.count is None else value_at_path(parse_json(frame.data), mark.count)[1]
        return value if type(value) is int and 0 <= value <= MOST_LOST else None


def make_marks(kinds: Sequence[tuple[Kind, Mark]]) -> Marks:
    names = {mark.event for _, mark in kinds}
    return Marks(
        tuple(kinds),
        read_json=any(mark.needs_json for _, mark in kinds),
        read_comments=any(mark.comment is not None for _, mark in kinds),
        names=None if None in names or not kinds else frozenset(name for name in names if name is not None),
    )


def _has_value(body: Any, path: JsonPath, value: Value) -> bool:
    there, at_path = value_at_path(body, path)
    # True equals 1 in Python, but not in JSON.
    return there and (value == ANYTHING or (at_path == value and isinstance(at_path, bool) == isinstance(value, bool)))

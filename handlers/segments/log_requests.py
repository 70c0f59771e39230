"""What a writer of a stream's log exchanges with the store: segments, requests and their answers, all plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from handlers.framing.events import StreamEvent
from handlers.values import dataclass


class Cursor(NamedTuple):
    """Where to resume, the connection that saved it, and when; the later of two cursors compares greater.

    `came_ms` is when the event came that it follows; 0 if that is unknown.
    """

    fence: int
    at_ms: int
    text: str
    came_ms: int = 0

    def is_after(self, other: Cursor | None) -> bool:
        """Whether a newer connection saved this one, or the same connection saved it later."""
        return other is None or self[:2] > other[:2]


class Segment(NamedTuple):
    """A segment as a writer knows it: `keys` are the concatenated hashes of its events' keys.

    `first` is the number, within the connection with the token `fence`, of the first event of its write. `at_ms` is
    when it was made, no earlier than its events and the segment before it. `cursor` is the log's, None if there is none
    yet. `bodies` are the checksums of the events' bodies, in the order of `keys`. `came_ms` is as in Write, None if
    that is when the last event was received.
    """

    number: int
    fence: int
    first: int
    at_ms: int
    keys: bytes
    cursor: Cursor | None
    bodies: bytes = b""
    came_ms: int | None = None


class Page(NamedTuple):
    """The requested segments; `is_end` if there are no more. `anchor` is 0 if there is none.

    `is_expired` is whether later segments than the newest of all may have expired.
    """

    segments: Sequence[Segment]
    is_end: bool
    anchor: int = 0
    is_expired: bool = False


@dataclass(frozen=True, slots=True)
class LookBack:
    """Read the segments before number `before`, newest first: answered by a Page.

    If `before` is None, read the newest of all: one segment is enough, and if there is none the page has the anchor.
    """

    before: int | None


@dataclass(frozen=True, slots=True)
class ReadOn:
    """Read the segments from `number` on in order, consistently: answered by a Page."""

    number: int


@dataclass(frozen=True, slots=True)
class Anchor:
    """Keep `number` in the anchor, which does not expire, unless that has a greater one: answered by nothing."""

    number: int


@dataclass(frozen=True, slots=True)
class Put:
    """Write the segment with the events if its number is free: answered by whether it was written."""

    segment: Segment
    events: tuple[StreamEvent, ...]


class Appended(NamedTuple):
    """The end of an append: how many events it added to the log, and how many were there before.

    `conflicts` counts those among both whose key was known with another body.
    """

    stored: int
    duplicates: int
    conflicts: int = 0


class LogBusy(Exception):
    """Every number that was tried was taken."""


Request = LookBack | ReadOn | Anchor | Put
Answer = Page | bool | None

"""One opening of the upstream of a run; what whoever checks a run must know of it.

It decides nothing. Invariant: `sent` of a link lists the events whose whole frame was handed to the
client, in that order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from handlers.connection.inputs import Chunk, Closed, Opened


class Client(Protocol):
    """Whoever opened a link."""

    @property
    def is_alive(self) -> bool:
        """Whether its code still runs."""

    @property
    def is_lost(self) -> bool:
        """Whether the machine has lost it and started another in its place."""

    @property
    def died_ms(self) -> int | None:
        """When it was killed, None where it was not."""

    @property
    def skew_ms(self) -> int:
        """How far its clock is wrong."""

    @property
    def links_by_fence(self) -> dict[int, Link]:
        """Its openings, by their fencing tokens."""

    @property
    def execution(self) -> str:
        """For whom it runs."""

    def arrived(self, link: Link, arrival: Opened | Chunk | Closed) -> None:
        """Takes what the link brings."""


@dataclass(frozen=True, slots=True)
class Again:
    """How a function came to connect again in place.

    `failures` is how many of its connections in a row hardly lived, `margins_left` how many of its margins were left
    of its time when the last of them ended, `draw_most_ms` the longest pause that it could have drawn before this one,
    0 where it paused for no drawn time.
    """

    failures: int
    margins_left: float
    draw_most_ms: float


@dataclass(eq=False)
class Link:
    """One opening, from the request to the close; `cursor` is the number it goes on from, None for the newest.

    `asks` is whether a cursor was asked for, heeded or not. `backlog` is what it has not been sent yet of what came
    after its cursor, at the pace of a catch-up; `has_forgotten` is whether it was told that the cursor is too old.
    `delayed` are the events that came late or never, `came_ms` when
    those came that did. `claimed_ms` is when its claim was sent, `marked_ms` when all could know that it is connected.
    `looked_ms` is when its function looked last for a rest, `took_ms` when it took the try after one; `settled_ms` when
    all could know how it ended. `notices` are the sent events that announce a loss, in order. `written` counts the
    events that the store has answered for. `again` is None for a function's first.
    """

    client: Client
    cursor: int | None
    asked_ms: int
    asks: bool = False
    claimed_ms: int = 0
    looked_ms: int = 0
    took_ms: int | None = None
    again: Again | None = None
    settled_ms: int | None = None
    opened_ms: int | None = None
    marked_ms: int | None = None
    closed_ms: int | None = None
    last_byte_ms: int = 0
    silent: bool = False
    refused_with: int = 0
    retry_after_s: int = 0
    ended_by: str = ""
    backlog: deque[int] = field(default_factory=deque)
    has_forgotten: bool = False
    held: bytes = b""
    waiting: list[int] = field(default_factory=list)
    delayed: set[int] = field(default_factory=set)
    came_ms: dict[int, int] = field(default_factory=dict)
    sent: list[int] = field(default_factory=list)
    notices: list[int] = field(default_factory=list)
    written: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it was answered and is not closed."""
        return self.opened_ms is not None and self.closed_ms is None

"""One opening of the upstream of a run, with what the rules must know of it, and who notes that.

A slot that notes hears of each step before it is performed and of each answer, and decides nothing. Invariants: `sent`
of a link lists the events whose whole frame was handed to the client, in that order; what is noted is by the world's
clock, but for what is left of the function's time, which is by the function's own.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from handlers.connection.effects import Claim, MarkConnected, Write
from handlers.connection.inputs import Claimed, StoreFailed
from handlers.connection.reconnection import lived
from handlers.connection.steps import ChangeRest, Ended, Invocation, ReadRest, Report, Step, Steps
from handlers.group.keeping import Keeps
from handlers.run.performer import NO_TIME
from local.simulation.slots import Slot, Upstream
from local.simulation.virtual_function import VirtualFunction
from local.simulation.virtual_ports import VirtualReader
from states_language.clock import Clock

T = TypeVar("T")


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

    client: NotedSlot
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

    @property
    def function(self) -> VirtualFunction:
        """Returns the function that has opened it."""
        return self.client.function


class Notes:
    """Of one stream in one function; `links_by_fence` are its openings by their fencing tokens."""

    def __init__(self, clock: Clock, invocation: Invocation, own_now_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._invocation = invocation
        self._own_now_ms = own_now_ms
        self._claimed_ms = self._looked_ms = 0
        self._took_ms: int | None = None
        self._fence = 0
        self._failed: Link | None = None  # the one whose outcome not all can know yet
        self._drawn: dict[int, float] = {}  # since the last connection: a pause and the longest that it could have been
        self._ended_ms = 0
        self._again: Again | None = None
        self._begins_anew = False  # the function has rested since, as the machine rests between two functions
        self._link: Link | None = None
        self.links_by_fence: dict[int, Link] = {}

    def begins(self) -> None:
        """Records that the function begins with the stream anew."""
        self._again = None
        self._begins_anew = False

    def rests(self) -> None:
        """Records that the function rests between two rows of tries, as the machine does between two functions.

        The connection after the rest must have been put off by chance as ever; the failures in a row count from there.
        """
        self._begins_anew = True

    def drew(self, least: float, most: float, value: float) -> None:
        """Records what was drawn by chance."""
        if least < most:
            self._drawn[round(1000 * value)] = 1000 * most

    def before(self, step: Step) -> None:
        """Records what is to be performed."""
        if not isinstance(step, ChangeRest | ReadRest | Ended):
            self.settle()
        now_ms = self._clock.now_ms()
        match step:
            case Claim():
                self._claimed_ms = now_ms
                # Another rest than it knows of refuses the claim, and of a rest that is over it takes the try.
                self._looked_ms, self._took_ms = now_ms, now_ms if step.try_until_ms else None
            case Ended(report):
                self._ended(report)

    def after(self, step: Step, value: Any) -> None:
        """Records what it was answered by."""
        if isinstance(value, StoreFailed):
            return
        if isinstance(step, Write) and step.fence in self.links_by_fence:
            self.links_by_fence[step.fence].written += len(step.events)
        if isinstance(value, Claimed):
            self._fence = value.lease.fence
        elif isinstance(step, MarkConnected) and self._link is not None:
            self._link.marked_ms = self._clock.now_ms()

    def opened(self, link: Link) -> None:
        """Records the opening that follows from an Open."""
        self._link = link
        link.claimed_ms, link.looked_ms, link.took_ms = self._claimed_ms, self._looked_ms, self._took_ms
        if self._again is not None:
            paused_ms = self._clock.now_ms() - self._ended_ms
            most_ms = max((most for drawn, most in self._drawn.items() if drawn <= paused_ms), default=0.0)
            link.again = replace(self._again, draw_most_ms=most_ms)
        self.links_by_fence[self._fence] = link

    def left(self) -> None:
        """Records that nothing is open."""
        self._link = None

    def settle(self) -> None:
        """From now on whoever looks knows what became of the connection that failed last."""
        if self._failed is not None and self._failed.settled_ms is None:
            self._failed.settled_ms = self._clock.now_ms()
        self._failed = None

    def _ended(self, report: Report) -> None:
        self._link = self._took_ms = None
        before = 0 if self._again is None or self._begins_anew else self._again.failures
        self._begins_anew = False
        failures = 0 if lived(report.progress) else before + 1
        left_ms, margin_ms = self._invocation.deadline_ms - self._own_now_ms(), self._invocation.margin_ms
        self._again = Again(failures, left_ms / margin_ms, 0)
        self._drawn.clear()
        self._ended_ms = self._clock.now_ms()
        self._failed = self.links_by_fence.get(report.progress.fence)
        if report.outcome.error == "StoreUnavailable":
            self._failed = None  # what it comes to may never be written down


class NotedSlot(Slot):
    """One stream in one function, whose openings are noted; between any two steps the function may be killed."""

    def __init__(self, clock: Clock, function: VirtualFunction, invocation: Invocation, upstream: Upstream) -> None:
        super().__init__(function, upstream)
        self.notes = Notes(clock, invocation, function.now_ms)

    @property
    def links_by_fence(self) -> dict[int, Link]:
        """Its openings, by their fencing tokens."""
        return self.notes.links_by_fence

    def open(self, cursor: str | None, heard: Callable[[], None]) -> VirtualReader:
        """Opens the stream's upstream."""
        reader = super().open(cursor, heard)
        self.notes.opened(reader.link)
        return reader

    def draw(self, least: float, most: float) -> float:
        """Returns a number between the two."""
        value = super().draw(least, most)
        self.notes.drew(least, most, value)
        return value

    def keeps(self, keeps: Keeps) -> Keeps:
        """Notes each rest of the group's function: it asks in its own rests alone."""

        def keeps_on(at_ms: int) -> bool:
            self.notes.rests()
            return keeps(at_ms)

        return keeps_on

    def filtered(self, steps: Steps[T]) -> Steps[T]:
        """The same steps, each noted before it is performed and after."""
        self.notes.begins()
        move: Callable[[], Any] = functools.partial(next, steps)
        while True:
            try:
                step = move()
            except StopIteration as ended:
                self.notes.settle()
                result: T = ended.value
                return result
            self.notes.before(step)
            try:
                answer = yield step
            except Exception as error:
                move = functools.partial(steps.throw, error)
                continue
            if answer.value == StoreFailed(NO_TIME):
                self.function.requests.missed()
            self.notes.after(step, answer.value)
            self.function.performed(step)
            move = functools.partial(steps.send, answer)

    def _closed(self, link: Link) -> None:
        super()._closed(link)
        if self.function.is_alive:
            self.notes.left()

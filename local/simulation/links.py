"""One opening of the upstream of a run, with what the rules must know of it, and the slot that notes that.

Invariant: what is noted is by the world's clock, but for what is left of the function's time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from handlers.connection.effects import Claim, MarkConnected, Write
from handlers.connection.inputs import Claimed, StoreFailed
from handlers.connection.reconnection import lived
from handlers.connection.steps import Answer, ChangeRest, Ended, Invocation, ReadRest, Report, Step, Steps
from handlers.group.keeping import Keeps
from handlers.run.performer import NO_TIME
from local.simulation.slots import Slot, Upstream, each
from local.simulation.socket_peer import SocketPeer
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
    """One opening, from the request to the close; `cursor` is the event it goes on from, None for the newest.

    `asks` is whether a cursor was sent, heeded or not. `backlog` is what it has not been sent yet of what came
    after its cursor, at the pace of a catch-up; `has_forgotten` is whether it was told that the cursor is too old.
    `sent` are the events whose whole frame was handed to the client, `delayed` those that came late or never, `came_ms`
    when those came that did. `claimed_ms` is when its claim was sent, `marked_ms` when all could know it as connected.
    `checked_ms` is when its function last checked a rest, `took_ms` when it took the try after it; `settled_ms` when
    all could know how it ended. `notice_places` are those in `sent` whose events announce a loss. `written` counts the
    events that the store has answered for. `again` is None for a function's first. Of a socket that has switched `peer`
    is the upstream's side, `row` the number that the client has seen last, and `pinged_ms` when it sent the oldest ping
    that is not answered, 0 for none. `unready` says which server gave no token or ticket for it.
    """

    number: int
    client: NotedSlot
    cursor: int | None
    asked_ms: int
    fence: int = 0
    asks: bool = False
    claimed_ms: int = 0
    checked_ms: int = 0
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
    notice_places: list[int] = field(default_factory=list)
    written: int = 0
    peer: SocketPeer | None = None
    row: int | None = None
    pinged_ms: int = 0
    unready: str = ""

    @property
    def notices(self) -> list[int]:
        """The sent events that announce a loss, in order."""
        return [self.sent[place] for place in self.notice_places]

    @property
    def is_open(self) -> bool:
        """Whether it was answered and is not closed."""
        return self.opened_ms is not None and self.closed_ms is None

    @property
    def function(self) -> VirtualFunction:
        """Returns the function that has opened it."""
        return self.client.function

    @property
    def over_ms(self) -> int | None:
        """When it was closed or its function died, whichever came first; None where neither has."""
        return min((at_ms for at_ms in (self.closed_ms, self.function.died_ms) if at_ms is not None), default=None)


class NotedSlot(Slot):
    """One stream in one function, whose openings are noted; between any two steps the function may be killed.

    `fences` are the tokens of its claims, `links_by_fence` those of its openings.
    """

    def __init__(self, clock: Clock, function: VirtualFunction, invocation: Invocation, upstream: Upstream) -> None:
        super().__init__(function, upstream)
        self._clock = clock
        self._invocation = invocation
        self._claimed_ms = self._checked_ms = 0
        self._took_ms: int | None = None
        self._fence = 0
        self._failed: Link | None = None  # the one whose outcome not all can know yet
        self._drawn: dict[int, float] = {}  # since the last connection: a pause and the longest that it could have been
        self._ended_ms = 0
        self._again: Again | None = None
        self._begins_anew = False  # the function has rested since, as the machine rests between two functions
        self._link: Link | None = None
        self.fences: set[int] = set()
        self.links_by_fence: dict[int, Link] = {}

    def filtered(self, steps: Steps[T]) -> Steps[T]:
        """The same steps, each noted before it is performed and after."""
        self._again, self._begins_anew = None, False
        result = yield from each(steps, self._performed)
        self._settle()
        return result

    def _performed(self, step: Step) -> Steps[Answer]:
        self._before(step)
        answer: Answer = yield step
        if answer.value == StoreFailed(NO_TIME):
            self.function.requests.missed()
        self._after(step, answer.value)
        self.function.performed(step)
        return answer

    def _before(self, step: Step) -> None:
        if not isinstance(step, ChangeRest | ReadRest | Ended):
            self._settle()
        now_ms = self._clock.now_ms()
        match step:
            case Claim():
                self._claimed_ms = now_ms
                # An unknown back-off refuses the claim; of a back-off that has ended, the claim uses up the try.
                self._checked_ms, self._took_ms = now_ms, now_ms if step.try_until_ms else None
            case Ended(report):
                self._ended(report)

    def _after(self, step: Step, value: Any) -> None:
        if isinstance(value, StoreFailed):
            return
        if isinstance(step, Write) and step.fence in self.links_by_fence:
            self.links_by_fence[step.fence].written += len(step.events)
        if isinstance(value, Claimed):
            self._fence = value.lease.fence
            self.fences.add(self._fence)
        elif isinstance(step, MarkConnected) and self._link is not None:
            self._link.marked_ms = self._clock.now_ms()

    def _settle(self) -> None:
        """From now on the tables tell how the connection that failed last ended."""
        if self._failed is not None and self._failed.settled_ms is None:
            self._failed.settled_ms = self._clock.now_ms()
        self._failed = None

    def _ended(self, report: Report) -> None:
        self._link = self._took_ms = None
        before = 0 if self._again is None or self._begins_anew else self._again.failures
        self._begins_anew = False
        failures = 0 if lived(report.progress) else before + 1
        left_ms, margin_ms = self._invocation.deadline_ms - self.function.now_ms(), self._invocation.margin_ms
        self._again = Again(failures, left_ms / margin_ms, 0)
        self._drawn.clear()
        self._ended_ms = self._clock.now_ms()
        self._failed = self.links_by_fence.get(report.progress.fence)
        # What it comes to may never be written down; what a stop has ended owes no rest, however it ended besides.
        if report.outcome.error == "StoreUnavailable" or report.outcome.status == "stopped":
            self._failed = None

    def open(self, cursor: str | None, heard: Callable[[], None]) -> VirtualReader:
        """Opens the stream's upstream."""
        reader = super().open(cursor, heard)
        self._link = link = reader.link
        link.claimed_ms, link.checked_ms, link.took_ms = self._claimed_ms, self._checked_ms, self._took_ms
        if self._again is not None:
            paused_ms = self._clock.now_ms() - self._ended_ms
            most_ms = max((most for drawn, most in self._drawn.items() if drawn <= paused_ms), default=0.0)
            link.again = replace(self._again, draw_most_ms=most_ms)
        link.fence = self._fence
        self.links_by_fence[self._fence] = link
        return reader

    def said(self, link: Link, frame: bytes) -> None:
        """Hands on what is sent on a socket."""
        said = getattr(self.upstream, "said", None)
        if said is not None and self.function.is_alive:
            said(link, frame)

    def draw(self, least: float, most: float) -> float:
        """Returns a number between the two, and notes it where it was drawn by chance."""
        value = super().draw(least, most)
        if least < most:
            self._drawn[round(1000 * value)] = 1000 * most
        return value

    def keeps(self, keeps: Keeps) -> Keeps:
        """Notes each back-off of the group's function, which it checks `keeps` in alone.

        After it a new row of failures begins, as after the machine's between two functions; and the connection after it
        must have been put off by chance as ever.
        """

        def keeps_on(at_ms: int) -> bool:
            self._begins_anew = True
            return keeps(at_ms)

        return keeps_on

    def _closed(self, link: Link) -> None:
        super()._closed(link)
        if self.function.is_alive:
            self._link = None

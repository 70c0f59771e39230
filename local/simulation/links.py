"""One opening of a run's upstream, with the facts about it that the rules need, and the slot that records them.

Invariant: all records are by the world's clock, except the remaining time of a function.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from handlers.connection.effects import Claim, MarkConnected, Write
from handlers.connection.failures import was_accepted
from handlers.connection.inputs import Claimed, StoreFailed
from handlers.connection.steps import Answer, ChangeBackoff, Ended, Invocation, ReadBackoff, Report, Step, Steps
from handlers.group.next_step import ShouldKeep
from handlers.profile.secret_references import Secrets
from handlers.run.ports import NO_TIME
from local.simulation.slots import Slot, Upstream, perform_each
from local.simulation.socket_peer import SocketPeer
from local.simulation.virtual_function import VirtualFunction
from local.simulation.virtual_ports import VirtualReader
from states_language.clock import Clock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reconnection:
    """How a function came to reconnect in place.

    `failures` counts its short-lived connections in a row. `margins_left` is the function's remaining time, in margins,
    when the last of them ended. `draw_most_ms` is the upper bound of the random pause before this connection, 0 if it
    had none.
    """

    failures: int
    margins_left: float
    draw_most_ms: float


@dataclass(eq=False)
class Link:
    """One opening, from the request to the close; `cursor` is the event from which it resumes, None for the newest.

    `sent_id` is the cursor as it was sent; if the upstream has been restarted since, it may mean another event, and
    `count` is the number of the restarts before its answer.

    `asks`: a cursor was sent, heeded or not; `has_forgotten`: it was refused as too old. `again` is None for a
    function's first opening; `unready` names the server that gave no token or ticket, `places` has the given ones.

    Instants: `claimed_ms`, the claim was sent; `checked_ms`, the function last checked a back-off; `took_ms`, it took
    the one try after that; `marked_ms`, the tables showed it as connected; `settled_ms`, the tables showed its end.

    Events: `backlog` has those after the cursor that a slow catch-up has not sent yet; `sent` those whose whole frame
    was handed to the client; `delayed` those that came late or never, and `came_ms` when they came. `notice_places` are
    the places in `sent` of events that announce a loss. `written` counts the events that the store has acknowledged.

    A WebSocket, once it has switched, has the upstream's side in `peer` and the number that the client has seen last in
    `row`. `pinged_ms` is when the client sent its oldest unanswered ping, 0 for none.
    """

    number: int
    client: RecordedSlot
    cursor: int | None
    asked_ms: int
    fence: int = 0
    asks: bool = False
    sent_id: int | None = None
    count: int = 0
    claimed_ms: int = 0
    checked_ms: int = 0
    took_ms: int | None = None
    again: Reconnection | None = None
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
    places: Secrets = field(default_factory=dict)

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
        """Returns the function that opened it."""
        return self.client.function

    @property
    def over_ms(self) -> int | None:
        """When it was closed or its function died, whichever came first; None if neither has happened."""
        return min((at_ms for at_ms in (self.closed_ms, self.function.died_ms) if at_ms is not None), default=None)


class RecordedSlot(Slot):
    """One stream in one function, whose openings are recorded; the function may be killed between any two steps.

    `fences` are the tokens of its claims, `links_by_fence` those of its openings.
    """

    def __init__(self, clock: Clock, function: VirtualFunction, invocation: Invocation, upstream: Upstream) -> None:
        super().__init__(function, upstream)
        self._clock = clock
        self._invocation = invocation
        self._claimed_ms = self._checked_ms = 0
        self._took_ms: int | None = None
        self._fence = 0
        self._failed: Link | None = None  # the last failed one, until the tables have its outcome
        self._drawn: dict[int, float] = {}  # by drawn pause since the last connection: the longest possible one
        self._ended_ms = 0
        self._again: Reconnection | None = None
        self._begins_anew = False  # a group's function has backed off since, as the machine does between functions
        self._link: Link | None = None
        self.fences: set[int] = set()
        self.links_by_fence: dict[int, Link] = {}

    def wrap_steps(self, steps: Steps[T]) -> Steps[T]:
        """Returns the same steps; each is recorded before and after it is performed."""
        self._again, self._begins_anew = None, False
        result = yield from perform_each(steps, self._perform)
        self._settle()
        return result

    def _perform(self, step: Step) -> Steps[Answer]:
        self._before(step)
        answer: Answer = yield step
        if answer.value == StoreFailed(NO_TIME):
            self.function.requests.record_missed()
        self._after(step, answer.value)
        self.function.count_step(step)
        return answer

    def _before(self, step: Step) -> None:
        if not isinstance(step, ChangeBackoff | ReadBackoff | Ended):
            self._settle()
        now_ms = self._clock.now_ms()
        match step:
            case Claim():
                self._claimed_ms = now_ms
                # An unknown back-off refuses the claim; after a back-off that has ended, the claim takes the try.
                self._checked_ms, self._took_ms = now_ms, now_ms if step.try_until_ms else None
            case Ended(report):
                self._record_end(report)

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
        """Records that the tables now have the outcome of the last failed connection."""
        if self._failed is not None and self._failed.settled_ms is None:
            self._failed.settled_ms = self._clock.now_ms()
        self._failed = None

    def _record_end(self, report: Report) -> None:
        self._link = self._took_ms = None
        before = 0 if self._again is None or self._begins_anew else self._again.failures
        self._begins_anew = False
        failures = 0 if was_accepted(report.progress) else before + 1
        left_ms, margin_ms = self._invocation.deadline_ms - self.function.now_ms(), self._invocation.margin_ms
        self._again = Reconnection(failures, left_ms / margin_ms, 0)
        self._drawn.clear()
        self._ended_ms = self._clock.now_ms()
        self._failed = self.links_by_fence.get(report.progress.fence)
        # Without a store the outcome may never be recorded; after a stop no back-off is due, whatever the outcome.
        if report.outcome.error == "StoreUnavailable" or report.outcome.status == "stopped":
            self._failed = None

    def open(self, cursor: str | None, on_arrival: Callable[[], None]) -> VirtualReader:
        """Opens the stream's upstream."""
        reader = super().open(cursor, on_arrival)
        self._link = link = reader.link
        link.claimed_ms, link.checked_ms, link.took_ms = self._claimed_ms, self._checked_ms, self._took_ms
        if self._again is not None:
            paused_ms = self._clock.now_ms() - self._ended_ms
            most_ms = max((most for drawn, most in self._drawn.items() if drawn <= paused_ms), default=0.0)
            link.again = replace(self._again, draw_most_ms=most_ms)
        link.fence = self._fence
        self.links_by_fence[self._fence] = link
        return reader

    def send_frame(self, link: Link, frame: bytes) -> None:
        """Passes on a frame that the client sends on its socket."""
        send = getattr(self.upstream, "take_frame", None)
        if send is not None and self.function.is_alive:
            send(link, frame)

    def draw(self, least: float, most: float) -> float:
        """Returns a number between the two, and records it if it was random."""
        value = super().draw(least, most)
        if least < most:
            self._drawn[round(1000 * value)] = 1000 * most
        return value

    def wrap_should_keep(self, should_keep: ShouldKeep) -> ShouldKeep:
        """Records each back-off of the group's function, the only time at which it calls `should_keep`.

        After a back-off the count of failures begins again, as after the machine's back-off between two functions, and
        the next connection must follow a random pause as usual.
        """

        def recorded_should_keep(at_ms: int) -> bool:
            self._begins_anew = True
            return should_keep(at_ms)

        return recorded_should_keep

    def _closed(self, link: Link) -> None:
        super()._closed(link)
        if self.function.is_alive:
            self._link = None


# How many connections an upstream of each policy allows.
CONNECTIONS_ALLOWED = {"evicts": 1, "tolerates": 2, "forbids": 1}


def excess_connections(link: Link, others: list[Link], policy: str) -> str:
    """Returns the violation if too many functions are connected with `link`; "" if they are not.

    If two are tolerated, two claims that come before either is marked as connected cannot know of each other.
    """
    known = [other for other in others if other.function.is_alive]
    allowed = CONNECTIONS_ALLOWED[policy]
    if policy == "tolerates":
        known = [other for other in known if other.marked_ms is not None and other.marked_ms < link.claimed_ms]
        executions = {one.function.execution for one in [*known, link]}
        # A connection closes when it sees that another execution, or a new function of its lane, has taken over. Until
        # then one more is allowed for each of these.
        allowed += len(executions) - 1 + sum(one.function.is_lost for one in [*known, link])
    if policy == "evicts" or len(known) + 1 <= allowed:
        return ""
    names = ", ".join(str(other.number) for other in [*known, link])
    return f"links {names} at once at an upstream that {policy}"

"""Runs the delivery in virtual time: the function's own steps on tables in memory, called as Lambda calls them.

Records, bells and sweeps happen in the order in which they are due. A call runs to its end at once, while the clock
advances by the time of its requests; the clock then goes back to the next call's own beginning, so calls run beside
each other, as Lambda's do. Invariants: a call sees the writes made before it began; a call that dies leaves its bell
unanswered.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from handlers.connection.inputs import Layout, Order
from handlers.deliver.arrivals import Arrivals
from handlers.deliver.bells import Bell, Bells, Place
from handlers.deliver.delivery_records import SinkRecords
from handlers.deliver.delivery_steps import Delivery
from handlers.deliver.feed import Feed
from handlers.deliver.immediate_sending import Sending
from handlers.deliver.sending import Each
from handlers.deliver.sink_commands import Lag
from handlers.deliver.worker import BATCH, DeliveryPorts, Letter, Worked
from handlers.profile.deliver_field import Target
from handlers.store.control_table import Table
from handlers.store.event_items import Entry
from handlers.store.event_reader import EventReader

# How long the function may take, and the part of it that is reserved for leaving (packaging/delivery.cjs, MARGIN_MS).
LIMIT_MS, MARGIN_MS = 120_000, 10_000
SWEEP_MS = 60_000
# How long a call takes to begin.
START_MS = 20
DELIVERY = "delivery"
FOR_EVER = 1 << 62


class Clock(Protocol):
    """A clock whose `now_ms` each request advances."""

    now_ms: int


def concurrent_map(clock: Clock) -> Each:
    """Returns a `map` that runs its calls at the same time: it takes as long as the slowest one."""

    def each(work: Callable[[Any], Any], several: Sequence[Any]) -> list[Any]:
        began_ms = ended_ms = clock.now_ms
        results = []
        for one in several:
            clock.now_ms = began_ms
            results.append(work(one))
            ended_ms = max(ended_ms, clock.now_ms)
        clock.now_ms = ended_ms
        return results

    return each


class VirtualDelivery:
    """A stage's delivery; `client` has the events table and one named DELIVERY.

    `dying` is the exception that ends a call as a kill does; requests of `client` may raise it, those of `tables` do
    not. `layout` is that of every stream.
    """

    def __init__(
        self,
        client: Any,
        events: str,
        clock: Clock,
        targets: Callable[[str], Sequence[Target]],
        sending: Sending,
        dead_letter: Callable[[Letter], bool],
        dying: type[BaseException],
        layout: Layout = Layout(),  # noqa: B008
        tables: Any = None,
        each: Each = map,
        batch: int = BATCH,
    ) -> None:
        self.clock = clock
        self.worked: list[tuple[int, Place, Worked]] = []
        self.behind: list[Lag] = []
        # When calls died, each with its place; None for a noting or a sweeping call, which may have rung for any place.
        self.deaths: list[tuple[int, Place | None]] = []
        self.loses: Callable[[], bool] = lambda: False  # whether calls are lost now
        self._dying = dying
        self._limit_ms = 0
        self._due: list[tuple[int, int, Callable[[], None], Place | None]] = []
        self._numbers = itertools.count()
        self._free_ms: dict[Place, int] = {}
        self._table, self._events = Table(client, DELIVERY), Table(client, events)
        self._bells = Bells(Table(tables or client, DELIVERY))
        self._reader, self._layout = EventReader(client, events, lambda _: None), layout
        self._ports = DeliveryPorts(
            targets,
            sending,
            self._call,
            dead_letter,
            self._report,
            lambda: clock.now_ms,
            lambda: self._limit_ms - clock.now_ms,
            self._sleep,
            self._within,
            each,
            batch,
        )
        self.restart()

    def record_death(self, place: Place | None) -> None:
        """Records that a call was killed, and starts a new sandbox."""
        self.deaths.append((self.clock.now_ms, place))
        self.restart()

    def restart(self) -> None:
        """Starts a new sandbox, which remembers nothing."""
        arrivals = Arrivals(self._table)
        feed = Feed(arrivals, self._events, self._in_order)
        self.delivery = Delivery(arrivals, Bells(self._table), SinkRecords(self._table), feed, self._ports)

    def schedule(self, at_ms: int, action: Callable[[], None], place: Place | None = None) -> None:
        """Schedules an action; the actions of one place run one after the other."""
        heapq.heappush(self._due, (at_ms, next(self._numbers), action, place))

    def run(self, until_ms: int = FOR_EVER, most: int = 1_000_000) -> bool:
        """Runs until nothing is due, `until_ms`, or `most` calls; returns whether no bell is left unanswered."""
        # `at_ms` is when the last call began; the clock shows its end, which may be after the next sweep.
        began_ms = swept_ms = at_ms = self.clock.now_ms
        for _ in range(most):
            due_ms = self._due[0][0] if self._due else FOR_EVER
            if due_ms < until_ms and due_ms <= self._sweep_at(began_ms, at_ms):
                at_ms = max(at_ms, due_ms)
                self._next()
                continue
            # The schedule calls each minute; sweeps that cannot find a due bell are skipped.
            out_ms = min((bell.until_ms for bell in self._bells.read_all()), default=FOR_EVER)
            after_ms = max(out_ms, at_ms, swept_ms + 1)
            sweep_ms = self._sweep_at(began_ms, after_ms) if out_ms < FOR_EVER else FOR_EVER
            if min(due_ms, sweep_ms) >= until_ms:
                return out_ms == FOR_EVER
            if due_ms <= sweep_ms:
                at_ms = max(at_ms, due_ms)
                self._next()
            else:
                self.clock.now_ms = swept_ms = at_ms = sweep_ms
                self._guarded(self._sweep)
        return False

    def _sweep_at(self, began_ms: int, at_ms: int) -> int:
        """Returns the first sweep at or after an instant."""
        return began_ms + -(-(at_ms - began_ms) // SWEEP_MS) * SWEEP_MS

    def _next(self) -> None:
        at_ms, _, action, place = heapq.heappop(self._due)
        free_ms = 0 if place is None else self._free_ms.get(place, 0)
        if free_ms > at_ms:
            # The place is busy: the call begins later, and sees the events until then.
            self.schedule(free_ms, action, place)
            return
        self.clock.now_ms = at_ms
        self._limit_ms = self.clock.now_ms + LIMIT_MS - MARGIN_MS
        self._guarded(action, place)
        if place is not None:
            self._free_ms[place] = self.clock.now_ms

    def _guarded(self, action: Callable[[], None], place: Place | None = None) -> None:
        try:
            action()
        except self._dying:
            self.record_death(place)

    def _call(self, out: Sequence[Bell]) -> None:
        for bell in () if out and self.loses() else out:
            self.schedule(self.clock.now_ms + START_MS, partial(self.delivery.answer, bell), bell.place)

    def _sweep(self) -> None:
        self.behind = self.delivery.sweep()

    def _report(self, place: Place, worked: Worked) -> None:
        self.worked.append((self.clock.now_ms, place, worked))

    def _within(self, several: Sequence[Callable[[], None]], ms: int) -> None:
        until_ms = self.clock.now_ms + ms
        concurrent_map(self.clock)(lambda one: one(), several)
        self.clock.now_ms = min(self.clock.now_ms, until_ms)

    def _sleep(self, ms: int) -> None:
        self.clock.now_ms += ms

    def _in_order(self, stream_id: str, after: str, from_ms: int, at_ms: int) -> tuple[Order, Iterator[Entry]]:
        begin = after or self._reader.place_at(stream_id, self._layout, from_ms)
        return self._layout.order, self._reader.entries(stream_id, self._layout, at_ms, begin, 1 << 30)

"""The events of a simulated upstream: when each happened, which are lost or out of order, and the backlogs of links.

Events are numbered from 0. Invariant: the same draws give the same events.
"""

import random
from collections.abc import Callable

from handlers.connection.inputs import Chunk
from local.simulation.links import Link
from local.simulation.upstream_memory import GONE_FRAME, SPEED, Memory
from states_language.clock import Clock

# With reordering, a resume sends again this many events before the cursor, which the cursor does not cover.
REORDER_DEPTH = 2


class NumberedEvents:
    """The events of one upstream; `emitted_ms[n]` is when event n happened, `is_lasting` whether a lasting fault is on.

    Its ids start over with each event of `begins`. No event of `lost` is sent; the event after each, one of `notices`,
    announces the loss.
    """

    def __init__(
        self, clock: Clock, draws: random.Random, is_lasting: Callable[[str], bool], begins: list[int]
    ) -> None:
        self._clock, self._draws, self._is_lasting = clock, draws, is_lasting
        self.begins = begins
        self._swapped: int | None = None
        self.emitted_ms: list[int] = []
        self.lost: set[int] = set()
        self.notices: set[int] = set()

    def emit_next(self) -> list[int]:
        """Emits the next event; returns the numbers that are sent now, in this order."""
        number = len(self.emitted_ms)
        self.emitted_ms.append(self._clock.now_ms())
        if self._swapped is None and self._is_lasting("losses") and self._draws.random() < 0.4:
            self.lost.add(number)
            number += 1
            self.notices.add(number)
            self.emitted_ms.append(self._clock.now_ms())
        numbers = [number]
        if self._swapped is not None:
            self.emitted_ms[self._swapped] = self._clock.now_ms()  # it is sent only now
            numbers, self._swapped = [number, self._swapped], None
        elif number not in self.notices and self._is_lasting("reorders") and self._draws.random() < 0.3:
            self._swapped = number
            return []
        if self._is_lasting("duplicates") and self._draws.random() < 0.5:
            numbers += range(max(self.begins[-1], number - 2), number + 1)
        return numbers


class Backlogs:
    """Resends `events` to links that resume, as far as the upstream remembers them, by `send`.

    After an unknown id it sends all its events if it `sends_all`, else only new ones.
    """

    def __init__(
        self,
        clock: Clock,
        memory: Memory,
        events: NumberedEvents,
        send: Callable[[Link, list[int]], None],
        *,
        reorders: bool,
    ) -> None:
        self._clock, self._memory, self._emitted_ms, self._send = clock, memory, events.emitted_ms, send
        self._begins, self.sends_all = events.begins, False
        self._back = REORDER_DEPTH if reorders else 0

    def send(self, link: Link) -> None:
        """Sends the events after the cursor: at once or, if it forgets, so slowly that the link may break off."""
        now_ms, newest = self._clock.now_ms(), len(self._emitted_ms)
        if link.cursor is None:
            return
        first, memory = max(self._begins[-1], link.cursor + 1 - self._back), self._memory
        if not memory.forgets:
            self._send(link, list(range(first, newest)))
            return
        oldest = self._oldest_number(now_ms)
        if memory.word == "frame" and self.has_forgotten(link):
            link.has_forgotten = True
            link.client.take_arrival(link, Chunk(GONE_FRAME))
            return
        link.backlog.extend(range(max(first, oldest), newest))
        if link.backlog:
            # Repeated events come at once.
            behind = next((number for number in link.backlog if number > link.cursor), link.backlog[-1])
            self._replay(link, self._emitted_ms[behind])

    def has_forgotten(self, link: Link) -> bool:
        """Returns whether the upstream has forgotten the cursor's event."""
        return link.cursor is not None and link.cursor < self._oldest_number(self._clock.now_ms())

    def find_cursor(self, link: Link) -> None:
        """Finds the event that a link's id means, if ids have started over."""
        begin, link.count = self._begins[-1], len(self._begins) - 1
        if link.sent_id is not None and link.count:
            link.cursor = begin + link.sent_id
            if link.cursor >= len(self._emitted_ms):
                link.cursor = begin - 1 if self.sends_all or self._memory.word else None

    def _oldest_number(self, now_ms: int) -> int:
        """Returns the oldest event that the upstream has; none is from before a restart."""
        return max(self._begins[-1], self._memory.oldest_number(self._emitted_ms, now_ms))

    def _replay(self, link: Link, since_ms: int) -> None:
        """Sends the due part of the backlog, which begins with the event of `since_ms`, and schedules the rest."""
        if not link.is_open:
            return
        now_ms, due = self._clock.now_ms(), []
        assert link.opened_ms is not None
        passed_ms = since_ms + SPEED * (now_ms - link.opened_ms)
        while link.backlog and self._emitted_ms[link.backlog[0]] <= passed_ms:
            due.append(link.backlog.popleft())
        self._send(link, due)
        if link.backlog:
            left_ms = self._emitted_ms[link.backlog[0]] - passed_ms
            self._clock.call_at(now_ms + left_ms // SPEED + 1, lambda: self._replay(link, since_ms))

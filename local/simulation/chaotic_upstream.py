"""Simulates an upstream of numbered events that misbehaves on demand, in virtual time.

Events are real frames, cut into chunks anywhere. Invariant: a closed link sends nothing more.
"""

import random
from collections.abc import Callable
from email.utils import formatdate

from handlers.connection.inputs import Chunk, Closed, Opened
from handlers.connection.opening_steps import Preparation, Try
from local.simulation.guarded_upstream import Guard, Opening
from local.simulation.links import Link, RecordedSlot, excess_connections
from local.simulation.numbered_events import Backlogs, NumberedEvents
from local.simulation.socket_peer import SocketPeer, close_frame, message_frame
from local.simulation.upstream_memory import GONE_STATUS, Ways
from local.simulation.upstream_sockets import UpstreamSockets
from local.simulation.wire import Wire
from states_language.clock import Clock

CONNECT_TIMEOUT_MS = 2_000
STALL_AFTER_MS = 4_000
# The codes with which it closes a socket, and the status that stands for a refusal of a socket.
RESTARTS, TRY_LATER, THROTTLED = 1012, 1013, 429
# The most time by which the second half of a cut chunk comes later.
LATE_MS = 40


class ChaoticUpstream:
    """The upstream of one run. `emitted_ms[n]` is when event n happened; `links` are all openings so far.

    `lost` and `notices` are those of its `NumberedEvents`. If it requires a token and a ticket, `guard` gives both.
    """

    def __init__(self, clock: Clock, ways: Ways, wire: Wire, say: Callable[[str], None], guard: Guard) -> None:
        self._clock = clock
        self._wire = wire
        self._say = say
        self._ways = ways
        self._draws = random.Random(ways.seed ^ 0x5EED)
        self._until_ms: dict[str, int] = {}
        self._status = 0
        self._events = NumberedEvents(clock, self._draws, self._is_lasting, wire.begins)
        self._backlogs = Backlogs(clock, ways.memory, self._events, self._send, reorders=ways.reorders)
        self.emitted_ms = wire.emitted_ms = self._events.emitted_ms
        self.lost, self.notices = self._events.lost, self._events.notices
        self.links: list[Link] = []
        self.open_links: list[Link] = []
        self.excess: list[str] = []
        self.sockets = UpstreamSockets(clock, self._draws, self._is_lasting, self._answer, self.excess)
        self.take_frame = self.sockets.take_frame
        self._guard = guard
        clock.call_at(clock.now_ms(), self._tick)

    # --- faults -------------------------------------------------------------------------------------------------------

    def hold(self, kind: str, until_ms: int, status: int = 0) -> None:
        """Makes a lasting fault last until `until_ms`."""
        self._until_ms[kind] = max(self._until_ms.get(kind, 0), until_ms)
        self._status = status or self._status

    def _is_lasting(self, kind: str) -> bool:
        return self._until_ms.get(kind, 0) > self._clock.now_ms()

    def reset(self) -> None:
        """Resets every open link."""
        for link in list(self.open_links):
            self._hang_up(link, "reset")

    def hang_up(self) -> None:
        """Ends every open link as a restarting server does."""
        self._end(list(self.open_links))

    def restart(self, value: int) -> None:
        """Ends every open link, and counts ids from 0 again; `value` chooses how, and the answer to an unknown id."""
        (self.hang_up if value & 1 else self.reset)()
        self._events.begins.append(len(self.emitted_ms))
        self._backlogs.sends_all = bool(value & 2)

    def _end(self, links: list[Link]) -> None:
        for link in links:
            self._flush(link)
            if link.peer is not None and not link.silent:
                link.client.take_arrival(link, Chunk(close_frame(RESTARTS)))
            self._hang_up(link, "ended_by_upstream")

    def truncate(self, draws: random.Random) -> None:
        """Ends every open link in the middle of the next event's frame."""
        whole = self.frame(len(self.emitted_ms))
        for link in list(self.open_links):
            if not link.silent:
                link.client.take_arrival(link, Chunk(link.held + whole[: draws.randrange(1, len(whole))]))
            self._hang_up(link, "truncated")

    def stall(self) -> None:
        """Silences every open link for good, like a peer that is gone without closing its socket."""
        for link in self.open_links:
            link.silent = True

    def pause(self, until_ms: int) -> None:
        """Silences every open link until `until_ms`; its events come late."""
        for link in self.open_links:
            if not link.silent:
                link.silent = True
                self._clock.call_at(until_ms, lambda link=link: self._end_silence(link))  # type: ignore[misc]

    def burst(self, count: int) -> None:
        """Emits many events at once."""
        for _ in range(count):
            self._emit()

    # --- openings -----------------------------------------------------------------------------------------------------

    def open(self, client: RecordedSlot, cursor: str | None) -> Link:
        """Returns a link that is answered soon, or not at all."""
        link = self._new_link(client, cursor)
        self._connect(link)
        return link

    def open_prepared(self, client: RecordedSlot, cursor: str | None, before: Preparation) -> Link:
        """Returns a link for which a token and a ticket are requested first."""
        link = self._new_link(client, cursor)

        def on_open(status: int, step: Try) -> None:
            link.places = step.places
            if status == 200:
                self._connect(link)
            else:
                self._refuse(link, status)

        def on_fail(closed: Closed) -> None:
            link.unready = closed.detail
            link.refused_with = self._guard.refuses_with if closed.reason == "rejected" else 0
            self.close(link, closed.reason)
            self._say(f"  {closed.detail}")
            client.take_arrival(link, closed)

        Opening(self._guard, before, lambda: link.closed_ms is None and link.function.is_alive, on_open, on_fail)
        return link

    def _new_link(self, client: RecordedSlot, cursor: str | None) -> Link:
        now_ms = self._clock.now_ms()
        asked = int(cursor) if self._ways.resumes and cursor else None
        link = Link(len(self.links), client, asked, now_ms, asks=bool(cursor), sent_id=asked)
        self.links.append(link)
        return link

    def _connect(self, link: Link) -> None:
        now_ms = self._clock.now_ms()
        if self._is_lasting("no listener"):
            self._clock.call_at(now_ms + 20, lambda: self._hang_up(link, "refused"))
        elif self._is_lasting("no answers"):
            self._clock.call_at(now_ms + CONNECT_TIMEOUT_MS, lambda: self._hang_up(link, "unreachable"))
        else:
            self._clock.call_at(now_ms + self._draws.randrange(5, 300), lambda: self._answer(link))

    def close(self, link: Link, reason: str = "closed_here") -> None:
        """Closes a link, from the client's side if no other reason is given."""
        if link.closed_ms is None:
            link.closed_ms, link.ended_by = self._clock.now_ms(), reason
            self._say(f"  link {link.number} closed ({reason})")
            if link in self.open_links:
                self.open_links.remove(link)

    def _answer(self, link: Link) -> None:
        if link.closed_ms is not None:
            return
        self._backlogs.find_cursor(link)
        now_ms, policy = self._clock.now_ms(), self._ways.policy
        others = list(self.open_links)
        if self._is_lasting("refusals"):
            self._refuse(link, self._status, self._ways.retry_after_s)
            return
        if self._ways.memory.word == "status" and self._backlogs.has_forgotten(link):
            self._say(f"  link {link.number} is told that {link.cursor} is too old")
            link.closed_ms, link.has_forgotten = now_ms, True
            link.client.take_arrival(link, Opened(GONE_STATUS))
            return
        if self._ways.socket and link.peer is None:
            self._switch(link)
            return
        if excess := excess_connections(link, others, policy):
            self.excess.append(excess)
        if policy == "forbids" and others:
            self._refuse(link, 429)
            return
        link.opened_ms = link.last_byte_ms = now_ms
        self.open_links.append(link)
        self._say(f"  link {link.number} opened" + (f" from {link.cursor}" if link.cursor else ""))
        head = Opened(200, self._date_header())
        link.client.take_arrival(link, head if link.peer is None else Chunk(message_frame({"op": "subscribed"})))
        if policy == "evicts":
            self._end(others)
        self._backlogs.send(link)
        self._clock.call_at(now_ms + STALL_AFTER_MS, lambda: self._check_stall(link))

    def _switch(self, link: Link) -> None:
        """Switches to WebSocket; events follow once the client has subscribed."""
        link.peer, link.row = SocketPeer(), link.cursor
        link.client.take_arrival(link, Opened(101, self._date_header(), link.places))

    def _date_header(self) -> dict[str, str]:
        """Returns the answer's Date header, if events carry the time at which they happened."""
        return {"date": formatdate(self._clock.now_ms() // 1000, usegmt=True)} if self._wire.timed else {}

    def _refuse(self, link: Link, status: int, retry_after_s: int = 0) -> None:
        if link.peer is not None:
            # A close of a socket has a code for throttling, but no pause.
            status, retry_after_s = THROTTLED, 0
        asks = f" for {retry_after_s} s" if retry_after_s else ""
        self._say(f"  link {link.number} refused with {status}{asks}")
        link.closed_ms, link.refused_with, link.retry_after_s = self._clock.now_ms(), status, retry_after_s
        if link.peer is not None:
            link.client.take_arrival(link, Chunk(close_frame(TRY_LATER)))
            return
        asked = {"retry-after": str(retry_after_s)} if retry_after_s else {}
        link.client.take_arrival(link, Opened(status, {"content-type": "text/html"} | asked))

    def _hang_up(self, link: Link, reason: str) -> None:
        if link.closed_ms is None:
            self.close(link, reason)
            link.client.take_arrival(link, Closed(reason))

    # --- events -------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        every_ms = self._ways.events_every_ms
        if not self._is_lasting("silence"):
            self._emit()
        if self._ways.socket:
            self.sockets.ping(self.open_links)
        self._clock.call_at(self._clock.now_ms() + self._draws.randrange(every_ms // 2, every_ms * 3 // 2), self._tick)

    def _emit(self) -> None:
        numbers = self._events.emit_next()
        for link in list(self.open_links) if numbers else ():
            if link.backlog:
                link.backlog.extend(numbers)
            elif not link.has_forgotten:
                self._send(link, [n for n in numbers if self._should_send(link, n)])

    def _should_send(self, link: Link, number: int) -> bool:
        """Returns whether the link gets the event: without a cursor, only if it happened after the answer."""
        return link.cursor is not None or self.emitted_ms[number] >= (link.opened_ms or 0)

    def frame(self, number: int) -> bytes:
        """Returns the event's frame."""
        return self._wire.frame(number, announces_loss=number in self.notices)

    def _send(self, link: Link, numbers: list[int]) -> None:
        numbers = [number for number in numbers if number not in self.lost] if self.lost else numbers
        if link.silent:
            link.waiting += numbers
            link.delayed.update(numbers)
            return
        data = link.held + b"".join(self.frame(number) for number in numbers)
        if not data:
            return
        # The network may cut the data anywhere; the rest comes a little later.
        cut = self._draws.randrange(1, 60) if self._draws.random() < 0.2 else 0
        whole, link.held = (data[:-cut], data[-cut:]) if 0 < cut < len(data) else (data, b"")
        link.notice_places += self._notices_among(link, numbers)
        link.sent += numbers
        link.last_byte_ms = self._clock.now_ms()
        link.client.take_arrival(link, Chunk(whole))
        if link.held:
            self._clock.call_at(link.last_byte_ms + self._draws.randrange(1, LATE_MS), lambda: self._flush(link))

    def _notices_among(self, link: Link, numbers: list[int]) -> list[int]:
        """Returns the places in `link.sent`, once `numbers` are appended, of events that announce a loss.

        On a socket, a hole in the numbers announces it.
        """
        places = []
        for place, number in enumerate(numbers, len(link.sent)):
            is_hole = link.row is not None and number > link.row + 1
            if is_hole if link.peer is not None else number in self.notices:
                places.append(place)
            link.row = number
        return places

    def _flush(self, link: Link) -> None:
        if link.held and link.is_open and not link.silent:
            data, link.held = link.held, b""
            link.client.take_arrival(link, Chunk(data))

    def _end_silence(self, link: Link) -> None:
        if link.is_open:
            link.silent, waiting, link.waiting = False, link.waiting, []
            link.came_ms.update(dict.fromkeys(waiting, self._clock.now_ms()))
            self._send(link, waiting)

    def _check_stall(self, link: Link) -> None:
        if link.closed_ms is not None:
            return
        due_ms = link.last_byte_ms + STALL_AFTER_MS
        if self._clock.now_ms() >= due_ms:
            self._hang_up(link, "stalled")
        else:
            self._clock.call_at(due_ms, lambda: self._check_stall(link))

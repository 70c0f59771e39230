"""Simulates an upstream that follows a script: it answers, evicts, refuses, drops or silences openings.

The only bytes that it sends are the end of the stream: events are counted from the intervals that its links covered
(`timeline/coverage.py`), so a day costs nothing. Invariant: after a Closed or `close` a client is never called again.
"""

from collections.abc import Callable
from functools import partial

from handlers.connection.inputs import Chunk, Closed, Opened
from local.simulation.scenario import Upstream, Window
from local.simulation.virtual_ports import Client
from states_language.clock import Clock

END_FRAME = b"event: end\ndata: end\n\n"
TOO_MANY = 429


class Link:
    """One opening, from the request to the close."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.opened_ms: int | None = None
        self.closed_ms: int | None = None
        self.silent_from_ms: int | None = None

    @property
    def is_open(self) -> bool:
        """Returns whether it was answered and is not closed."""
        return self.opened_ms is not None and self.closed_ms is None


class ScriptedUpstream:
    """The upstream of one replay; its script counts from `origin_ms`. `connect_ms` returns each opening's latency."""

    def __init__(self, clock: Clock, script: Upstream, origin_ms: int, connect_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._script = script
        self._origin_ms = origin_ms
        self._connect_ms = connect_ms
        self._links: list[Link] = []
        for at_ms in script.drops_ms:
            clock.call_at(origin_ms + at_ms, self._drop)
        for stall in script.stalls:
            clock.call_at(origin_ms + stall.from_ms, partial(self._stall, stall))
        if script.ends_at_ms is not None:
            clock.call_at(origin_ms + script.ends_at_ms, self._end)

    def open(self, client: Client, _cursor: str | None) -> Link:
        """Returns a link that is answered after the next latency."""
        link = Link(client)
        self._clock.call_at(self._clock.now_ms() + self._connect_ms(), lambda: self._answer(link))
        return link

    def close(self, link: Link) -> None:
        """Closes a link from the client's side; the client is not called."""
        if link.closed_ms is None:
            link.closed_ms = self._clock.now_ms()
        self._links = [other for other in self._links if other is not link]

    def _answer(self, link: Link) -> None:
        if link.closed_ms is not None:
            return
        older = list(self._links)
        status = self._status(bool(older))
        if status != 200:
            link.closed_ms = self._clock.now_ms()
            link.client.take_arrival(link, Opened(status))
            return
        link.opened_ms = self._clock.now_ms()
        self._links.append(link)
        link.client.take_arrival(link, Opened(status))
        if self._script.policy == "evicts":
            for other in older:
                self._hang_up(other, "ended_by_upstream")

    def _status(self, others_are_open: bool) -> int:
        at_ms = self._clock.now_ms() - self._origin_ms
        if self._script.ends_at_ms is not None and at_ms >= self._script.ends_at_ms:
            return 204
        for refusal in self._script.refusals:
            if refusal.from_ms <= at_ms < refusal.to_ms:
                return refusal.status
        return TOO_MANY if others_are_open and self._script.policy == "forbids" else 200

    def _hang_up(self, link: Link, reason: str) -> None:
        if link.is_open:
            self.close(link)
            link.client.take_arrival(link, Closed(reason))

    def _drop(self) -> None:
        for link in list(self._links):
            self._hang_up(link, "reset")

    def _end(self) -> None:
        for link in list(self._links):
            link.client.take_arrival(link, Chunk(END_FRAME))
            self._hang_up(link, "ended_by_upstream")

    def _stall(self, stall: Window) -> None:
        now_ms = self._clock.now_ms()
        every_ms = self._script.events_every_ms
        for link in list(self._links):
            assert link.opened_ms is not None
            last_byte_ms = max(link.opened_ms, now_ms - (now_ms - self._origin_ms - 1) % every_ms - 1)
            link.silent_from_ms = now_ms
            given_up_ms = last_byte_ms + round(self._script.stall_after_s * 1000)
            if given_up_ms < self._origin_ms + stall.to_ms:
                self._clock.call_at(given_up_ms, partial(self._hang_up, link, "stalled"))
            else:
                self._clock.call_at(self._origin_ms + stall.to_ms, partial(self._end_silence, link))

    def _end_silence(self, link: Link) -> None:
        if link.is_open:
            link.silent_from_ms = None

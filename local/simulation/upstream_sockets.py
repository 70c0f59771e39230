"""The WebSockets of a simulated upstream, besides events: it answers messages, and pings."""

import random
from collections.abc import Callable

from handlers.connection.inputs import Chunk
from local.simulation.links import Link
from local.simulation.socket_peer import message_frame
from states_language.clock import Clock

# How often it pings a socket.
PINGS = 0.2


class UpstreamSockets:
    """The sockets of one upstream; `answer` answers a subscription, `excess` gets the clients' violations.

    `acknowledged` has when each event was first acknowledged, by its number.
    """

    def __init__(
        self,
        clock: Clock,
        draws: random.Random,
        is_lasting: Callable[[str], bool],
        answer: Callable[[Link], None],
        excess: list[str],
    ) -> None:
        self._clock, self._draws, self._is_lasting, self._answer, self._excess = (
            clock,
            draws,
            is_lasting,
            answer,
            excess,
        )
        self.acknowledged: dict[int, int] = {}

    def take_frame(self, link: Link, frame: bytes) -> None:
        """Receives a frame from a client's socket, and answers soon."""
        if link.closed_ms is not None or link.peer is None:
            return
        try:
            messages = link.peer.read_messages(frame)
        except AssertionError as error:
            self._excess.append(f"link {link.number}: {error}")
            return
        for message in messages:
            if message["op"] == "stored":
                self.acknowledged.setdefault(message["seq"], self._clock.now_ms())
                continue
            at_ms = self._clock.now_ms() + self._draws.randrange(5, 300)
            if message["op"] == "subscribe":
                if (since := message.get("since")) != link.cursor:
                    self._excess.append(f"link {link.number} subscribes since {since}, not {link.cursor}")
                if not self._is_lasting("no answers"):
                    self._clock.call_at(at_ms, lambda: self._answer(link))
            elif message["op"] == "ping":
                link.pinged_ms = link.pinged_ms or self._clock.now_ms()
                if not self._is_lasting("no answers"):
                    self._clock.call_at(at_ms, lambda: self._pong(link))

    def ping(self, links: list[Link]) -> None:
        """Pings sockets now and then, and records a violation for each client that has not answered for long."""
        now_ms = self._clock.now_ms()
        for link in [link for link in links if link.peer is not None]:
            assert link.peer is not None
            if link.function.is_alive and not link.function.was_frozen and link.peer.unanswered_pings(now_ms):
                self._excess.append(f"link {link.number} does not answer pings")
            if not link.silent and self._draws.random() < PINGS:
                self._send(link, link.peer.ping(now_ms))

    def _pong(self, link: Link) -> None:
        if not link.silent:
            link.pinged_ms = 0
            self._send(link, message_frame({"op": "pong"}))

    def _send(self, link: Link, frame: bytes) -> None:
        """Sends a frame that is not an event, after the held-back rest of a cut one."""
        if link.is_open and not link.silent:
            data, link.held = link.held + frame, b""
            link.last_byte_ms = self._clock.now_ms()
            link.client.take_arrival(link, Chunk(data))

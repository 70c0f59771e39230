"""Simulates the servers that give the tokens and tickets for an upstream.

It carries out the steps of `handlers/connection/preparation.py` as the reader's thread does on sockets: `PlayedAuth`
answers a request a moment later, or not at all while a server is away. Invariant: the stream is opened only with a
valid token and a valid ticket.
"""

import functools
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from handlers.connection.inputs import Closed
from handlers.connection.opening_steps import Answer, Ask, Call, Preparation, Try, Unready
from handlers.profile.upstream_requests import UpstreamRequest
from local.upstreams.auth_servers import PlayedAuth
from states_language.clock import Clock

ANSWERS_AFTER_MS = 50


class Guard:
    """The servers that give tokens and tickets; `away` has the instant until which a server does not answer, by name.

    Until `refuses_until_ms` the ticket server refuses requests with the status `refuses_with`.
    """

    def __init__(self, clock: Clock, auth: PlayedAuth) -> None:
        self.clock, self.auth = clock, auth
        self.away: dict[str, int] = {}
        self.refuses_until_ms, self.refuses_with = 0, 403
        self.asked: list[tuple[int, str, int]] = []  # instant, server, and status of each request; 0 for no answer

    def ask(self, request: UpstreamRequest) -> Answer | Closed:
        """Returns the server's current answer to the request."""
        name = "ticket" if request.address.endswith("/ticket") else "token"
        headers = {header: value.decode() for header, value in request.headers.items()}
        if self.clock.now_ms() < self.away.get(name, 0):
            self.asked.append((self.clock.now_ms(), name, 0))
            return Closed("refused", "nothing listens at the address")
        if name == "token":
            status, said = self.auth.answer_token_request(headers, request.body or b"")
        elif self.clock.now_ms() < self.refuses_until_ms:
            status, said = self.refuses_with, {}
        else:
            status, said = self.auth.answer_ticket_request(headers)
        self.asked.append((self.clock.now_ms(), name, status))
        return Answer(status, {}, json.dumps(said).encode())

    def is_admitted(self, request: UpstreamRequest) -> bool:
        """Returns whether the stream is opened for this request."""
        tickets = parse_qs(urlsplit(request.address).query).get("ticket", [""])
        return self.auth.use_ticket({name: value.decode() for name, value in request.headers.items()}, tickets[0])


class Opening:
    """Performs the requests before one opening, as long as `is_open` is true.

    It calls `on_open` with the status of the last try and the try itself, or `on_fail` with the reason if there is
    none.
    """

    def __init__(
        self,
        guard: Guard,
        before: Preparation,
        is_open: Callable[[], bool],
        on_open: Callable[[int, Try], None],
        on_fail: Callable[[Closed], None],
    ) -> None:
        self._guard, self._before, self._is_open, self._on_open, self._on_fail = (
            guard,
            before,
            is_open,
            on_open,
            on_fail,
        )
        self._make_step(lambda: next(before))

    def _make_step(self, move: Callable[[], Ask | Call | Try]) -> None:
        """Makes the next step, unless the link was closed meanwhile."""
        if not self._is_open():
            return
        try:
            while isinstance(step := move(), Call):
                move = functools.partial(self._before.send, step.run())
        except Unready as error:
            self._on_fail(error.closed)
            return
        answer = self._send_answer if isinstance(step, Ask) else self._send_status
        self._guard.clock.call_at(self._guard.clock.now_ms() + ANSWERS_AFTER_MS, lambda: answer(step))

    def _send_answer(self, step: Any) -> None:
        self._make_step(lambda: self._before.send(self._guard.ask(step.request)))

    def _send_status(self, step: Any) -> None:
        if not self._is_open():
            return
        status = 200 if self._guard.is_admitted(step.request) else 401
        try:
            following = self._before.send(status)
        except StopIteration:
            self._on_open(status, step)
        else:
            self._make_step(lambda: following)

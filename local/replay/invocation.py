"""One invocation in virtual time: performs what handlers/attempts.py wishes, connection after connection.

As handlers/invocation.py does in real time; it decides nothing. Nothing takes time but connections and pauses.
Invariant: after `kill` nothing of it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handlers.attempts import ChangeRest, Connect, Pause, ReadLease, ReadRest, Wish, attempts
from handlers.connection.effects import Outcome
from handlers.profile.behaviour import Profile
from handlers.store.connection_store import Store
from handlers.store.requests import Invocation
from local.replay.connection import VirtualConnection
from local.replay.scripted_upstream import ScriptedUpstream
from states_language.clock import Clock, Timer


class VirtualInvocation:
    """`on_end` is called once with the outcome, unless it is killed; `connections` are all that it made."""

    def __init__(
        self,
        clock: Clock,
        profile: Profile,
        store: Store,
        upstream: ScriptedUpstream,
        invocation: Invocation,
        renew_all: Callable[[], None],
        on_end: Callable[[Outcome], None],
    ) -> None:
        self._clock = clock
        self._profile = profile
        self._store = store
        self._upstream = upstream
        self._invocation = invocation
        self._renew_all = renew_all
        self._on_end = on_end
        self._wishes = attempts(profile, invocation, clock.now_ms, self._draw)
        self._pause: Timer | None = None
        self.connections: list[VirtualConnection] = []

    def _draw(self, least: float, most: float) -> float:
        return least + (most - least) * self._clock.random()

    def advance(self, answer: object = None) -> None:
        """Begins, or goes on with what came of the last wish, until one takes time."""
        self._pause = None
        try:
            wish = self._wishes.send(answer)
            while not isinstance(wish, Connect | Pause):
                wish = self._wishes.send(self._perform(wish))
        except StopIteration as ended:
            self._on_end(ended.value.outcome)
            return
        if isinstance(wish, Pause):
            self._pause = self._clock.call_at(self._clock.now_ms() + wish.for_ms, self.advance)
            return
        connection = VirtualConnection(
            self._clock, self._profile, self._store, self._upstream, wish.invocation, self._renew_all, self.advance
        )
        self.connections.append(connection)
        connection.start()

    def kill(self) -> None:
        """Ends it as SIGKILL does."""
        if self._pause is not None:
            self._pause.cancel()
        for connection in self.connections[-1:]:
            if connection.alive:
                connection.kill()

    def renew(self) -> None:
        """Lets the connection write what it would have written by now."""
        for connection in self.connections[-1:]:
            connection.renew()

    def lease_changed(self) -> None:
        """Tells the connection, which does not poll."""
        for connection in self.connections[-1:]:
            connection.lease_changed()

    def _perform(self, wish: Wish) -> Any:
        stream_id = self._invocation.stream_id
        match wish:
            case ReadRest():
                return self._store.read_rest(stream_id)
            case ChangeRest(before, after):
                return self._store.change_rest(stream_id, before, after, self._invocation.holder)
            case ReadLease():
                return self._store.read_lease(stream_id)
            case _:
                raise TypeError(f"a replay has no {wish!r}")

"""Drives one connection in virtual time: the real manager and store on a scripted upstream and an in-memory table.

It performs effects and feeds inputs, as `handlers/driver.py` does on sockets, and decides nothing. It differs: nothing
takes time but what the scenario says; the ledger's record is written at the end alone, and a renewal only before
somebody looks; and the lease, which a real connection polls, is read on the same grid of instants but only when it has
changed since: a poll that sees nothing new has no effect, so leaving it out changes nothing but the cost.

Invariant: after `kill` no input reaches the manager and no effect is performed: a killed function runs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from handlers.connection.effects import (
    Chunk,
    Claim,
    Closed,
    CloseUpstream,
    Effect,
    Finish,
    Input,
    Open,
    Opened,
    Outcome,
    RecordGaps,
    SaveProgress,
    Woken,
    Write,
    Written,
)
from handlers.connection.phases import Phase
from handlers.profile.behaviour import Profile
from handlers.store.connection_store import Store
from handlers.store.requests import Invocation, Report, Requests, manager_of
from local.replay.scripted_upstream import Link, ScriptedUpstream
from states_language.clock import Clock, Timer


class VirtualConnection:
    """One connection of an invocation; `on_end` is called once with its outcome, unless it is killed."""

    def __init__(
        self,
        clock: Clock,
        profile: Profile,
        store: Store,
        upstream: ScriptedUpstream,
        invocation: Invocation,
        renew_all: Callable[[], None],
        on_end: Callable[[Report], None],
    ) -> None:
        self._clock = clock
        self._store = store
        self._upstream = upstream
        self._manager = manager_of(profile, invocation)
        self._requests = Requests(profile, store, invocation, clock.now_ms)
        self._invocation = invocation
        self._renew_all = renew_all
        self._on_end = on_end
        self._effects: deque[Effect] = deque()
        self._busy = False
        self._alarm: Timer | None = None
        self._alarm_ms: int | None = None
        self._poll: Timer | None = None
        self._link: Link | None = None
        self.alive = True
        self.ended_by = ""

    @property
    def link(self) -> Link | None:
        """Returns the opening of the upstream, if there was one."""
        return self._link

    def start(self) -> None:
        """Begins; every further step comes from the clock, the upstream or the lease."""
        self._perform(self._manager.start(self._clock.now_ms()))

    def kill(self) -> None:
        """Ends it as SIGKILL does: its socket closes, and nothing of it runs again."""
        self.renew()
        self.alive = False
        self.ended_by = "killed"
        self._disarm()
        if self._link is not None:
            self._upstream.close(self._link)

    def renew(self) -> None:
        """Writes the renewal that a real connection would have written by now; for whoever looks at the lease next."""
        opened_ms = self._manager.progress.opened_ms
        if self.alive and self._manager.phase is Phase.OPENING and self._manager.lease_due_ms is not None:
            now_ms = self._clock.now_ms()  # it waits for the answer and renews its turn
            self._store.renew(self._invocation.stream_id, self._manager.fence, self._manager.expires_at_ms(now_ms))
        elif self.alive and opened_ms is not None and self._manager.phase in (Phase.CONNECTED, Phase.OVERLAPPING):
            now_ms = self._clock.now_ms()
            last_ms = now_ms - (now_ms - opened_ms) % self._invocation.progress_every_ms
            self._store.renew(self._invocation.stream_id, self._manager.fence, self._manager.expires_at_ms(last_ms))

    def lease_changed(self) -> None:
        """Sets the next poll that will see the change; called by whoever owns the table."""
        due_ms = self._manager.lease_due_ms
        if not self.alive or self._busy or due_ms is None or self._poll is not None:
            return
        late_ms = max(0, self._clock.now_ms() - due_ms)
        self._poll_at(due_ms + -(-late_ms // self._invocation.lease_every_ms) * self._invocation.lease_every_ms)

    # --- what the upstream says ---------------------------------------------------------------------------------------

    def opened(self, status: int) -> None:
        """Feeds the upstream's answer."""
        self._feed(Opened(status))

    def received(self, data: bytes) -> None:
        """Feeds bytes."""
        self._feed(Chunk(data))

    def closed(self, reason: str) -> None:
        """Feeds the end of the link."""
        self._feed(Closed(reason))

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _feed(self, given: Input) -> None:
        if self.alive:
            self._perform(self._manager.handle(self._clock.now_ms(), given))

    def _perform(self, effects: list[Effect]) -> None:
        """Performs effects in order, and those of the inputs that they lead to after them."""
        self._effects.extend(effects)
        if self._busy:
            return
        self._busy = True
        while self.alive and (self._effects or self._lease_is_due()):
            answer = self._do(self._effects.popleft()) if self._effects else self._lease()
            if answer is not None:
                self._effects.extend(self._manager.handle(self._clock.now_ms(), answer))
        self._busy = False
        if self.alive:
            self._arm()

    def _lease(self) -> Input:
        self._renew_all()
        return self._requests.read_lease()

    def _lease_is_due(self) -> bool:
        due_ms = self._manager.lease_due_ms
        return due_ms is not None and due_ms <= self._clock.now_ms()

    def _do(self, effect: Effect) -> Input | None:
        """Performs one effect and returns the input that answers it at once, if one does."""
        match effect:
            case Claim():
                self._renew_all()
            case Open():
                self._link = self._upstream.open(self)
                return None
            case SaveProgress():
                self._save(effect)
                return None
            case Write(events=events):
                return Written(len(events), 0)
            case CloseUpstream():
                if self._link is not None:
                    self._upstream.close(self._link)
                return Closed("closed_here")
            case RecordGaps():
                return None  # the timeline tells them
            case Finish(outcome):
                self._finish(outcome)
                return None
        return [request() for request in self._requests.of(effect)][-1]

    def _save(self, effect: SaveProgress) -> None:
        if effect.cursor is not None:
            stream_id, fence = self._invocation.stream_id, effect.progress.fence
            self._store.save_cursor(stream_id, effect.cursor, fence, self._clock.now_ms())
        for request in self._requests.let_others_try(effect.progress):
            request()
        self.ended_by = effect.progress.ended_by

    def _finish(self, outcome: Outcome) -> None:
        self.alive = False
        self._disarm()
        progress = self._manager.progress
        if progress.opened_ms is not None:
            for request in self._requests.of(SaveProgress(None, progress, 0)):
                request()
        self._on_end(Report(outcome, progress, None, 0))

    # --- timers -------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        wake_at_ms = self._manager.wake_at_ms
        if wake_at_ms != self._alarm_ms:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_ms = wake_at_ms
            self._alarm = None if wake_at_ms is None else self._clock.call_at(wake_at_ms, self._wake)
        due_ms = self._manager.lease_due_ms
        if due_ms is not None and self._manager.phase in (Phase.SETTLING, Phase.AWAITING_RELEASE):
            self._poll_at(due_ms)  # it is waiting for a change, or for the lease to run out: it polls as it is told

    def _poll_at(self, at_ms: int) -> None:
        if self._poll is not None:
            self._poll.cancel()
        self._poll = self._clock.call_at(at_ms, self._read_lease)

    def _read_lease(self) -> None:
        self._poll = None
        if self.alive and self._manager.lease_due_ms is not None:
            self._feed(self._lease())

    def _wake(self) -> None:
        self._alarm = self._alarm_ms = None
        self._feed(Woken())

    def _disarm(self) -> None:
        for timer in (self._alarm, self._poll):
            if timer is not None:
                timer.cancel()

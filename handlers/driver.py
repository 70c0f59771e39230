"""The real-time loop that joins the manager, one upstream and the store.

It decides nothing about the stream: it performs the manager's effects in order and tells it what came of them. It knows
the clock (one wall-clock reading carried on by the monotonic clock, so that time never jumps), the threads and the hard
stop. Invariant: `run` returns before the function's deadline, whatever the store and the upstream do.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from handlers.connection.effects import (
    Closed,
    CloseUpstream,
    Effect,
    Finish,
    Input,
    Open,
    Opened,
    Outcome,
    StoreFailed,
    Woken,
    Write,
)
from handlers.errors import StoreUnavailable
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.store.connection_store import Store
from handlers.store.requests import Invocation, Report, Requests, manager_of
from handlers.store.worker import Worker
from handlers.upstream.reader import Upstream

T = TypeVar("T")


class Clock:
    """Epoch milliseconds that never go back: the wall clock once, the monotonic clock after."""

    def __init__(self) -> None:
        self._start_ms = time.time_ns() // 1_000_000
        self._start = time.monotonic_ns()

    def now_ms(self) -> int:
        """The time."""
        return self._start_ms + (time.monotonic_ns() - self._start) // 1_000_000


class Driver:
    """One connection of one invocation; `run` is called once, on the main thread."""

    def __init__(
        self, profile: Profile, store: Store, invocation: Invocation, clock: Clock, secrets: Secrets | None = None
    ) -> None:
        self._profile = profile
        self._secrets = secrets
        self._invocation = invocation
        self._clock = clock
        self._manager = manager_of(profile, invocation)
        self._requests = Requests(profile, store, invocation, clock.now_ms)
        self._worker = Worker(invocation, clock.now_ms)
        self._upstream: Upstream | None = None
        self._blocked_ms = 0
        self._open_since_ms = 0
        self._connect_ms: int | None = None

    def run(self) -> Report:
        """How it ended. Errors of the store and the upstream are outcomes; only a defect is raised."""
        try:
            effects = deque(self._manager.start(self._clock.now_ms()))
            while True:
                outcome = self._perform_all(effects)
                if outcome is not None:
                    return Report(outcome, self._manager.progress, self._connect_ms, self._blocked_ms)
                effects.extend(self._next_effects())
        finally:
            self._forget_upstream()
            self._worker.stop()

    def _due_effects(self) -> list[Effect]:
        """What follows from an instant that the manager named and that has come; nothing where none has."""
        manager = self._manager
        now_ms = self._clock.now_ms()
        if manager.wake_at_ms is not None and now_ms >= manager.wake_at_ms:
            return self._handle(Woken())
        if manager.lease_due_ms is not None and now_ms >= manager.lease_due_ms:
            return self._handle(self._ask(self._requests.read_lease))
        return []

    def _next_effects(self) -> list[Effect]:
        """What follows from the next thing that happens: an instant the manager named, or an arrival."""
        # First what is due: a stream that never pauses must not keep the lease from being read.
        if due := self._due_effects():
            return due
        manager, now_ms = self._manager, self._clock.now_ms()
        instants = [instant for instant in (manager.wake_at_ms, manager.lease_due_ms) if instant is not None]
        wait_s = max(0, min(instants) - now_ms) / 1000
        if self._upstream is None:
            time.sleep(wait_s)
            return []
        arrival = self._upstream.get(wait_s)
        if arrival is None:
            return []
        arrived_ms = self._clock.now_ms() - round(self._upstream.taken_s * 1000)
        if isinstance(arrival, Opened):
            self._connect_ms = arrived_ms - self._open_since_ms
        elif isinstance(arrival, Closed):
            self._forget_upstream()
        return self._handle(arrival, arrived_ms)

    def _handle(self, given: Input, arrived_ms: int | None = None) -> list[Effect]:
        """What follows from `given`; the manager learns too since when the oldest waits that it was not given yet."""
        now_ms = self._clock.now_ms()
        unread_s = None if self._upstream is None else self._upstream.unread_s
        unread_ms = None if unread_s is None else now_ms - round(unread_s * 1000)
        return self._manager.handle(now_ms, given, arrived_ms=arrived_ms, unread_ms=unread_ms)

    def _perform_all(self, effects: deque[Effect]) -> Outcome | None:
        """Performs effects and what follows from them until none is left; the outcome once it is known."""
        while effects:
            if isinstance(effects[0], Write):
                # Thousands of events may have come at once: not even they keep the lease from being read.
                effects.extendleft(reversed(self._due_effects()))
            effect = effects.popleft()
            if isinstance(effect, Finish):
                return effect.outcome
            given = self._perform(effect)
            if given is None:
                continue
            following = self._handle(given)
            if isinstance(given, StoreFailed) and following:
                # The manager ends for it: what was still to be written before is not tried any more.
                effects.clear()
            # What follows from an effect comes before what was to come after it: progress is saved between two writes.
            effects.extendleft(reversed(following))
        return None

    def _perform(self, effect: Effect) -> Input | None:
        """What came of one effect, where the manager is to be told."""
        match effect:
            case Open(cursor):
                self._open(cursor)
                return None
            case CloseUpstream():
                if self._upstream is not None:
                    self._upstream.close()  # what it has read still arrives, then Closed
                return None
            case _:
                requests = self._requests.of(effect)
                return self._ask(lambda: [request() for request in requests][-1])

    def _ask(self, request: Callable[[], T]) -> T | StoreFailed:
        """The answer of the store, waited for until the hard stop and no longer."""
        try:
            return self._worker.ask(request)
        except StoreUnavailable as error:
            return StoreFailed(str(error))

    def _open(self, cursor: str | None) -> None:
        request = self._profile.request(self._invocation.stream_id, cursor, self._secrets)
        self._open_since_ms = self._clock.now_ms()
        self._upstream = Upstream(
            request,
            connect_timeout_s=self._profile.connect_timeout_s,
            stall_after_s=self._profile.stall_after_s,
            joins=self._profile.joins_chunks,
        )
        self._upstream.start()

    def _forget_upstream(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._blocked_ms += self._upstream.blocked_ms
            self._upstream = None

"""One invocation of the connection manager in virtual time, with a store that takes time and a clock that may be wrong.

It does what handlers/driver.py and the handler's loop around it do on threads, in the same order: effects one after the
other, each request waited for, then what is due, then what has arrived. It is written as a generator of pauses, so that
it can be killed at any of them, or inside a request. It decides nothing of the stream. Invariant: after `kill` nothing
of it runs.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from handlers.attempts import ChangeRest, Connect, Pause, ReadLease, ReadRest, Wish, attempts
from handlers.connection.effects import (
    Chunk,
    Claim,
    Closed,
    CloseUpstream,
    Effect,
    Finish,
    Input,
    MarkConnected,
    Open,
    Opened,
    Outcome,
    StoreFailed,
    Woken,
)
from handlers.connection.manager import Manager
from handlers.profile.behaviour import Profile
from handlers.store.connection_store import Store
from handlers.store.requests import Invocation, Report, Requests, manager_of
from local.chaos.chaotic_upstream import ChaoticUpstream
from local.chaos.link import Link
from local.chaos.slow_requests import Killed, SlowRequests, Steps, Task
from local.chaos.unreliable_dynamodb import UnreliableDynamoDB
from states_language.clock import Timer, VirtualClock

CLOSED_HERE = Closed("closed_here")


class VirtualFunction:
    """`on_end` is called once with the outcome, unless it is killed."""

    def __init__(
        self,
        clock: VirtualClock,
        profile: Profile,
        store: Store,
        dynamodb: UnreliableDynamoDB,
        upstream: ChaoticUpstream,
        task: Task,
        on_end: Callable[[Outcome], None],
    ) -> None:
        self._clock = clock
        self._profile = profile
        self._store = store
        self._upstream = upstream
        self.task = task
        self._on_end = on_end
        self._draws = random.Random(task.number)
        self.slow = SlowRequests(clock, dynamodb, task, self._draws)
        self._inbox: deque[tuple[Opened | Chunk | Closed, int]] = deque()
        self._claimed_ms = 0
        self._looked_ms = 0
        self._took_ms: int | None = None
        self._timer: Timer | None = None
        self._listens = False
        self._frozen_until_ms = 0
        self._manager: Manager
        self._requests: Requests
        self.link: Link | None = None
        self.links_by_fence: dict[int, Link] = {}
        self.is_alive = True
        self.is_lost = False  # the machine hears no more of it
        self.died_ms: int | None = None
        self.on_kill: Callable[[], None] = self.kill
        self._steps = self._run()

    @property
    def execution(self) -> str:
        """The execution that it runs for."""
        return self.task.invocation.execution

    def start(self) -> None:
        """Begins; every further step comes from the clock and the upstream."""
        self._step()

    def kill(self, linger_ms: int = 0) -> None:
        """Ends it as SIGKILL does; its socket closes after a while."""
        self.is_alive = False
        self.died_ms = self._clock.now_ms() if self.died_ms is None else self.died_ms
        if self._timer is not None:
            self._timer.cancel()
        link = self.link
        if link is not None and linger_ms:
            self._clock.call_at(self._clock.now_ms() + linger_ms, lambda: self._upstream.close(link))
        elif link is not None:
            self._upstream.close(link)

    def freeze(self, until_ms: int) -> None:
        """Lets nothing of it run until then; what arrives waits."""
        self._frozen_until_ms = max(self._frozen_until_ms, until_ms)

    def arrived(self, link: Link, arrival: Opened | Chunk | Closed) -> None:
        """Takes what the link brings, unless it was left already."""
        if self.is_alive and link is self.link:
            self._inbox.append((arrival, self._now_ms()))
            if self._listens:
                self._listens = False
                self._resume_at(self._clock.now_ms())

    # --- the trampoline -----------------------------------------------------------------------------------------------

    def _resume_at(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_at(at_ms, self._step)

    def _step(self) -> None:
        self._timer, self._listens = None, False
        if not self.is_alive:
            return
        if self._clock.now_ms() < self._frozen_until_ms:
            self._resume_at(self._frozen_until_ms)
            return
        try:
            until_ms, listens = next(self._steps)
            # The answer to a request: mostly nothing else happens until it is there.
            while not listens and self._frozen_until_ms < until_ms and self._clock.skip_to(until_ms):
                until_ms, listens = next(self._steps)
        except StopIteration as ended:
            self.is_alive = False
            self._on_end(ended.value)
        except Killed:
            self.on_kill()
        else:
            self._listens = listens
            self._resume_at(until_ms)

    # --- the handler --------------------------------------------------------------------------------------------------

    def _run(self) -> Steps[Outcome]:
        """As handlers/invocation.py."""
        wishes = attempts(self._profile, self.task.invocation, self._now_ms, self._draws.uniform)
        answer: Any = None
        failed: Link | None = None
        while True:
            try:
                wish = wishes.send(answer)
            except StopIteration as ended:
                self._settle(failed)
                outcome: Outcome = ended.value.outcome
                return outcome
            if not isinstance(wish, ChangeRest | ReadRest):
                self._settle(failed)
            answer = yield from self._grant(wish)
            if isinstance(answer, StoreFailed):
                return Outcome("StoreUnavailable", "", answer.detail)
            if isinstance(answer, Report):
                failed = self.links_by_fence.get(answer.progress.fence)
                if answer.outcome.error == "StoreUnavailable":
                    failed = None

    def _grant(self, wish: Wish) -> Steps[Any]:
        stream_id, holder = self.task.invocation.stream_id, self.task.invocation.holder
        at_ms = self._clock.now_ms()
        match wish:
            case ReadRest():
                self._looked_ms, self._took_ms = at_ms, None
                return (yield from self.slow.ask(lambda: self._store.read_rest(stream_id)))
            case ChangeRest(before, after):
                self._looked_ms, self._took_ms = at_ms, at_ms
                return (yield from self.slow.ask(lambda: self._store.change_rest(stream_id, before, after, holder)))
            case ReadLease():
                return (yield from self.slow.ask(lambda: self._store.read_lease(stream_id)))
            case Pause(for_ms):
                yield at_ms + for_ms, False
                return None
            case Connect(invocation):
                return (yield from self._connect(invocation))
            case _:
                raise TypeError(f"no schedule has {wish!r}")

    def _settle(self, link: Link | None) -> None:
        """From now on whoever looks knows what came of the link."""
        if link is not None and link.settled_ms is None:
            link.settled_ms = self._clock.now_ms()

    # --- one connection -----------------------------------------------------------------------------------------------

    def _connect(self, invocation: Invocation) -> Steps[Report]:
        """As handlers/driver.py."""
        self._manager = manager_of(self._profile, invocation)
        self._requests = Requests(self._profile, self._store, invocation, self._now_ms)
        self._leave_link()
        effects = deque(self._manager.start(self._now_ms()))
        while True:
            outcome = yield from self._perform_all(effects)
            if outcome is not None:
                self._leave_link()
                self._took_ms = None
                return Report(outcome, self._manager.progress, None, 0)
            effects.extend((yield from self._next_effects()))

    def _next_effects(self) -> Steps[list[Effect]]:
        manager, now_ms = self._manager, self._now_ms()
        if manager.wake_at_ms is not None and now_ms >= manager.wake_at_ms:
            return self._handle(Woken())
        if manager.lease_due_ms is not None and now_ms >= manager.lease_due_ms:
            return self._handle((yield from self.slow.ask(self._requests.read_lease)))
        if not self._inbox:
            instants = [instant for instant in (manager.wake_at_ms, manager.lease_due_ms) if instant is not None]
            yield min(instants) - self.task.skew_ms, True
        if not self._inbox:
            return []
        arrival, arrived_ms = self._inbox.popleft()
        if isinstance(arrival, Closed):
            self._leave_link()
        return self._handle(arrival, arrived_ms)

    def _handle(self, given: Input, arrived_ms: int | None = None) -> list[Effect]:
        unread_ms = self._inbox[0][1] if self._inbox else None
        return self._manager.handle(self._now_ms(), given, arrived_ms=arrived_ms, unread_ms=unread_ms)

    def _perform_all(self, effects: deque[Effect]) -> Steps[Outcome | None]:
        while effects:
            effect = effects.popleft()
            if isinstance(effect, Finish):
                return effect.outcome
            if isinstance(effect, Open):
                self._open(effect.cursor)
                continue
            if isinstance(effect, CloseUpstream):
                if self.link is not None:
                    self._upstream.close(self.link)
                    self._inbox.append((CLOSED_HERE, self._now_ms()))  # after what had arrived
                continue
            if isinstance(effect, Claim):
                self._claimed_ms = self._clock.now_ms()
            given = yield from self.slow.ask(*self._requests.of(effect))
            if given is None:
                if isinstance(effect, MarkConnected) and self.link is not None:
                    self.link.marked_ms = self._clock.now_ms()
                continue
            following = self._handle(given)
            if isinstance(given, StoreFailed) and following:
                effects.clear()
            effects.extend(following)
        return None

    def _open(self, cursor: str | None) -> None:
        self.link = link = self._upstream.open(self, cursor)
        link.claimed_ms, link.looked_ms, link.took_ms = self._claimed_ms, self._looked_ms, self._took_ms
        self.links_by_fence[self._manager.fence] = link

    def _now_ms(self) -> int:
        return self._clock.now_ms() + self.task.skew_ms

    def _leave_link(self) -> None:
        if self.link is not None:
            self._upstream.close(self.link)
            self.link = None
        self._inbox.clear()

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
from typing import TypeVar

from handlers.store import Store
from handlers.stream.manager import Manager
from handlers.stream.profiles import Profile
from handlers.stream.signals import (
    Chunk,
    Claim,
    Closed,
    CloseUpstream,
    CursorRead,
    Effect,
    Finish,
    Input,
    LeaseRead,
    MarkConnected,
    MarkReleased,
    Open,
    Opened,
    Outcome,
    ReadCursor,
    RecordGaps,
    SaveProgress,
    StoreFailed,
    TakeTurn,
    Woken,
    Write,
)
from local.chaos.dynamodb import UnreliableDynamoDB
from local.chaos.requests import Killed, Requests, Steps, Task
from local.chaos.upstream import ChaoticUpstream, Link
from local.clock import Clock, Timer

T = TypeVar("T")
CLOSED_HERE = Closed("closed_here")
RECONNECT_REST_S, RECONNECT_REST_MOST_S, LIVED_MS = 0.1, 5, 1_000


class VirtualFunction:
    """`on_end` is called once with the outcome, unless it is killed."""

    def __init__(
        self,
        clock: Clock,
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
        self._draws = random.Random(f"{task.request_id}/{task.skew_ms}")
        self._deadline_ms = clock.now_ms() + task.skew_ms + task.limit_ms
        self.requests = Requests(clock, dynamodb, clock.now_ms() + task.limit_ms, task.margin_ms, self._draws)
        self._inbox: deque[tuple[Opened | Chunk | Closed, int]] = deque()
        self._after_fence = 0
        self._claimed_ms = 0
        self._timer: Timer | None = None
        self._listens = False
        self._frozen_until_ms = 0
        self._manager: Manager
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
        return self.task.execution

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
        tries = self._profile.reconnect_tries
        while True:
            outcome = yield from self._connect()
            left_ms = self._deadline_ms - self._now_ms()
            if outcome.error != "StreamDropped" or tries <= 0 or left_ms <= 3 * self.task.margin_ms:
                return outcome
            progress = self._manager.progress
            lived_ms = (progress.closed_ms or 0) - (progress.opened_ms or progress.closed_ms or 0)
            tries = self._profile.reconnect_tries if lived_ms >= LIVED_MS else tries - 1
            failures = self._profile.reconnect_tries - tries
            rest_s = self._draws.uniform(0, min(RECONNECT_REST_S * (2**failures - 1), RECONNECT_REST_MOST_S))
            yield self._clock.now_ms() + round(rest_s * 1000), False
            self._after_fence = self._manager.fence

    def _connect(self) -> Steps[Outcome]:
        task = self.task
        self._manager = Manager(
            self._profile,
            deadline_ms=self._deadline_ms,
            margin_ms=task.margin_ms,
            lease_every_ms=task.lease_every_ms,
            progress_every_ms=task.progress_every_ms,
            overlap_max_ms=task.overlap_max_ms,
            execution=task.execution,
        )
        self._leave_link()
        effects = deque(self._manager.start(self._now_ms()))
        while True:
            outcome = yield from self._perform_all(effects)
            if outcome is not None:
                self._leave_link()
                return outcome
            effects.extend((yield from self._next_effects()))

    def _next_effects(self) -> Steps[list[Effect]]:
        manager, now_ms = self._manager, self._now_ms()
        if manager.wake_at_ms is not None and now_ms >= manager.wake_at_ms:
            return self._handle(Woken())
        if manager.lease_due_ms is not None and now_ms >= manager.lease_due_ms:
            lease = yield from self.requests.ask(lambda: LeaseRead(self._store.read_lease(self.task.stream_id)))
            return self._handle(lease)
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
            given = yield from self._perform(effect)
            if given is None:
                continue
            following = self._handle(given)
            if isinstance(given, StoreFailed) and following:
                effects.clear()
            effects.extend(following)
        return None

    def _perform(self, effect: Effect) -> Steps[Input | None]:
        store, stream_id = self._store, self.task.stream_id
        match effect:
            case Claim():
                self._claimed_ms = self._clock.now_ms()
                return (yield from self.requests.ask(self._claim))
            case ReadCursor():
                return (yield from self.requests.ask(lambda: CursorRead(store.read_cursor(stream_id))))
            case Open(cursor):
                self.link = self._upstream.open(self, cursor)
                self.link.claimed_ms = self._claimed_ms
                self.links_by_fence[self._manager.fence] = self.link
            case TakeTurn(fence, expires_at_ms):
                now_ms = self._now_ms()
                return (
                    yield from self.requests.ask(
                        lambda: LeaseRead(store.take_turn(stream_id, fence, expires_at_ms, now_ms))
                    )
                )
            case MarkConnected(fence, expires_at_ms):
                failed = yield from self.requests.tell(lambda: store.mark_connected(stream_id, fence, expires_at_ms))
                if failed is None and self.link is not None:
                    self.link.marked_ms = self._clock.now_ms()
                return failed
            case Write(fence, first, events):
                return (yield from self.requests.ask(lambda: store.write(stream_id, fence, first, events)))
            case SaveProgress():
                return (yield from self._save(effect))
            case MarkReleased(fence):
                return (yield from self.requests.tell(lambda: store.mark_released(stream_id, fence)))
            case RecordGaps(dead_after_ms):
                return (
                    yield from self.requests.tell(lambda: store.record_gaps(stream_id, self._now_ms(), dead_after_ms))
                )
            case CloseUpstream():
                if self.link is not None:
                    self._upstream.close(self.link)
                    self._inbox.append((CLOSED_HERE, self._now_ms()))  # after what had arrived
        return None

    def _claim(self) -> Input:
        task = self.task
        holder = f"{task.lane}/{task.request_id}"
        return self._store.claim(task.stream_id, execution=task.execution, holder=holder, after_fence=self._after_fence)

    def _save(self, effect: SaveProgress) -> Steps[Input | None]:
        """Cursor, ledger and lease, each a request of its own; the first that fails is the answer."""
        task, progress, cursor = self.task, effect.progress, effect.cursor
        writes: list[Callable[[], object]] = []
        if cursor is not None:
            writes.append(lambda: self._store.save_cursor(task.stream_id, cursor, progress.fence, self._now_ms()))
        who = {"lane": task.lane, "execution": task.execution, "request_id": task.request_id}
        writes.append(lambda: self._store.save_connection(task.stream_id, progress, **who))
        if progress.opened_ms is not None and progress.closed_ms is None:
            writes.append(lambda: self._store.renew(task.stream_id, progress.fence, effect.expires_at_ms))
        for write in writes:
            failed = yield from self.requests.tell(write)
            if failed is not None:
                return failed
        return None

    def _now_ms(self) -> int:
        return self._clock.now_ms() + self.task.skew_ms

    def _leave_link(self) -> None:
        if self.link is not None:
            self._upstream.close(self.link)
            self.link = None
        self._inbox.clear()

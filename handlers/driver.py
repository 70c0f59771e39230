"""The real-time loop that joins the manager, one upstream and the store.

It decides nothing about the stream: it performs the manager's effects in order and tells it what came of them. It knows
the clock (one wall-clock reading carried on by the monotonic clock, so that time never jumps), the threads and the hard
stop. Invariant: `run` returns before the function's deadline, whatever the store and the upstream do.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from handlers.errors import StoreUnavailable
from handlers.event_items import FOR_EVER, Keeping
from handlers.store import Store
from handlers.stream.manager import Manager
from handlers.stream.profiles import Profile
from handlers.stream.references import Secrets
from handlers.stream.signals import (
    Claim,
    Claimed,
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
    Progress,
    ReadCursor,
    RecordGaps,
    RecordLoss,
    SaveProgress,
    StoreFailed,
    TakeTurn,
    Woken,
    Write,
)
from handlers.upstream import Upstream

T = TypeVar("T")
# What is left of the function's time when it no longer waits for the store: a quarter of the margin, half a second at
# most. The manager has given up by then; this is for the answer's own way.
HARD_STOP_MS = 500


class Clock:
    """Epoch milliseconds that never go back: the wall clock once, the monotonic clock after."""

    def __init__(self) -> None:
        self._start_ms = time.time_ns() // 1_000_000
        self._start = time.monotonic_ns()

    def now_ms(self) -> int:
        """The time."""
        return self._start_ms + (time.monotonic_ns() - self._start) // 1_000_000


@dataclass(frozen=True, slots=True)
class Invocation:
    """Who runs: the stream, the lane and the execution ("" where none is known), Lambda's request, the deadline.

    `after_fence` is the fence of its connection before, where it connects again by itself.
    """

    stream_id: str
    lane: str
    execution: str
    request_id: str
    deadline_ms: int
    margin_ms: int
    lease_every_ms: int
    progress_every_ms: int
    overlap_max_ms: int
    after_fence: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """How the connection ended and what it did; `connect_ms` is None where the upstream never answered."""

    outcome: Outcome
    progress: Progress
    connect_ms: int | None
    blocked_ms: int


class Driver:
    """One connection of one invocation; `run` is called once, on the main thread."""

    def __init__(
        self, profile: Profile, store: Store, invocation: Invocation, clock: Clock, secrets: Secrets | None = None
    ) -> None:
        self._profile = profile
        self._secrets = secrets
        self._store = store
        self._invocation = invocation
        self._clock = clock
        self._manager = Manager(
            profile,
            deadline_ms=invocation.deadline_ms,
            margin_ms=invocation.margin_ms,
            lease_every_ms=invocation.lease_every_ms,
            progress_every_ms=invocation.progress_every_ms,
            overlap_max_ms=invocation.overlap_max_ms,
            execution=invocation.execution,
        )
        self._hard_stop_ms = invocation.deadline_ms - min(HARD_STOP_MS, invocation.margin_ms // 4)
        self._worker = _Worker()
        self._keeping = FOR_EVER
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

    def _next_effects(self) -> list[Effect]:
        """What follows from the next thing that happens: an instant the manager named, or an arrival."""
        manager = self._manager
        now_ms = self._clock.now_ms()
        # First what is due: a stream that never pauses must not keep the lease from being read.
        if manager.wake_at_ms is not None and now_ms >= manager.wake_at_ms:
            return self._handle(Woken())
        if manager.lease_due_ms is not None and now_ms >= manager.lease_due_ms:
            return self._handle(self._ask(lambda: LeaseRead(self._store.read_lease(self._invocation.stream_id))))
        instants = [instant for instant in (manager.wake_at_ms, manager.lease_due_ms) if instant is not None]
        wait_s = (min(instants) - now_ms) / 1000
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
            effects.extend(following)
        return None

    def _perform(self, effect: Effect) -> Input | None:
        """What came of one effect, where the manager is to be told."""
        store, stream_id, ask = self._store, self._invocation.stream_id, self._ask
        match effect:
            case Claim():
                return ask(self._claim)
            case ReadCursor():
                return ask(lambda: CursorRead(*store.read_saved_cursor(stream_id)))
            case Open(cursor):
                self._open(cursor)
                return None
            case TakeTurn(fence, expires_at_ms):
                now_ms = self._clock.now_ms()
                return ask(lambda: LeaseRead(store.take_turn(stream_id, fence, expires_at_ms, now_ms)))
            case MarkConnected(fence, expires_at_ms):
                return ask(lambda: _nothing(store.mark_connected(stream_id, fence, expires_at_ms)))
            case Write(fence, first, events):
                return ask(lambda: store.write(stream_id, fence, first, events, self._keeping))
            case SaveProgress():
                return ask(lambda: self._save(effect))
            case MarkReleased(fence):
                return ask(lambda: _nothing(store.mark_released(stream_id, fence)))
            case RecordGaps(dead_after_ms):
                return ask(lambda: store.record_gaps(stream_id, self._clock.now_ms(), dead_after_ms))
            case RecordLoss():
                return ask(lambda: store.record_loss(stream_id, effect))
            case CloseUpstream():
                if self._upstream is not None:
                    self._upstream.close()  # what it has read still arrives, then Closed
                return None
            case _:
                raise TypeError(f"no such effect: {effect!r}")

    def _claim(self) -> Input:
        invocation = self._invocation
        holder = f"{invocation.lane}/{invocation.request_id}"
        answer = self._store.claim(
            invocation.stream_id,
            execution=invocation.execution,
            holder=holder,
            after_fence=invocation.after_fence,
            partitions=self._profile.partitions,
        )
        if isinstance(answer, Claimed):
            self._keeping = Keeping(answer.partitions, self._profile.keep_days)
        return answer

    def _save(self, effect: SaveProgress) -> None:
        """Cursor, ledger, lease, each in its own write; the cursor first, for it alone must not be lost."""
        invocation, progress = self._invocation, effect.progress
        if effect.cursor is not None:
            self._store.save_cursor(invocation.stream_id, effect.cursor, progress.fence, self._clock.now_ms())
        self._store.save_connection(
            invocation.stream_id,
            progress,
            lane=invocation.lane,
            execution=invocation.execution,
            request_id=invocation.request_id,
        )
        if progress.opened_ms is not None and progress.closed_ms is None:
            self._store.renew(invocation.stream_id, progress.fence, effect.expires_at_ms)

    def _ask(self, request: Callable[[], T]) -> T | StoreFailed:
        """The answer of the store, waited for until the hard stop and no longer."""
        try:
            return self._worker.call(request, (self._hard_stop_ms - self._clock.now_ms()) / 1000)
        except StoreUnavailable as error:
            return StoreFailed(str(error))

    def _open(self, cursor: str | None) -> None:
        request = self._profile.request(self._invocation.stream_id, cursor, self._secrets)
        self._open_since_ms = self._clock.now_ms()
        self._upstream = Upstream(
            request,
            connect_timeout_s=self._profile.connect_timeout_s,
            stall_after_s=self._profile.stall_after_s,
            joins=self._profile.framing != "raw",
        )
        self._upstream.start()

    def _forget_upstream(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._blocked_ms += self._upstream.blocked_ms
            self._upstream = None


class _Worker:
    """One thread that makes the store's requests, so that the main thread can stop waiting for one.

    A request that was given up runs to its end in the thread and changes nothing that a repeated one would not.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    def call(self, request: Callable[[], T], wait_s: float) -> T:
        """What `request` returns or raises; StoreUnavailable where it does neither in time."""
        if wait_s <= 0:
            raise StoreUnavailable("no time is left to ask the store")
        answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        def answer() -> None:
            try:
                answers.put((request(), None))
            except BaseException as error:
                answers.put((None, error))

        self._requests.put(answer)
        try:
            found, error = answers.get(timeout=wait_s)
        except queue.Empty:
            raise StoreUnavailable("the store did not answer before the function's deadline") from None
        if error is not None:
            raise error
        return found  # type: ignore[return-value]

    def stop(self) -> None:
        """Lets the thread end after what it does now."""
        self._requests.put(None)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            request()


def _nothing(_answer: object) -> None:
    return None

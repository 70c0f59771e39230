"""Decides which requests to the store an effect of the manager is, and in which order they are made.

Whoever drives a manager, on threads or in virtual time, makes it here, makes the requests one after the other and tells
it what the last of them answers. It knows no thread, no socket and no time of its own. Invariant: an effect is the same
requests whoever performs it; the first that fails is the last that is made.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from handlers.connection.backoff import Rest
from handlers.connection.effects import (
    Claim,
    Claimed,
    CursorRead,
    Effect,
    Input,
    LeaseRead,
    MarkConnected,
    MarkReleased,
    Outcome,
    Progress,
    ReadCursor,
    RecordGaps,
    RecordLoss,
    SaveProgress,
    TakeTurn,
    Write,
)
from handlers.connection.manager import Manager
from handlers.profile.behaviour import Profile
from handlers.store.connection_store import Store
from handlers.store.event_items import DEFAULT_POLICY, StoragePolicy

NO_REST = Rest()
# What the manager is told of a request that was made: nothing where it need not know. Raises StoreUnavailable.
Request = Callable[[], Input | None]


@dataclass(frozen=True, slots=True)
class Invocation:
    """Who runs: the stream, the lane and the execution ("" where none is known), Lambda's request, the deadline.

    `cycles` is how many cycles its lane has had before this one; in the cycle numbered `renew_after` a renewal is due,
    0 where the machine names none. `after_fence` is the fence of its connection before, where it connects again by
    itself. `held` is the rest as it is written down while this one alone may try, where the upstream was owed one.
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
    cycles: int = 0
    renew_after: int = 0
    after_fence: int = 0
    held: Rest = NO_REST

    @property
    def holder(self) -> str:
        """The name that no other invocation has."""
        return f"{self.lane}/{self.request_id}"

    @property
    def is_renewal_due(self) -> bool:
        """Whether the execution is to start its successor after this cycle."""
        return 0 < self.renew_after <= self.cycles + 1


@dataclass(frozen=True, slots=True)
class Report:
    """How the connection ended and what it did; `connect_ms` is None where the upstream never answered."""

    outcome: Outcome
    progress: Progress
    connect_ms: int | None
    blocked_ms: int


def answered(held: Rest, progress: Progress) -> Rest:
    """What stands in place of `held` once the upstream has answered with a stream: others may try as well."""
    if not held.until_ms or progress.opened_ms is None:
        return held
    return replace(held, until_ms=progress.opened_ms)


def manager_of(profile: Profile, invocation: Invocation) -> Manager:
    """The manager of one connection of the invocation."""
    return Manager(
        profile,
        deadline_ms=invocation.deadline_ms,
        margin_ms=invocation.margin_ms,
        lease_every_ms=invocation.lease_every_ms,
        progress_every_ms=invocation.progress_every_ms,
        overlap_max_ms=invocation.overlap_max_ms,
        execution=invocation.execution,
    )


class Requests:
    """The requests of one connection; `now_ms` is the invocation's clock."""

    def __init__(self, profile: Profile, store: Store, invocation: Invocation, now_ms: Callable[[], int]) -> None:
        self._profile = profile
        self._store = store
        self._invocation = invocation
        self._now_ms = now_ms
        self._policy = DEFAULT_POLICY
        self._held = invocation.held

    def read_lease(self) -> Input:
        """The lease, which no effect asks for but the time that passes."""
        return LeaseRead(self._store.read_lease(self._invocation.stream_id))

    def of(self, effect: Effect) -> list[Request]:
        """The requests that `effect` is, in order; one at least. TypeError where it is not the store's."""
        store, stream_id = self._store, self._invocation.stream_id
        match effect:
            case Claim():
                return [self._claim]
            case ReadCursor():
                return [lambda: CursorRead(*store.read_saved_cursor(stream_id))]
            case TakeTurn(fence, expires_at_ms):
                now_ms = self._now_ms()
                return [lambda: LeaseRead(store.take_turn(stream_id, fence, expires_at_ms, now_ms))]
            case MarkConnected(fence, expires_at_ms):
                return [lambda: _unheeded(store.mark_connected(stream_id, fence, expires_at_ms))]
            case Write(fence, first, events):
                return [lambda: store.write(stream_id, fence, first, events, self._policy)]
            case SaveProgress():
                return self._save(effect)
            case MarkReleased(fence):
                return [lambda: _unheeded(store.mark_released(stream_id, fence))]
            case RecordGaps(dead_after_ms):
                return [lambda: store.record_gaps(stream_id, self._now_ms(), dead_after_ms)]
            case RecordLoss():
                return [lambda: store.record_loss(stream_id, effect)]
            case _:
                raise TypeError(f"no effect on the store: {effect!r}")

    def _claim(self) -> Input:
        invocation = self._invocation
        answer = self._store.claim(
            invocation.stream_id,
            execution=invocation.execution,
            holder=invocation.holder,
            after_fence=invocation.after_fence,
            partitions=self._profile.partitions,
        )
        if isinstance(answer, Claimed):
            self._policy = StoragePolicy(answer.partitions, self._profile.keep_days)
        return answer

    def _save(self, effect: SaveProgress) -> list[Request]:
        """Cursor, ledger, lease, each in its own write; the cursor first, for it alone must not be lost."""
        store, invocation = self._store, self._invocation
        stream_id, progress, cursor = invocation.stream_id, effect.progress, effect.cursor
        who = {"lane": invocation.lane, "execution": invocation.execution, "request_id": invocation.request_id}
        found: list[Request] = []
        if cursor is not None:
            found.append(lambda: _unheeded(store.save_cursor(stream_id, cursor, progress.fence, self._now_ms())))
        found.append(lambda: _unheeded(store.save_connection(stream_id, progress, **who)))
        if progress.opened_ms is not None and progress.closed_ms is None:
            found.append(lambda: _unheeded(store.renew(stream_id, progress.fence, effect.expires_at_ms)))
        return [*found, *self.let_others_try(progress)]

    def let_others_try(self, progress: Progress) -> list[Request]:
        """The request that ends the wait of those who rest for this one's try, once it is answered."""
        store, stream_id, holder = self._store, self._invocation.stream_id, self._invocation.holder
        held = self._held
        self._held = after = answered(held, progress)
        return [] if after == held else [lambda: _unheeded(store.change_rest(stream_id, held, after, holder))]


def _unheeded(_answer: object) -> None:
    """What a write answers that only asks whether a newer connection was first."""
    return

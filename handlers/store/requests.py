"""Decides which requests to the store a step is, and in which order they are made.

Whoever performs the steps of an invocation, on threads or in virtual time, makes the requests one after the other and
answers the step with what the last of them returns. It knows no thread, no socket and no time of its own. Invariant: a
step is the same requests whoever performs it; the first that fails is the last that is made.
"""

from collections.abc import Callable
from typing import Any

from handlers.connection.effects import (
    Claim,
    MarkConnected,
    MarkReleased,
    ReadCursor,
    RecordGaps,
    RecordLoss,
    SaveProgress,
    TakeTurn,
    Write,
)
from handlers.connection.inputs import Claimed, ClaimRefused, LeaseRead
from handlers.connection.steps import ChangeRest, Invocation, ReadLease, ReadRest, Step
from handlers.profile.behaviour import Profile
from handlers.store.connection_store import Store
from handlers.store.event_items import DEFAULT_POLICY, StoragePolicy

# What the step is answered by: nothing where it asks for nothing. Raises StoreUnavailable.
Request = Callable[[], Any]


class Requests:
    """The requests of one invocation; `now_ms` is its clock."""

    def __init__(self, profile: Profile, store: Store, invocation: Invocation, now_ms: Callable[[], int]) -> None:
        self._profile = profile
        self._store = store
        self._invocation = invocation
        self._now_ms = now_ms
        self._policy = DEFAULT_POLICY

    def of(self, step: Step) -> list[Request]:
        """The requests that `step` is, in order; one at least. TypeError where it is not the store's."""
        store, stream_id = self._store, self._invocation.stream_id
        match step:
            case Write(fence, first, events):
                return [lambda: store.write(stream_id, fence, first, events, self._policy)]
            case ReadLease():
                return [lambda: LeaseRead(store.read_lease(stream_id))]
            case SaveProgress():
                return self._save(step)
            case Claim(after_fence):
                return [lambda: self._claim(after_fence)]
            case ReadCursor():
                return [lambda: store.resumption(stream_id, self._now_ms())]
            case TakeTurn(fence, expires_at_ms):
                now_ms = self._now_ms()
                return [lambda: LeaseRead(store.take_turn(stream_id, fence, expires_at_ms, now_ms))]
            case MarkConnected(fence, expires_at_ms):
                return [lambda: _unheeded(store.mark_connected(stream_id, fence, expires_at_ms))]
            case MarkReleased(fence):
                return [lambda: _unheeded(store.mark_released(stream_id, fence))]
            case RecordGaps(dead_after_ms):
                return [lambda: store.record_gaps(stream_id, self._now_ms(), dead_after_ms)]
            case RecordLoss():
                return [lambda: store.record_loss(stream_id, step)]
            case ReadRest():
                return [lambda: store.read_rest(stream_id)]
            case ChangeRest(before, after):
                return [lambda: store.change_rest(stream_id, before, after, self._invocation.holder)]
            case _:
                raise TypeError(f"not a step of the store: {step!r}")

    def _claim(self, after_fence: int) -> Claimed | ClaimRefused:
        invocation = self._invocation
        answer = self._store.claim(
            invocation.stream_id,
            execution=invocation.execution,
            holder=invocation.holder,
            after_fence=after_fence,
            partitions=self._profile.partitions,
        )
        if isinstance(answer, Claimed):
            self._policy = StoragePolicy(answer.partitions, self._profile.keep_days, self._profile.key_conflict)
        return answer

    def _save(self, effect: SaveProgress) -> list[Request]:
        """Cursor, ledger, lease, each in its own write; the cursor first, for it alone must not be lost.

        But where the upstream has forgotten what came after a cursor the ledger says so first: the cursor that is saved
        instead passes what is lost.
        """
        store, invocation = self._store, self._invocation
        stream_id, progress, cursor = invocation.stream_id, effect.progress, effect.cursor
        who = {"lane": invocation.lane, "execution": invocation.execution, "request_id": invocation.request_id}
        requests: list[Request] = []
        if cursor is not None:
            requests.append(lambda: _unheeded(store.save_cursor(stream_id, cursor, progress.fence, self._now_ms())))
        requests.append(lambda: _unheeded(store.save_connection(stream_id, progress, **who)))
        if progress.forgot_ms is not None:
            requests.reverse()
        if progress.opened_ms is not None and progress.closed_ms is None:
            requests.append(lambda: _unheeded(store.renew(stream_id, progress.fence, effect.expires_at_ms)))
        return requests


def _unheeded(_answer: object) -> None:
    """What a write answers that only asks whether a newer connection was first."""
    return

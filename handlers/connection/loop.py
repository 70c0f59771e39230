"""The loop of one connection: it yields the next effect, and passes the answer to the manager as its input.

For example, a chunk leads to two writes, and the first of them makes a save due:

    Await(…)                    -> Chunk
    Write(1, 0, 250 events)     -> Written      the manager requests a Heartbeat
    Heartbeat("250", …)         -> LeaseRead    before the second write
    Write(1, 250, 50 events)    -> Written

It knows no socket, thread, table or clock: the time comes with the answers. Invariant: nothing is yielded after the
manager's Finish.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from handlers.connection.backoff import NO_BACKOFF, Backoff, BackoffChange, backoff_after_open
from handlers.connection.effects import (
    Effect,
    Finish,
    Heartbeat,
    MarkConnected,
    Open,
    Progress,
    Release,
    Write,
)
from handlers.connection.ends import outcome_if_requested_before
from handlers.connection.inputs import BackoffOwed, Claimed, LeaseRead, Opened, StoreFailed, Woken
from handlers.connection.manager import Manager
from handlers.connection.phases import ProtocolMisuse
from handlers.connection.steps import Answer, Await, Invocation, Report, Steps
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets


class BackoffChanges:
    """The back-off of one connection: as its claim `found` it, and as it is `held` now, as far as the connection knows.

    `found` is None if no claim was granted. `is_noted` is whether `held` already records how the connection ended.
    """

    def __init__(self, backoff: Backoff) -> None:
        self.found: Backoff | None = None
        self.held = backoff
        self.is_noted = False
        self._has_outlived = False
        self._change: BackoffChange | None = None

    def attach_change(
        self, step: Effect | Await, now_ms: int, owed: Callable[[Backoff], Backoff | None]
    ) -> Effect | Await:
        """Returns the step with the change of the back-off that it writes; `owed` returns the one after a failure."""
        self._change = None
        if self.found is None or not isinstance(step, MarkConnected | Heartbeat | Release):
            return step
        after: Backoff | None = self.held
        if isinstance(step, MarkConnected):
            after = backoff_after_answer(self.held, step.progress)
        elif isinstance(step, Release):
            after = owed(self.found)
        elif not self._has_outlived and step.progress.opened_ms is not None:
            after = backoff_after_open(self.held, now_ms - step.progress.opened_ms)
        if after is not None and after != self.held:
            self._change = BackoffChange(self.held, after)
        return replace(step, backoff=self._change)

    def read_answer(self, step: Effect | Await, value: object) -> None:
        """Reads in the answer whether the step has changed the back-off."""
        change = self._change
        if isinstance(value, Claimed):
            self.found = self.held = value.backoff
        if change is None:
            return
        said = value.backoff if isinstance(value, LeaseRead) else None
        is_done = value is None if isinstance(step, MarkConnected) else said == change.after
        if is_done:
            self.held = change.after
            self.is_noted = isinstance(step, Release)
        if isinstance(step, Heartbeat):
            self._has_outlived = True  # if another back-off was recorded meanwhile, this one is not written again


def backoff_after_answer(held: Backoff, progress: Progress) -> Backoff:
    """Returns what replaces `held` once the upstream has answered with a stream: other connections may try as well."""
    if not held.until_ms or progress.opened_ms is None:
        return held
    return replace(held, until_ms=progress.opened_ms, tried_ms=0)


# Returns the back-off after a connection, from its report and the back-off that its claim found; None if there is none
# to write.
OwedBackoff = Callable[[int, Report, Backoff], Backoff | None]


def connect(
    profile: Profile,
    invocation: Invocation,
    now_ms: int,
    owed_backoff: OwedBackoff,
    *,
    after_fence: int = 0,
    backoff: Backoff = NO_BACKOFF,
    has_backed_off: bool = False,
    secrets: Secrets | None = None,
) -> Steps[tuple[Report, BackoffChanges] | BackoffOwed]:
    """Returns how the connection ended, and the changes of the back-off; BackoffOwed if another back-off is recorded.

    `after_fence` is the fencing token of the invocation's previous connection. `backoff` is the recorded back-off as
    the invocation knows it, `has_backed_off` whether it waited for it. `secrets` are the values that its messages hold.
    """
    manager, changes = Manager(profile, invocation, secrets), BackoffChanges(backoff)
    waiting: deque[Effect] = deque(manager.start(now_ms, after_fence, backoff, has_backed_off=has_backed_off))
    asked_ms, connect_ms, answer = now_ms, None, Answer(now_ms)

    def owed(found: Backoff) -> Backoff | None:
        return owed_backoff(now_ms, manager.report(manager.outcome_so_far, connect_ms), found)

    while True:
        step: Effect | Await
        # Effects that are due come before each wait and each Write: even a chunk with thousands of events must not
        # delay the reading of the lease.
        if not waiting or isinstance(waiting[0], Write):
            due = _due_effects(manager, answer)
            if due is not None:
                waiting.extendleft(reversed(due))
                continue
        step = waiting.popleft() if waiting else Await(manager.wake_at_ms, manager.lease_due_ms)
        if isinstance(step, Finish):
            return manager.report(step.outcome, connect_ms), changes
        step = changes.attach_change(step, now_ms, owed)
        answer = yield step
        now_ms, value, arrived_ms, unread_ms = answer
        changes.read_answer(step, value)
        if isinstance(step, Open):
            asked_ms = now_ms
        elif isinstance(value, BackoffOwed):
            return value
        elif isinstance(value, Claimed) and not profile.again:
            before_ms, died = value.resumption.connected_ms, invocation.died
            if (
                end := outcome_if_requested_before(value.lease, before_ms, now_ms, invocation.lease_ttl_ms, died)
            ) is not None:
                return manager.report(end, connect_ms), changes
        elif isinstance(value, Opened):
            connect_ms = (now_ms if arrived_ms is None else arrived_ms) - asked_ms
        if value is None:
            continue
        following = manager.handle(now_ms, value, arrived_ms=arrived_ms, unread_ms=unread_ms)
        if following and isinstance(value, StoreFailed):
            waiting.clear()  # the store would refuse each of them too, after its own retries
        # The effects of an answer come before the waiting ones, so the cursor is saved between two writes.
        waiting.extendleft(reversed(following))


def _due_effects(manager: Manager, answer: Answer) -> list[Effect] | None:
    """Returns the effects of the manager's instants that have come; None if none has."""
    now_ms = answer.now_ms
    if manager.wake_at_ms is not None and now_ms >= manager.wake_at_ms:
        before = manager.wake_at_ms, manager.lease_due_ms
        following = manager.handle(now_ms, Woken(), unread_ms=answer.unread_ms)
        # It would be woken for ever, and with it every stream of the function. So only this connection ends.
        if not following and (manager.wake_at_ms, manager.lease_due_ms) == before:
            raise ProtocolMisuse(f"it waits until an instant that is over in the phase {manager.phase.value}")
        return following
    if manager.lease_due_ms is not None and now_ms >= manager.lease_due_ms:
        return manager.ask_lease(now_ms, answer.unread_ms)
    return None

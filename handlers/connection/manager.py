"""Decides what one connection does next: claim, open, store, let go, leave; inputs in, effects out.

A connection goes through *phases* (`phases.py`). `Manager._TABLE` lists the phases in which each input is legal;
anything else is a driver's mistake and raises `ProtocolMisuse`, except that what comes after the end is ignored (bytes
already read, say). What the bytes come to is `intake.py`'s, what is written down `record.py`'s, how long it stays
`handlers/connection/lifetime.py`'s, how it ends `closing.py`'s.

The manager knows no socket, clock, table or log: `now_ms` comes with every input, a driver performs the effects in
order, and reads `wake_at_ms` and `lease_due_ms` to learn when it must come back. Invariants: nobody connects before the
claim is granted, and nobody is marked as connected before the upstream has answered, but where two are forbidden;
exactly one Finish is emitted, as the last effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from handlers.connection import ends
from handlers.connection.draining import Closing
from handlers.connection.effects import (
    Claim,
    CloseUpstream,
    Effect,
    Finish,
    MarkConnected,
    Open,
    Outcome,
    Progress,
    ReadCursor,
    TakeTurn,
)
from handlers.connection.inputs import (
    Chunk,
    Claimed,
    ClaimRefused,
    Closed,
    CursorRead,
    Input,
    LeaseRead,
    Opened,
    StoreFailed,
    Woken,
    Written,
)
from handlers.connection.lease import LeaseView, lease_view, may_open
from handlers.connection.lifetime import Stay
from handlers.connection.phases import HAS_ASKED, LIVE, Phase, ProtocolMisuse
from handlers.profile.behaviour import Profile

RELEASE_POLL_MS = 200
# A holder counts as dead after this many of its renewals have failed to come.
LEASE_TTL_READS = 4


class Manager(Closing):
    """One connection's decisions in its phases (`phases.py`).

    `deadline_ms` is when the function is killed, `margin_ms` what is kept before (`handlers/connection/lifetime.py`).
    `execution` is the execution that started it ("" where none is known). An overlap ends after `overlap_max_ms` at
    most, for a longer one would leave its lane too late for its next turn. `after_fence` is the token of the
    invocation's connection before, 0 for none.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        deadline_ms: int,
        margin_ms: int,
        lease_every_ms: int,
        progress_every_ms: int,
        overlap_max_ms: int | None = None,
        execution: str = "",
        after_fence: int = 0,
    ) -> None:
        ttl_ms = LEASE_TTL_READS * max(lease_every_ms, progress_every_ms)
        stay = Stay(
            deadline_ms=deadline_ms,
            margin_ms=margin_ms,
            ttl_ms=ttl_ms,
            overlap_ms=profile.overlap_ms if overlap_max_ms is None else min(profile.overlap_ms, overlap_max_ms),
            is_hot=profile.standby == "hot",
            execution=execution,
        )
        super().__init__(profile, stay, ttl_ms)
        self._lease_every_ms = lease_every_ms
        self._progress_every_ms = progress_every_ms
        self._after_fence = after_fence
        self.wake_at_ms: int | None = None

    @property
    def fence(self) -> int:
        """Returns this connection's fence; 0 before the claim is answered."""
        return self._record.fence

    @property
    def progress(self) -> Progress:
        """Returns the ledger's record of this connection so far."""
        return self._record.progress

    def start(self, now_ms: int) -> list[Effect]:
        """Returns the first effects."""
        self._record.begins(now_ms)
        self._stay.begins(now_ms)
        self.wake_at_ms = self._stay.alarm_ms
        return [Claim(self._after_fence)]

    def handle(
        self, now_ms: int, given: Input, *, arrived_ms: int | None = None, unread_ms: int | None = None
    ) -> list[Effect]:
        """Returns the effects of one input, in order; ProtocolMisuse where the phase does not know it.

        `arrived_ms` is when `given` had come, where it had to wait; `unread_ms` the same of the oldest that waits on.
        """
        if self.phase is Phase.FINISHED:
            return []
        self._record.vouching.given(now_ms, arrived_ms, unread_ms)
        phases, method = self._TABLE[type(given)]
        if self.phase not in phases:
            if self.phase is Phase.SETTLING and isinstance(given, CursorRead | Opened):
                return []  # the answer to a question that is not of interest any more
            raise ProtocolMisuse(f"{type(given).__name__} in the phase {self.phase.value}")
        effects: list[Effect] = method(self, now_ms, given)
        if effects and isinstance(effects[-1], Finish):
            self.phase = Phase.FINISHED
            self.lease_due_ms = self.wake_at_ms = None
        else:
            self.wake_at_ms = self._settle_until_ms if self.phase is Phase.SETTLING else self._stay.alarm_ms
        return effects

    # --- opening ------------------------------------------------------------------------------------------------------

    def _claimed(self, now_ms: int, given: Claimed) -> list[Effect]:
        self._lease = given.lease
        self._record.fence = given.lease.fence
        if self._profile.overlap == "forbids":
            self.phase = Phase.AWAITING_RELEASE
            return self._await_release(now_ms, LeaseView.HOLDER)
        self.phase = Phase.OPENING
        return [ReadCursor()]

    def _claim_refused(self, _now_ms: int, given: ClaimRefused) -> list[Effect]:
        return [Finish(ends.refused(given.lease))]

    def _await_release(self, now_ms: int, found: LeaseView) -> list[Effect]:
        if self._lease.connected_token == self.fence:
            # The turn is this connection's. It is marked before the request goes out: a connection that opens and
            # stands in no mark would be invisible to the next one.
            self._has_turn = True
            self.phase = Phase.OPENING
            self.lease_due_ms = now_ms + self._lease_every_ms  # the turn is renewed while the upstream keeps it waiting
            return [ReadCursor()]
        if found is not LeaseView.HOLDER or self._lease.connected_token > self.fence:
            return self._leave(now_ms, None, "claimed_by_successor")
        self.lease_due_ms = now_ms + RELEASE_POLL_MS
        if not may_open(self._lease, self.fence, now_ms):
            return []
        return [TakeTurn(self.fence, self.expires_at_ms(now_ms))]

    def _cursor_read(self, _now_ms: int, given: CursorRead) -> list[Effect]:
        self._record.resumes(given, self._profile.asks(given.cursor), self._profile.reach_ms)
        return [Open(given.cursor)]

    def _opened(self, now_ms: int, given: Opened) -> list[Effect]:
        effects, end = self._intake.answer(now_ms, given, self._record)
        if end is not None:
            return [*effects, *self._leave(now_ms, end.outcome, end.ended_by, ask_lease=end.asks_lease)]
        self.phase = Phase.CONNECTED
        self.lease_due_ms = now_ms + self._lease_every_ms
        return [MarkConnected(self.fence, self.expires_at_ms(now_ms)), *effects, self._save(now_ms)]

    # --- reading ------------------------------------------------------------------------------------------------------

    def _chunk(self, now_ms: int, given: Chunk) -> list[Effect]:
        effects, end = self._intake.chunk(now_ms, given.data, self._record)
        if end is not None:
            effects += self._leave(now_ms, end.outcome, end.ended_by, ask_lease=end.asks_lease)
        return effects

    def _written(self, now_ms: int, given: Written) -> list[Effect]:
        self._record.stored(given)
        return self._drained(now_ms) if self.phase is Phase.SETTLING else self._progress_made(now_ms)

    def _progress_made(self, now_ms: int) -> list[Effect]:
        """Returns the writes that are due while it is connected: cursor and ledger, and once what gaps there were.

        The stream's very first cursor is saved at once.
        """
        record = self._record
        is_due = now_ms - record.saved_at_ms >= self._progress_every_ms or record.pending.is_first
        if record.opened_ms is None or not is_due:
            return []
        is_settled = now_ms - record.opened_ms > self.lease_ttl_ms
        return [self._save(now_ms), *(self._gaps() if is_settled else [])]

    def _store_failed(self, _now_ms: int, given: StoreFailed) -> list[Effect]:
        close: list[Effect] = [] if self.phase in (Phase.CLAIMING, Phase.AWAITING_RELEASE) else [CloseUpstream()]
        return [*close, Finish(Outcome("StoreUnavailable", "", given.detail))]

    # --- staying or leaving -------------------------------------------------------------------------------------------

    def _lease_read(self, now_ms: int, given: LeaseRead) -> list[Effect]:
        self._lease = given.lease
        found = lease_view(given.lease, self.fence)
        if self.phase is Phase.SETTLING:
            return self._settle(now_ms, found)
        self.lease_due_ms = now_ms + self._lease_every_ms
        if found is LeaseView.STOPPED:
            return self._leave(now_ms, ends.STOPPED, "stopped")
        if self.phase is Phase.AWAITING_RELEASE:
            return self._await_release(now_ms, found)
        if self.phase is Phase.OPENING:
            return [MarkConnected(self.fence, self.expires_at_ms(now_ms))] if self._has_turn else []
        if found is LeaseView.TAKEN_OVER and self.phase is Phase.CONNECTED and not self._stay.keeps(given.lease):
            self.phase = Phase.OVERLAPPING
            self._stay.overlaps(now_ms)
        elif found is LeaseView.CLAIMED and self.phase is Phase.CONNECTED and self._profile.overlap == "forbids":
            return self._leave(now_ms, None, "let_go")
        elif self._stay.may_leave(now_ms, given.lease, found):
            return self._leave(now_ms, ends.EXPIRED, "expired", ask_lease=True)
        return self._progress_made(now_ms)

    def _woken(self, now_ms: int, _given: Woken) -> list[Effect]:
        if self.phase is Phase.SETTLING:
            return self._give_up(now_ms)
        if self.phase is Phase.CONNECTED and self._stay.asks_lease(now_ms):
            self.lease_due_ms = now_ms
            return []
        if not self._stay.is_over(now_ms):
            return []
        if self.phase is Phase.OVERLAPPING:
            return self._leave(now_ms, self._taken_over(), "taken_over")
        return self._leave(now_ms, ends.EXPIRED, "expired", ask_lease=True)

    def _closed(self, now_ms: int, given: Closed) -> list[Effect]:
        was_closed, self._is_closed = self._is_closed, True
        if self.phase is Phase.SETTLING:
            self._record.closed(given.reason)
            return [] if was_closed else self._drained(now_ms)
        outcome = ends.dropped(given, self._record.opened_ms is not None)
        return self._leave(now_ms, outcome, given.reason, ask_lease=outcome.error == "StreamDropped")

    _ANY = frozenset(Phase)
    _TABLE: ClassVar[dict[type, tuple[frozenset[Phase], Callable[..., list[Effect]]]]] = {
        Claimed: (frozenset({Phase.CLAIMING}), _claimed),
        ClaimRefused: (frozenset({Phase.CLAIMING}), _claim_refused),
        CursorRead: (frozenset({Phase.OPENING}), _cursor_read),
        Opened: (frozenset({Phase.OPENING}), _opened),
        Chunk: (LIVE | {Phase.SETTLING}, _chunk),
        Closed: (HAS_ASKED | {Phase.SETTLING}, _closed),
        Written: (LIVE | {Phase.SETTLING}, _written),
        LeaseRead: (_ANY - {Phase.CLAIMING}, _lease_read),
        StoreFailed: (_ANY, _store_failed),
        Woken: (_ANY, _woken),
    }

"""Decides what one connection does next: inputs in, effects out.

A connection goes through *phases* (`lifetime.py`):

    phase             what happens                                  next phase
    CLAIMING          the claim is granted                          OPENING, or AWAITING_RELEASE where two are forbidden
                      the claim is refused                          FINISHED
    AWAITING_RELEASE  the turn is this connection's                 OPENING
                      a stop, a newer claim, the deadline           DRAINING
    OPENING           the upstream answers with a stream            CONNECTED, once its first messages are answered
                      it refuses the cursor, another is connected   OPENING, without a cursor
                      another answer, a close, a stop, the deadline DRAINING
    CONNECTED         a newer connection is connected               OVERLAPPING
                      a close, a stop, an end, the deadline         DRAINING
    OVERLAPPING       the newer connection is closed again          CONNECTED
                      the overlap is over, and it is not            DRAINING
                      any of those of CONNECTED                     DRAINING
    DRAINING          all is stored and the lease explains the end  FINISHED
                      no time is left                               FINISHED
    any               the store refuses                             FINISHED

The manager knows no socket, clock, table or log: `now_ms` comes with every input, and the loop (`loop.py`) reads
`wake_at_ms` and `lease_due_ms` to learn when it must come back. Invariants: a connection is opened after its claim is
granted, and marked as connected after the upstream has answered, or before where two are forbidden; exactly one Finish
is returned, as the last effect; what a connection wrote down of itself is true whenever it is killed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from handlers.connection import ends
from handlers.connection.backoff import NO_REST, TRY_MS, Refusal, Rest, refused_since_ms
from handlers.connection.effects import (
    Claim,
    CloseUpstream,
    Effect,
    Finish,
    Heartbeat,
    MarkConnected,
    Open,
    Outcome,
    Progress,
    ReadLease,
    Release,
    RenewTurn,
    ReplaceCursor,
    SaveRecord,
    TakeTurn,
)
from handlers.connection.ends import Draining, End
from handlers.connection.inputs import (
    LOG,
    Chunk,
    Claimed,
    ClaimRefused,
    Closed,
    GapsRecorded,
    Input,
    LeaseRead,
    Opened,
    Resumption,
    StoreFailed,
    Woken,
    Written,
)
from handlers.connection.intake import Intake
from handlers.connection.lease import FINAL_ENDINGS, Lease, LeaseView, is_connected, is_over, lease_view, may_open
from handlers.connection.lifetime import HAS_ASKED, LIVE, Lifetime, Phase, ProtocolMisuse
from handlers.connection.record import Record
from handlers.connection.steps import Invocation
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets

RELEASE_POLL_MS = 200
WATCH_POLL_MS = 100
# A holder counts as dead after this many of its renewals have failed to come.
LEASE_TTL_READS = 4


class Manager:
    """The decisions of one connection of `invocation`.

    `after_fence` is the token of the invocation's previous connection, 0 for none. `rest` is the back-off as it was
    known before, `has_rested` whether it was waited for. `secrets` are the values that its messages hold.
    """

    def __init__(
        self,
        profile: Profile,
        invocation: Invocation,
        after_fence: int = 0,
        rest: Rest = NO_REST,
        *,
        has_rested: bool = False,
        secrets: Secrets | None = None,
    ) -> None:
        self._profile, self._invocation = profile, invocation
        self._after_fence, self._rest, self._has_rested = after_fence, rest, has_rested
        self.lease_ttl_ms = LEASE_TTL_READS * max(invocation.lease_every_ms, invocation.progress_every_ms)
        self._lifetime = Lifetime(profile, invocation, self.lease_ttl_ms)
        self._intake = Intake(profile, invocation.budget)
        if profile.is_socket:
            self._intake.speaks(invocation.stream_id, secrets or {})
        self._drops = profile.key_conflict == "first"
        self._record = Record(invocation.deadline_ms, profile.expect_ms, profile.budget)
        # A successor that waits for the release needs one more connect; one that sends messages first needs their time.
        connect_ms = profile.connect_timeout_ms if profile.overlap == "forbids" else 0
        self._draining = Draining(ends.WATCH_MS + connect_ms + profile.longest_talk_ms)
        # About when the successor's lane has waited: from here on the lease is read between two heartbeats.
        leaves_ms = invocation.deadline_ms - invocation.overlap_max_ms - 2 * invocation.margin_ms
        self._watches_from_ms = leaves_ms - invocation.lease_every_ms
        self._connected_ms: int | None = None  # until when another is known to have been connected
        self._lease, self._has_turn = Lease(), False
        self.refusal: Refusal | None = None  # where the upstream refused it
        self.phase = Phase.CLAIMING
        self.wake_at_ms: int | None = None
        self.lease_due_ms: int | None = None

    @property
    def fence(self) -> int:
        """Returns this connection's fencing token; 0 before the claim is answered."""
        return self._record.fence

    @property
    def progress(self) -> Progress:
        """Returns the ledger's record of this connection so far."""
        return self._record.progress

    @property
    def ending(self) -> Outcome:
        """Returns the outcome of a connection that leaves, unless the lease explains its end."""
        return self._draining.outcome

    @property
    def reconnection_ms(self) -> int | None:
        """Returns what the upstream asked for before the next connection; None where it asked for nothing."""
        return self._intake.reconnection_ms

    @property
    def stays_at(self) -> str | None:
        """Returns the cursor from which it resumed in vain; None where it stored something, or sent no cursor."""
        return self._record.stays_at

    def expires_at_ms(self, now_ms: int) -> int:
        """Returns until when this connection counts as connected if its lease is renewed now."""
        return self._lifetime.expires_at_ms(now_ms)

    def start(self, now_ms: int) -> list[Effect]:
        """Returns the first effects."""
        self._record.begins(now_ms)
        self._lifetime.begins(now_ms)
        self.wake_at_ms = self._lifetime.alarm_ms
        takes_turn = self._profile.overlap == "forbids" and self._after_fence > 0
        expires_at_ms = self.expires_at_ms(now_ms) if takes_turn else 0
        # Others that backed off beside this one would try at the same instant: one of them does, the others wait on.
        owed_ms = self._rest.until_ms
        try_until_ms = now_ms + self._profile.connect_timeout_ms + TRY_MS if owed_ms else 0
        return [Claim(self._after_fence, owed_ms, expires_at_ms, try_until_ms, self._has_rested)]

    def ask_lease(self, now_ms: int, unread_ms: int | None = None) -> list[Effect]:
        """Returns how the lease is read once `lease_due_ms` has come: the holder renews it and reads the answer.

        `unread_ms` is when the oldest arrival had come that still waits: the heartbeat must not cover it.
        """
        self.lease_due_ms = None
        liveness = self._record.liveness
        liveness.arrived_ms, liveness.unread_ms = now_ms, unread_ms
        if self.phase is Phase.OPENING:
            return [RenewTurn(self.fence, self.expires_at_ms(now_ms))]
        if self.phase in LIVE and self._is_holder and (due := self._progress_made(now_ms)):
            return due
        return [ReadLease()]

    def handle(
        self, now_ms: int, input_: Input, *, arrived_ms: int | None = None, unread_ms: int | None = None
    ) -> list[Effect]:
        """Returns the effects of one input, in order; ProtocolMisuse where the phase does not know it.

        `arrived_ms` is when the input had come, where it had to wait; `unread_ms` is the same of the oldest arrival
        that still waits.
        """
        if self.phase is Phase.FINISHED:
            return []
        liveness = self._record.liveness
        liveness.arrived_ms = now_ms if arrived_ms is None else min(arrived_ms, now_ms)
        liveness.unread_ms = unread_ms
        phases, method = self._TABLE[type(input_)]
        if self.phase not in phases:
            if self.phase is Phase.DRAINING and isinstance(input_, Opened):
                return []  # the answer comes too late to matter
            raise ProtocolMisuse(f"{type(input_).__name__} in the phase {self.phase.value}")
        effects: list[Effect] = method(self, now_ms, input_)
        if effects and isinstance(effects[-1], Finish):
            self.phase = Phase.FINISHED
            self.lease_due_ms = self.wake_at_ms = None
        else:
            self.wake_at_ms = self._draining.until_ms if self.phase is Phase.DRAINING else self._lifetime.alarm_ms
            if self._intake.has_instants and (due_ms := self._intake.due_ms) is not None:
                self.wake_at_ms = due_ms if self.wake_at_ms is None else min(due_ms, self.wake_at_ms)
        return effects

    # --- opening ------------------------------------------------------------------------------------------------------

    def _claimed(self, now_ms: int, claimed: Claimed) -> list[Effect]:
        self._lease, self._rest = claimed.lease, claimed.rest
        self._record.fence = claimed.lease.fence
        self._record.stopped_ms = claimed.lease.stopped_before_ms
        if claimed.partitions == LOG:
            self._intake.gathers(self._profile.flush_ms)
        if self._profile.overlap == "forbids":
            self.phase = Phase.AWAITING_RELEASE
            return self._await_release(now_ms, LeaseView.HOLDER, claimed.resumption)
        return self._open(now_ms, claimed.resumption)

    def _claim_refused(self, _now_ms: int, refused: ClaimRefused) -> list[Effect]:
        lease = refused.lease
        return [Finish(ends.taken_over(lease, is_superseded=False) if refused.is_relieved else ends.refused(lease))]

    def _await_release(self, now_ms: int, view: LeaseView, resumption: Resumption | None = None) -> list[Effect]:
        if self._lease.connected_token == self.fence and resumption is not None:
            # The turn is this connection's. It is marked before the request goes out: without a mark it would be
            # invisible to the next one. It is renewed while the upstream keeps it waiting.
            self._has_turn = True
            self.lease_due_ms = now_ms + self._invocation.lease_every_ms
            return self._open(now_ms, resumption)
        if view is not LeaseView.HOLDER or self._lease.connected_token > self.fence:
            return self._leave(now_ms, None, "claimed_by_successor")
        if not self._profile.again and is_connected(self._lease, now_ms, self._invocation.died):
            return self._leave(now_ms, ends.asked_already(is_alive=True), "claimed_by_successor")
        self.lease_due_ms = now_ms + RELEASE_POLL_MS
        if not may_open(self._lease, self.fence, now_ms, self._invocation.died):
            return []
        over = self._lease.connected_token if is_over(self._lease, self._invocation.died) else 0
        return [TakeTurn(self.fence, self.expires_at_ms(now_ms), over)]

    def _open(self, now_ms: int, at: Resumption) -> list[Effect]:
        self.phase = Phase.OPENING
        self._connected_ms = at.connected_ms
        self._record.resumes(now_ms, at, self._profile.asks(at.cursor), self._profile.reach_ms)
        return [Open(at.cursor)]

    def _opened(self, now_ms: int, opened: Opened) -> list[Effect]:
        # Another is connected and reads on. Each cursor that it saves may be too old before it reaches the upstream.
        is_alone = may_open(self._lease, self.fence, now_ms, self._invocation.died)
        if not is_alone and (afresh := self._intake.afresh(now_ms, opened.status, self._record)):
            return afresh
        effects, end = self._intake.answer(now_ms, opened, self._record)
        if end is not None:
            outcome = end.outcome
            if outcome.error == "StreamRejected":
                # The profile's own word for a status is final where nobody else is connected.
                is_final = self._profile.meaning(opened.status) == "rejected"
                outcome = self._refused(now_ms, outcome, 0 if is_final else self._profile.reject_after_ms)
            return [*effects, *self._leave(now_ms, outcome, end.ended_by, ask_lease=end.asks_lease)]
        if self._record.opened_ms is None:
            return effects  # its first messages are on their way; it is connected once they are answered
        return [self._marks(now_ms), *effects]

    def _marks(self, now_ms: int) -> Effect:
        """Returns the mark that it is connected."""
        # Claim, open, mark: an older connection that the upstream ends meanwhile finds in the lease that it was
        # relieved, and does not come back to evict this one.
        self.phase = Phase.CONNECTED
        progress = self._record.save(now_ms, is_open=True)
        self.lease_due_ms = self._next_look_ms(now_ms)
        return MarkConnected(self.fence, self.expires_at_ms(now_ms), progress)

    def _refused(self, now_ms: int, outcome: Outcome, limit_ms: int) -> Outcome:
        """Returns the end of a connection that was refused, or whose request cannot be made: final or not yet."""
        since_ms = refused_since_ms(self._rest, self._lease, self._connected_ms, now_ms)
        self.refusal = Refusal(since_ms, limit_ms)
        is_alone = may_open(self._lease, self.fence, now_ms, self._invocation.died)
        return ends.judged(outcome, self.refusal, now_ms, is_alone=is_alone)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _chunk(self, now_ms: int, chunk: Chunk) -> list[Effect]:
        if self.phase is Phase.DRAINING and self._record.opened_ms is None:
            return []  # it left before its first messages were answered
        effects, end = self._intake.chunk(now_ms, chunk.data, self._record)
        if self.phase is Phase.OPENING and self._record.opened_ms is not None:
            effects = [self._marks(now_ms), *effects]
        return effects if end is None else effects + self._ends(now_ms, end)

    def _ends(self, now_ms: int, end: End) -> list[Effect]:
        """Returns what follows from an end that stood in what the upstream sent, or in its silence."""
        outcome = end.outcome
        if end.refused_ms is not None:
            outcome = self._refused(now_ms, outcome, end.refused_ms)
        return self._leave(now_ms, outcome, end.ended_by, ask_lease=end.asks_lease)

    def _written(self, now_ms: int, written: Written) -> list[Effect]:
        lost = self._record.stored(written, drops=self._drops)
        if self._invocation.budget is not None:
            self._intake.stored(self._record)
        return lost + (self._drained(now_ms) if self.phase is Phase.DRAINING else self._progress_made(now_ms))

    def _progress_made(self, now_ms: int) -> list[Effect]:
        """Returns the writes that are due while it is connected: a heartbeat, and once what gaps there were.

        The stream's very first cursor is saved at once. One that a newer connection relieved writes its record alone.
        """
        record = self._record
        if record.opened_ms is None:
            return []
        if record.account is not None and (pause_s := record.account.pauses_s(now_ms)) is not None:
            return self._ends(now_ms, ends.paused(pause_s))
        # A kill has nothing to resume from before the first cursor is saved.
        is_due = now_ms - record.saved_at_ms >= self._invocation.progress_every_ms
        if not (is_due or (record.pending.saved is None and record.pending.is_first and self._is_holder)):
            return []
        # Any silent predecessor must be dead by now, so the gap before this connection is known.
        is_known = now_ms - record.opened_ms > self.lease_ttl_ms
        progress = record.save(now_ms, is_open=True)
        gaps = record.gaps(self.lease_ttl_ms) if is_known else []
        if not self._is_holder:
            return [SaveRecord(progress), *gaps]
        return [Heartbeat(record.pending.take(), progress, self.expires_at_ms(now_ms)), *gaps]

    @property
    def _is_holder(self) -> bool:
        """Whether no newer connection is known to be connected."""
        return self._lease.connected_token <= self.fence

    def _next_look_ms(self, now_ms: int) -> int:
        """Returns when the lease is next renewed or read: more often once a successor is due or has come."""
        next_ms = now_ms + self._invocation.lease_every_ms
        heartbeat_ms = self._record.saved_at_ms + self._invocation.progress_every_ms
        if not self._is_holder:
            return next_ms
        return max(now_ms, min(next_ms, heartbeat_ms) if next_ms >= self._watches_from_ms else heartbeat_ms)

    def _store_failed(self, _now_ms: int, failed: StoreFailed) -> list[Effect]:
        close: list[Effect] = [] if self.phase in (Phase.CLAIMING, Phase.AWAITING_RELEASE) else [CloseUpstream()]
        return [*close, Finish(Outcome("StoreUnavailable", "", failed.detail))]

    # --- staying or leaving -------------------------------------------------------------------------------------------

    def _lease_read(self, now_ms: int, read: LeaseRead) -> list[Effect]:
        self._lease = lease = read.lease
        self._record.settles(read.settled)
        view = lease_view(lease, self.fence)
        if self.phase is Phase.DRAINING:
            return self._explain_end(now_ms, view)
        self.lease_due_ms = now_ms + self._invocation.lease_every_ms
        if view is LeaseView.STOPPED:
            return self._leave(now_ms, ends.STOPPED, "stopped")
        if self.phase is Phase.AWAITING_RELEASE:
            return self._await_release(now_ms, view, read.resumption)
        if self.phase is Phase.OPENING:
            return []
        if self._is_relieved(now_ms, view):
            return self._leave(now_ms, self._taken_over(), "taken_over")
        self.lease_due_ms = self._next_look_ms(now_ms)
        if view is LeaseView.CLAIMED and self._profile.overlap == "forbids":
            return self._leave(now_ms, None, "let_go")
        if self._lifetime.may_leave(now_ms, lease, view):
            return self._leave(now_ms, ends.EXPIRED, "expired", ask_lease=True)
        return self._progress_made(now_ms)

    def _is_relieved(self, now_ms: int, view: LeaseView) -> bool:
        """Whether it was taken over and its overlap is over. It stays where the newer one is closed again.

        But not where the upstream has told the newer one that the stream is over: then nobody comes.
        """
        lifetime = self._lifetime
        if view is LeaseView.TAKEN_OVER and not lifetime.keeps(self._lease):
            if self.phase is Phase.CONNECTED:
                self.phase = Phase.OVERLAPPING
                lifetime.overlaps(now_ms, self._lease)
            return lifetime.overlap_ends_ms is not None and now_ms >= lifetime.overlap_ends_ms
        if self.phase is Phase.OVERLAPPING and self._lease.ending not in FINAL_ENDINGS:
            self.phase = Phase.CONNECTED
            lifetime.stays()
        return self.phase is Phase.OVERLAPPING

    def _woken(self, now_ms: int, _woken: Woken) -> list[Effect]:
        said, end = self._intake.passes(now_ms)
        if end is not None:
            return said + self._ends(now_ms, end)
        return [*said, *self._intake.flush(now_ms, self._record, is_leaving=False), *self._time_passed(now_ms)]

    def _time_passed(self, now_ms: int) -> list[Effect]:
        if self.phase is Phase.DRAINING:
            return self._drain_timeout(now_ms)
        if self.phase is Phase.OVERLAPPING and self._lifetime.looks_again(now_ms):
            return [ReadLease()]
        if self.phase is Phase.CONNECTED and self._lifetime.asks_lease(now_ms):
            self.lease_due_ms = now_ms
            return []
        if not self._lifetime.is_over(now_ms):
            return []
        return self._leave(now_ms, ends.EXPIRED, "expired", ask_lease=True)

    def _closed(self, now_ms: int, closed: Closed) -> list[Effect]:
        is_first, self._draining.is_closed = not self._draining.is_closed, True
        if self.phase is Phase.DRAINING:
            self._record.closed(closed.reason)
            return self._drained(now_ms) if is_first else []
        outcome = ends.dropped(closed, self._record.opened_ms is not None)
        if outcome.error == "StreamRejected":
            outcome = self._refused(now_ms, outcome, self._profile.reject_after_ms)
        return self._leave(now_ms, outcome, closed.reason, ask_lease=outcome.error == "StreamDropped")

    # --- leaving ------------------------------------------------------------------------------------------------------

    def _leave(self, now_ms: int, outcome: Outcome | None, ended_by: str, *, ask_lease: bool = False) -> list[Effect]:
        """Stops reading. `outcome` None means: a successor claimed, taken over if it connects, else dropped."""
        own, draining = outcome or ends.LET_GO, self._draining
        draining.outcome, draining.asks_lease = own, ask_lease or outcome is None
        if self.phase is Phase.DRAINING:
            self._record.ends(ended_by, own)
            return []  # the end of the stream stood in what it had read before
        has_asked = self.phase in HAS_ASKED
        self.phase = Phase.DRAINING
        self.lease_due_ms = None
        draining.until_ms = self._lifetime.drains_until_ms(now_ms)
        draining.is_closed = draining.is_closed or not has_asked
        self._record.closes(ended_by, own)
        last_words = self._intake.leaves()
        says = last_words if has_asked and not draining.is_closed else []
        return [*says, *([CloseUpstream()] if has_asked else []), *self._drained(now_ms)]

    def _drained(self, now_ms: int) -> list[Effect]:
        """Returns what follows once all that was read is stored; nothing before.

        Close, store, save, release, finish: the cursor passes nothing that a kill could lose, and a successor that
        waited for the release reads a cursor that is complete.
        """
        draining, record = self._draining, self._record
        if draining.is_closed and (waited := self._intake.flush(now_ms, record, is_leaving=True)):
            return waited
        if not self._is_drained:
            return []
        if unfinished := self._intake.unfinished(now_ms, record):
            return unfinished
        record.unterminated_bytes = self._intake.tail_bytes()
        progress, cursor = record.save(now_ms, is_open=False), record.pending.take()
        # Without an answer an older connection may still be open, and must not count as closed.
        is_released = record.opened_ms is not None or self._has_turn
        effects: list[Effect] = [SaveRecord(progress)]
        if cursor is not None and not is_released:
            effects = [ReplaceCursor(cursor, progress)]
        if record.shows_gaps:
            effects += record.gaps(self.lease_ttl_ms, leaves_some=draining.asks_lease)
        if is_released:
            is_relieved = self._lease.connected_token > record.fence
            effects.append(Release(cursor, progress, is_relieved=is_relieved))
        if not draining.asks_lease:
            return [*effects, Finish(draining.outcome)]
        draining.until_ms = self._lifetime.watches_until_ms(now_ms, draining.watch_ms)
        self.lease_due_ms = None if is_released else now_ms  # the answer to the release is the lease
        return effects

    def _explain_end(self, now_ms: int, view: LeaseView) -> list[Effect]:
        """Returns the end that the lease explains, or nothing while a successor that claimed may yet connect."""
        draining = self._draining
        if not draining.asks_lease or not self._is_drained:
            return []
        takeover = None if self._lifetime.keeps(self._lease) else self._taken_over()
        outcome = ends.explained(view, draining.outcome, takeover)
        if outcome is None:
            self.lease_due_ms = now_ms + WATCH_POLL_MS
            return []
        if outcome is not takeover:
            return [Finish(outcome)]
        self._record.ends("taken_over", outcome)
        return [SaveRecord(self._record.save(now_ms, is_open=False)), Finish(outcome)]

    def _drain_timeout(self, now_ms: int) -> list[Effect]:
        """Returns the end when nothing explained the close in time; nothing before."""
        if self._draining.until_ms is None or now_ms < self._draining.until_ms:
            return []
        # Where events are in flight the ledger's record stays as it is: it covers nothing that is not stored.
        return [Finish(self._draining.outcome if self._is_drained else ends.NOT_DRAINED)]

    @property
    def _is_drained(self) -> bool:
        """Whether all that was read is stored, and nothing more can come."""
        return self._draining.is_closed and self._record.pending.is_stored

    def _taken_over(self) -> Outcome:
        return ends.taken_over(self._lease, self._lifetime.is_superseded(self._lease))

    # In which phases each input is legal. In any other it is a defect of the performer, except after the end.
    _ANY = frozenset(Phase)
    _TABLE: ClassVar[dict[type, tuple[frozenset[Phase], Callable[..., list[Effect]]]]] = {
        Claimed: (frozenset({Phase.CLAIMING}), _claimed),
        ClaimRefused: (frozenset({Phase.CLAIMING}), _claim_refused),
        Opened: (frozenset({Phase.OPENING}), _opened),
        Chunk: (HAS_ASKED | {Phase.DRAINING}, _chunk),
        Closed: (HAS_ASKED | {Phase.DRAINING}, _closed),
        Written: (LIVE | {Phase.DRAINING}, _written),
        GapsRecorded: (LIVE | {Phase.DRAINING}, lambda self, _now_ms, recorded: self._record.misses(recorded)),
        LeaseRead: (_ANY - {Phase.CLAIMING}, _lease_read),
        StoreFailed: (_ANY, _store_failed),
        Woken: (_ANY, _woken),
    }

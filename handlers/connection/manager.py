"""Decides what one connection does next: inputs in, effects out.

    handle(20, Claimed(…))     -> Open("7")
    handle(90, Opened(200))    -> MarkConnected(…)
    handle(95, Chunk(b"…"))    -> Write(…)
    handle(99, Written(3, 0))  -> Heartbeat("10", …)

`phases.py` lists which phase may follow which; `_TABLE` at the end of this module, which input is legal in which phase.
`claiming.py` decides whose turn it is, `lifetime.py` when the connection renews its lease and how long it stays,
`intake.py` what bytes become, `record.py` what is recorded, and `draining.py` how it leaves.

The manager knows no socket, clock, table or log: `now_ms` comes with every input, and the loop (`loop.py`) reads when
to come back from `wake_at_ms` and `lease_due_ms`. Invariants: a connection is opened only after its claim is granted.
It is marked as connected after the upstream has answered, or before it is opened if the upstream forbids two. Exactly
one Finish is returned, as the last effect. What a connection has recorded is true whenever it is killed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from handlers.connection import effects, ends, inputs
from handlers.connection.backoff import NO_BACKOFF, Backoff, Refusal, refused_since_ms
from handlers.connection.claiming import RELEASE_POLL_MS, make_claim, take_turn
from handlers.connection.draining import Draining, watch_ms
from handlers.connection.effects import Effect, Finish, Outcome, Progress
from handlers.connection.ends import End
from handlers.connection.intake import Intake
from handlers.connection.lease import Lease, LeaseView, lease_view, may_open
from handlers.connection.lifetime import Heartbeats, Lifetime
from handlers.connection.phases import ANY, HAS_ASKED, LIVE, NEXT, Phase, ProtocolMisuse
from handlers.connection.record import Record
from handlers.connection.steps import Invocation, Report
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets


class Manager:
    """The decisions of one connection of `invocation`; `secrets` are the values that its messages hold."""

    def __init__(self, profile: Profile, invocation: Invocation, secrets: Secrets | None = None) -> None:
        self._profile, self._invocation, self._backoff = profile, invocation, NO_BACKOFF
        self._lifetime, self._heartbeats = Lifetime(profile, invocation), Heartbeats(invocation)
        self._intake = Intake(profile, invocation.budget, invocation.stream_id)
        if profile.is_socket:
            self._intake.enable_messages(invocation.stream_id, secrets or {})
        self._record = Record(invocation.deadline_ms, profile.expect_ms, profile.budget)
        self._draining = Draining(watch_ms(profile), profile.again)
        self._lease, self._has_turn = Lease(), False
        self.refusal: Refusal | None = None  # None unless the upstream refused it
        self.phase = Phase.CLAIMING
        self.wake_at_ms: int | None = None
        self.lease_due_ms: int | None = None

    @property
    def fence(self) -> int:
        """Returns the connection's fencing token; 0 before the claim is answered."""
        return self._record.fence

    @property
    def progress(self) -> Progress:
        """Returns the ledger's record of this connection so far."""
        return self._record.progress

    @property
    def outcome_so_far(self) -> Outcome:
        """Returns the outcome of a connection that leaves, unless the lease explains its end."""
        return self._draining.outcome

    def report(self, outcome: Outcome, connect_ms: int | None) -> Report:
        """Returns what the connection did, if it ends with `outcome`; the upstream answered after `connect_ms`."""
        record, asked_ms = self._record, self._intake.reconnection_ms
        return Report(outcome, record.progress, connect_ms, asked_ms, record.stuck_cursor, refusal=self.refusal)

    def start(
        self, now_ms: int, after_fence: int = 0, backoff: Backoff = NO_BACKOFF, has_backed_off: bool = False
    ) -> list[Effect]:
        """Returns the first effects; `after_fence` is the token of the invocation's previous connection, 0 for none.

        `backoff` is the back-off that the invocation knows, `has_backed_off` whether it waited for it.
        """
        self._record.begin(now_ms)
        self._lifetime.begin(now_ms)
        self.wake_at_ms = self._lifetime.alarm_ms
        return [make_claim(self._profile, self._lifetime, now_ms, after_fence, backoff, has_backed_off=has_backed_off)]

    def ask_lease(self, now_ms: int, unread_ms: int | None = None) -> list[Effect]:
        """Returns how the lease is read once `lease_due_ms` has come; for the holder, by a renewal's answer.

        `unread_ms` is when the oldest arrival that still waits came: the heartbeat must not cover it.
        """
        self.lease_due_ms = self._draining.lease_due_ms = None
        liveness = self._record.liveness
        liveness.arrived_ms, liveness.unread_ms = now_ms, unread_ms
        if self.phase is Phase.OPENING and self._has_turn:
            return [effects.RenewTurn(self.fence, self._lifetime.expires_at_ms(now_ms))]
        if self.phase in LIVE and self._lease.connected_token <= self.fence and (due := self._due_writes(now_ms)):
            return due
        return [effects.ReadLease()]

    def handle(
        self, now_ms: int, input_: inputs.Input, *, arrived_ms: int | None = None, unread_ms: int | None = None
    ) -> list[Effect]:
        """Returns the effects of one input, in order; raises ProtocolMisuse if the input is illegal in this phase.

        `arrived_ms` is when the input arrived, if it had to wait; `unread_ms` is when the oldest arrival that still
        waits came.
        """
        if self.phase is Phase.FINISHED:
            return []
        liveness = self._record.liveness
        liveness.arrived_ms = now_ms if arrived_ms is None else min(arrived_ms, now_ms)
        liveness.unread_ms = unread_ms
        phases, method = self._TABLE[type(input_)]
        if self.phase not in phases:
            raise ProtocolMisuse(f"{type(input_).__name__} in the phase {self.phase.value}")
        following: list[Effect] = method(self, now_ms, input_)
        if following and isinstance(following[-1], Finish):
            self._enter(Phase.FINISHED)
            self.lease_due_ms = self.wake_at_ms = None
        elif self.phase is Phase.DRAINING:
            self.wake_at_ms, self.lease_due_ms = self._draining.until_ms, self._draining.lease_due_ms
        else:
            self.wake_at_ms = self._lifetime.alarm_ms
        if self.wake_at_ms is not None and self._intake.has_instants and (due_ms := self._intake.due_ms) is not None:
            self.wake_at_ms = min(due_ms, self.wake_at_ms)
        return following

    def _enter(self, phase: Phase) -> None:
        if phase not in NEXT[self.phase]:
            raise ProtocolMisuse(f"{phase.value} after the phase {self.phase.value}")
        self.phase = phase

    # --- opening: claim, open, mark -----------------------------------------------------------------------------------

    def _claimed(self, now_ms: int, claimed: inputs.Claimed) -> list[Effect]:
        self._lease, self._backoff = claimed.lease, claimed.backoff
        self._record.fence = claimed.lease.fence
        self._record.stopped_ms = stopped_ms = claimed.lease.stopped_before_ms
        self._record.started_ms = None if stopped_ms is None else claimed.lease.started_at_ms
        if claimed.partitions == inputs.LOG:
            self._intake.gather_events()
        if self._profile.overlap == "forbids":
            self._enter(Phase.AWAITING_RELEASE)
            return self._await_release(now_ms, LeaseView.HOLDER, claimed.resumption)
        return self._open(now_ms, claimed.resumption)

    def _await_release(self, now_ms: int, view: LeaseView, resumption: inputs.Resumption | None = None) -> list[Effect]:
        if self._lease.connected_token == self.fence and resumption is not None:
            # The turn is this connection's. It was marked as connected before the request goes out, because the next
            # connection could not see it otherwise. The turn is renewed until the upstream answers.
            self._has_turn = True
            has_run_out = self._lifetime.is_turn_expiring(now_ms, self._lease)
            return self._leave(now_ms, ends.NOT_RENEWED) if has_run_out else self._open(now_ms, resumption)
        steps, end = take_turn(self._profile, self._lifetime, self._invocation, now_ms, self.fence, self._lease, view)
        if end is not None:
            return self._leave(now_ms, end)
        self.lease_due_ms = now_ms + RELEASE_POLL_MS
        return steps

    def _open(self, now_ms: int, at: inputs.Resumption) -> list[Effect]:
        self._enter(Phase.OPENING)
        # The answer may take as long as the profile lets a stream be silent, and a stop must not wait for it.
        self.lease_due_ms = now_ms + self._invocation.lease_every_ms
        self._record.record_resumption(now_ms, at, self._profile.is_resumption(at.cursor), self._profile.reach_ms)
        return [effects.Open(at.cursor)]

    def _opened(self, now_ms: int, opened: inputs.Opened) -> list[Effect]:
        if self.phase is Phase.DRAINING:
            return []  # it leaves already, so the answer does not matter
        # While another connection reads on, every cursor that it saves may be too old for the upstream by the time it
        # is sent. So a refused cursor is no reason to end: the request is made again without it.
        is_alone = may_open(self._lease, self.fence, now_ms, self._invocation.died)
        if not is_alone and (afresh := self._intake.retry_without_cursor(now_ms, opened.status, self._record)):
            return afresh
        following, end = self._intake.take_answer(now_ms, opened, self._record)
        if end is not None:
            return following + self._leave(now_ms, end)
        if self._record.opened_ms is None:
            return following  # its first messages are sent; it counts as connected once they are answered
        return [self._mark_connected(now_ms), *following]

    def _mark_connected(self, now_ms: int) -> Effect:
        # Claim, open, mark, in this order: an older connection that the upstream ends meanwhile reads in the lease that
        # a newer one claimed or connected, and does not come back to evict this one.
        self._enter(Phase.CONNECTED)
        progress = self._record.save(now_ms, is_open=True)
        self.lease_due_ms = self._heartbeats.next_read_ms(now_ms, self._record, self._lease)
        return effects.MarkConnected(self.fence, self._lifetime.expires_at_ms(now_ms), progress)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _chunk(self, now_ms: int, chunk: inputs.Chunk) -> list[Effect]:
        if self.phase is Phase.DRAINING and self._record.opened_ms is None:
            return []  # it leaves although its first messages were not answered
        following, end = self._intake.take_chunk(now_ms, chunk.data, self._record)
        if self.phase is Phase.OPENING and self._record.opened_ms is not None:
            following = [self._mark_connected(now_ms), *following]
        return following if end is None else following + self._leave(now_ms, end)

    def _written(self, now_ms: int, answer: inputs.Written) -> list[Effect]:
        lost = self._record.record_stored(answer, drops=answer.conflicts > 0 and self._profile.key_conflict == "first")
        if self._intake.needs_stored:
            lost += self._intake.replies_to_stored(self._record)
        return lost + (self._drain(now_ms) if self.phase is Phase.DRAINING else self._due_writes(now_ms))

    def _due_writes(self, now_ms: int) -> list[Effect]:
        """Returns the writes that are due while it is connected, or the effects of leaving if its budget is used up."""
        due = self._heartbeats.due_writes(now_ms, self._record, self._lifetime, self._lease)
        return self._leave(now_ms, due) if isinstance(due, End) else due

    # --- staying or leaving -------------------------------------------------------------------------------------------

    def _lease_read(self, now_ms: int, read: inputs.LeaseRead) -> list[Effect]:
        self._lease = lease = read.lease
        if (account := self._record.account) is not None:
            account.read_answer(now_ms, read.settled, read.wide)
        if read.is_log:
            self._intake.gather_events()
        view = lease_view(lease, self._record.fence)
        if self.phase is Phase.DRAINING:
            return self._draining.finish_if_explained(now_ms, self._record, self._lifetime, lease, view)
        self.lease_due_ms = now_ms + self._invocation.lease_every_ms
        if view is LeaseView.STOPPED:
            return self._leave(now_ms, End(ends.STOPPED, "stopped"))
        if self.phase is Phase.AWAITING_RELEASE:
            return self._await_release(now_ms, view, read.resumption)
        if self.phase is Phase.OPENING:
            return self._leave(now_ms, ends.NOT_RENEWED) if self._lifetime.is_turn_expiring(now_ms, lease) else []
        end = self._lifetime.end_by_lease(now_ms, lease, view)
        overlaps = self._lifetime.overlap_ends_ms is not None
        if overlaps != (self.phase is Phase.OVERLAPPING):
            self._enter(Phase.OVERLAPPING if overlaps else Phase.CONNECTED)
        if end is not None:
            return self._leave(now_ms, end)
        self.lease_due_ms = self._heartbeats.next_read_ms(now_ms, self._record, self._lease)
        return self._due_writes(now_ms)

    def _woken(self, now_ms: int, _woken: inputs.Woken) -> list[Effect]:
        said, end = self._intake.due_messages(now_ms, self._record.liveness.unread_ms)
        if end is not None:
            return said + self._leave(now_ms, end)
        return [*said, *self._intake.flush(now_ms, self._record, is_leaving=False), *self._time_passed(now_ms)]

    def _time_passed(self, now_ms: int) -> list[Effect]:
        if self.phase is Phase.DRAINING:
            return self._draining.finish_if_overdue(now_ms, self._record)
        if self.phase is Phase.OVERLAPPING and self._lifetime.is_reread_due(now_ms):
            return [effects.ReadLease()]
        if self._lifetime.is_turn_due(now_ms) or (self.phase is Phase.CONNECTED and self._lifetime.is_read_due(now_ms)):
            self.lease_due_ms = now_ms
            return []
        return self._leave(now_ms, ends.AT_DEADLINE) if self._lifetime.must_leave(now_ms) else []

    def _store_failed(self, _now_ms: int, failed: inputs.StoreFailed) -> list[Effect]:
        end = Finish(Outcome("StoreUnavailable", "", failed.detail))
        return [end] if self.phase in (Phase.CLAIMING, Phase.AWAITING_RELEASE) else [effects.CloseUpstream(), end]

    # --- leaving: close, store, save, release, finish -----------------------------------------------------------------

    def _closed(self, now_ms: int, closed: inputs.Closed) -> list[Effect]:
        is_first, self._draining.is_closed = not self._draining.is_closed, True
        if self.phase is Phase.DRAINING:
            self._record.record_upstream_close(closed.reason)
            return self._drain(now_ms) if is_first else []
        was_connected = self._record.opened_ms is not None
        return self._leave(now_ms, ends.end_of_drop(closed, was_connected, self._profile.reject_after_ms))

    def _leave(self, now_ms: int, end: End) -> list[Effect]:
        """Stops reading. A refusal is judged first: it is final only if the upstream has refused for long enough."""
        outcome, leaving = end.outcome, self._draining
        if end.refused_ms is not None:
            connected_ms = self._record.connected_ms
            self.refusal = Refusal(refused_since_ms(self._backoff, self._lease, connected_ms, now_ms), end.refused_ms)
            is_alone = may_open(self._lease, self.fence, now_ms, self._invocation.died)
            outcome = ends.outcome_of_refusal(outcome, self.refusal, now_ms, is_alone=is_alone)
        leaving.set_reason(end._replace(outcome=outcome), self._record)
        if self.phase is Phase.DRAINING:
            return []  # it leaves already: bytes that it had read before have only given another reason
        has_asked = self.phase in HAS_ASKED
        self._enter(Phase.DRAINING)
        return [*leaving.begin(now_ms, self._record, self._intake, self._lifetime, has_asked), *self._drain(now_ms)]

    def _drain(self, now_ms: int) -> list[Effect]:
        return self._draining.proceed(now_ms, self._record, self._intake, self._lifetime, self._lease, self._has_turn)

    # The phases in which each input is legal. In any other it is a defect of the performer; after the end, ignored.
    _TABLE: ClassVar[dict[type, tuple[frozenset[Phase], Callable[..., list[Effect]]]]] = {
        inputs.Claimed: (frozenset({Phase.CLAIMING}), _claimed),
        inputs.ClaimRefused: (frozenset({Phase.CLAIMING}), lambda _, _now, claim: [Finish(ends.refused_claim(claim))]),
        inputs.Opened: (frozenset({Phase.OPENING, Phase.DRAINING}), _opened),
        inputs.Chunk: (HAS_ASKED | {Phase.DRAINING}, _chunk),
        inputs.Closed: (HAS_ASKED | {Phase.DRAINING}, _closed),
        inputs.Written: (LIVE | {Phase.DRAINING}, _written),
        inputs.GapsRecorded: (LIVE | {Phase.DRAINING}, lambda self, _now_ms, gaps: self._record.record_missing(gaps)),
        inputs.LeaseRead: (ANY - {Phase.CLAIMING}, _lease_read),
        inputs.StoreFailed: (ANY, _store_failed),
        inputs.Woken: (ANY, _woken),
    }

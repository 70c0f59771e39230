"""Decides which requests to the store a step takes, and in which order.

It keeps the control record of the last reply, so that a connection that opens, renews or leaves need not read it. It
knows no thread, socket or clock. Invariants: a step takes the same requests whichever performer makes them; after the
first failure no more are made.
"""

from collections.abc import Callable
from dataclasses import replace

from handlers.connection.backoff import BackoffChange
from handlers.connection.claiming import refusal_of_claim
from handlers.connection.effects import (
    Claim,
    GoToLog,
    Heartbeat,
    MarkConnected,
    Progress,
    ReadLease,
    RecordGaps,
    RecordLoss,
    Release,
    RenewTurn,
    ReplaceCursor,
    SaveRecord,
    TakeTurn,
    Write,
)
from handlers.connection.inputs import LOG, BackoffOwed, Claimed, ClaimRefused, LeaseRead, Resumption
from handlers.connection.steps import BackoffRead, ChangeBackoff, Invocation, ReadBackoff, Step
from handlers.errors import StoreUnavailable
from handlers.profile.behaviour import Profile
from handlers.run.event_requests import EventRequests
from handlers.run.ledger_requests import LedgerRequests, Request, SpendingRequests
from handlers.store import control_record, ledger_records, typed_values
from handlers.store.connection_store import Reply, Store
from handlers.store.control_record import ControlRecord, to_record
from handlers.store.control_writes import Change, mark_values, rest_change
from handlers.store.typed_values import Item


class Requests:
    """The requests of one invocation; `now_ms` is its clock."""

    def __init__(self, profile: Profile, store: Store, invocation: Invocation, now_ms: Callable[[], int]) -> None:
        self._profile = profile
        self._store = store
        self._invocation = invocation
        self._now_ms = now_ms
        self._began_ms = now_ms()
        self._events = EventRequests(profile, store, invocation, now_ms)
        self._asked_fence = 0  # the connection that saved the cursor which is sent upstream
        self._record = to_record(None)  # as the claim or the turn found it
        self._ledger = LedgerRequests(profile, store, invocation, now_ms)
        self._spending = SpendingRequests(profile, store, invocation, now_ms)

    def requests_of(self, step: Step) -> list[Request]:
        """Returns the requests of `step`, in order, at least one; raises TypeError if it is not a step of the store."""
        store, stream_id = self._store, self._invocation.stream_id
        match step:
            case Write():
                return [lambda: self._events.write(step)]
            case Heartbeat():
                return [lambda: self._heartbeat(step)]
            case ReadLease():
                return [lambda: LeaseRead(store.read_lease(stream_id))]
            case GoToLog(fence):
                return [lambda: self._events.switch_to_log(store.switch_to_log(stream_id, self._now_ms()), fence)]
            case SaveRecord(progress):
                return [lambda: self._ledger.save(progress)]
            case Claim():
                return [lambda: self._claim(step)]
            case TakeTurn():
                return [lambda: self._take_turn(step)]
            case RenewTurn(fence, expires_at_ms):
                return [lambda: LeaseRead(store.renew(stream_id, fence, expires_at_ms).record.lease)]
            case MarkConnected():
                return [lambda: self._mark_connected(step)]
            case Release():
                return [*self._ledger.requests_to_retry(), lambda: self._release(step)]
            case ReplaceCursor(cursor, progress):
                return [lambda: self._ledger.save(progress), lambda: self._replace_cursor(cursor)]
            case RecordGaps():
                return [lambda: self._ledger.record_gaps(step, self._record.gaps_recorded_by)]
            case RecordLoss():
                return [*self._ledger.repair_requests(), lambda: store.ledger.record_loss(stream_id, step)]
            case ReadBackoff():
                return [lambda: BackoffRead((record := store.read(stream_id)).rest, record.lease)]
            case ChangeBackoff(before, after):
                return [lambda: store.change_rest(stream_id, before, after, self._invocation.holder)]
            case _:
                raise TypeError(f"not a step of the store: {step!r}")

    # --- opening ------------------------------------------------------------------------------------------------------

    def _claim(self, step: Claim) -> Claimed | ClaimRefused | BackoffOwed:
        invocation, profile = self._invocation, self._profile
        reply = self._store.claim(
            invocation.stream_id,
            execution=invocation.execution,
            holder=invocation.holder,
            after_fence=step.after_fence,
            partitions=LOG if profile.store == "log" else profile.partitions,
            order=profile.order,
            now_ms=self._now_ms(),
            rest_until_ms=step.backoff_until_ms,
            turn=mark_values(step.after_fence + 1, step.expires_at_ms, invocation.request_id)
            if step.expires_at_ms
            else None,
            try_until_ms=step.try_until_ms,
            rested_from_ms=self._began_ms if step.has_backed_off else None,
        )
        record, lease, backoff = reply.record, reply.record.lease, reply.record.rest
        if not reply.is_done:
            refused = refusal_of_claim(step, lease, backoff, invocation.execution, self._began_ms)
            if refused is None:
                # Another layout, or damage: a retry at once would be refused again.
                raise StoreUnavailable("the control record cannot be claimed: another layout or damaged attributes")
            return refused
        self._remember(record)
        self._events.begin(record, lease.fence)
        # If two are forbidden, the older connection reads on until the turn is taken; the answer to that says where to
        # resume. A request that must not be made twice needs it at once, because it shows whether it was made.
        waits = profile.overlap == "forbids" and profile.again and lease.connected_token != lease.fence
        return Claimed(
            lease, Resumption(None) if waits else self._resumption(record), backoff, record.layout.partitions
        )

    def _resumption(self, record: ControlRecord) -> Resumption:
        """Returns where to resume: after the later of two cursors, the control record's and the log's."""
        log = self._events.log
        logged = None if log is None else log.read_cursor()
        later = record if log is None else record.with_stored_until(*log.newest).with_log_cursor(logged)
        self._asked_fence = later.cursor_fence
        self._events.record_resumption(is_asked=self._profile.is_resumption(later.cursor))
        return later.resumption(self._now_ms())

    def _replace_cursor(self, cursor: str) -> None:
        # Whether a newer connection was first does not matter.
        stream_id = self._invocation.stream_id
        self._store.replace_cursor(stream_id, self._record, cursor, self._asked_fence, self._now_ms())

    def _take_turn(self, step: TakeTurn) -> LeaseRead:
        who, now_ms = self._invocation, self._now_ms()
        reply = self._store.take_turn(
            who.stream_id, step.fence, step.expires_at_ms, now_ms, request_id=who.request_id, over=step.over
        )
        if reply.record.lease.connected_token != step.fence:
            return LeaseRead(reply.record.lease)
        self._remember(reply.record)
        self._events.begin(reply.record, step.fence)  # the one before has gone on until its release
        return LeaseRead(reply.record.lease, self._resumption(reply.record))

    def _remember(self, record: ControlRecord) -> None:
        """Remembers the record; its newest connection is kept."""
        self._ledger.keep(record)
        self._record = record
        self._spending.begin_after(record)

    def _mark_connected(self, step: MarkConnected) -> None:
        """Shows the connection in the control record, which then no longer shows the one before it."""
        who, rest = self._invocation, self._change(step.backoff)
        shown = self._kept_attributes() | self._connection_attributes(step.progress, None)
        reply = self._store.mark_connected(
            who.stream_id, step.fence, step.expires_at_ms, request_id=who.request_id, shown=shown, rest=rest
        )
        if reply.is_done:
            self._ledger.keep(reply.record)

    def _kept_attributes(self) -> Item:
        """Returns what the control record must keep of earlier connections once it shows this one."""
        return {"known": control_record.ledger_sum_value(self._record.ledger_sum_with_live())}

    # --- while it is connected, and after -----------------------------------------------------------------------------

    def _heartbeat(self, step: Heartbeat) -> LeaseRead:
        fence, shown = step.progress.fence, self._connection_attributes(step.progress, step.cursor)
        change, stream_id = self._change(step.backoff), self._invocation.stream_id
        reply = self._store.heartbeat(stream_id, fence, step.expires_at_ms, shown, change)
        self._events.switch_to_log(reply.record, fence)
        answer, spent = self._answer(reply), self._spending
        if self._profile.budget is not None:
            answer = replace(
                answer, settled=spent.take_settled(answer.lease), wide=spent.add_to_shared(step.progress.counted)
            )
        return answer if change is None else replace(answer, backoff=reply.record.rest)

    def _release(self, step: Release) -> LeaseRead:
        fence, shown = (
            step.progress.fence,
            {} if step.is_relieved else self._connection_attributes(step.progress, step.cursor),
        )
        if shown and step.progress.opened_ms is None:
            # A turn that the upstream never answered was not marked: the release shows the connection for the first
            # time.
            shown = self._kept_attributes() | shown
        reply = self._store.release(self._invocation.stream_id, fence, shown, self._change(step.backoff))
        self._spending.add_to_shared(step.progress.counted, is_last=True)
        return replace(self._answer(reply), backoff=reply.record.rest)

    def _change(self, backoff: BackoffChange | None) -> Change | None:
        return None if backoff is None else rest_change(backoff.before, backoff.after, self._invocation.holder)

    def _answer(self, reply: Reply) -> LeaseRead:
        self._events.apply_lease(reply.record.lease)
        if reply.is_done:
            self._ledger.last_searched = None
        return LeaseRead(reply.record.lease, is_log=reply.record.layout.partitions == LOG)

    def _connection_attributes(self, progress: Progress, cursor: str | None) -> Item:
        """Returns the attributes of the control record that change with the connection.

        The cursor of a connected one is saved only here.
        """
        live, row = self._ledger.row(progress), self._events.row.to_text(progress.dropped_from_ms)
        shown: Item = {"live": {"M": ledger_records.without_defaults(live) | ({"row": {"S": row}} if row else {})}}
        if cursor is not None:
            came_ms = min(progress.seen_ms, progress.heard_ms or progress.seen_ms)
            shown |= control_record.cursor_attributes(cursor, progress.fence, self._now_ms(), came_ms)
        return (
            shown
            if self._ledger.last_searched is None
            else shown | {"looked": typed_values.number_value(self._ledger.last_searched)}
        )

"""Decides which requests to the store a step takes, and in which order.

It keeps the control record of the last reply, so that a connection that opens, renews or leaves need not read it. It
knows no thread, socket or clock. Invariants: a step takes the same requests whichever performer makes them; after the
first failure no more are made.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from handlers.connection.backoff import RestChange
from handlers.connection.claiming import refusal
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
from handlers.connection.epochs import NO_EPOCH, NO_ROW, Epochs, epochs_of
from handlers.connection.inputs import LOG, Claimed, ClaimRefused, LeaseRead, RestOwed, Resumption, Written
from handlers.connection.lease import Lease
from handlers.connection.steps import ChangeRest, Invocation, ReadRest, RestRead, Step
from handlers.errors import StoreUnavailable
from handlers.profile.behaviour import Profile
from handlers.run.ledger_requests import LedgerRequests, Request, SpendingRequests
from handlers.store import control_record, ledger_records, typed_values
from handlers.store.connection_store import Reply, Store
from handlers.store.control_record import ControlRecord, to_record
from handlers.store.control_writes import Change, mark, to_change
from handlers.store.event_items import DEFAULT_POLICY, StoragePolicy
from handlers.store.typed_values import Item

if TYPE_CHECKING:
    from handlers.store.segment_writer import SegmentWriter


class EventRequests:
    """The requests for the events of one invocation's connections; `log` is the connection's, if the stream has one."""

    def __init__(self, profile: Profile, store: Store, invocation: Invocation, now_ms: Callable[[], int]) -> None:
        self._profile, self._store, self._invocation, self._now_ms = profile, store, invocation, now_ms
        self._policy = DEFAULT_POLICY
        self._epoch, self.row = NO_EPOCH, NO_ROW  # the control record's, and what its next connection continues
        self._before = self._beside_until_ms = 0  # the connection before, and until when it may have been open
        self.log: SegmentWriter | None = None

    def begins(self, record: ControlRecord, fence: int) -> None:
        """Makes connection `fence` store its events as the record says, as it is when the cursor is read."""
        profile, layout, lease = self._profile, record.layout, record.lease
        # Where two are forbidden, this one opens once the other is over.
        if profile.overlap != "forbids" and lease.released_token < lease.connected_token < fence:
            self._before, self._beside_until_ms = lease.connected_token, lease.expires_at_ms
        self._epoch, conflict = record.epoch, profile.key_conflict
        row = typed_values.text(record.live or {}, "row") or ""
        epochs = None if conflict is None else epochs_of(conflict, record.epoch, row)
        self.row = NO_ROW if epochs is None else epochs.row
        self.log = None
        # A log has no bodies at hand: it keeps their checksums, or nobody would see that ids start over.
        if layout.partitions == LOG:
            self.goes_to_log(record, fence, epochs)
        else:
            self._policy = StoragePolicy(layout.partitions, profile.keep_days, conflict, layout.order, epochs)

    def hears(self, lease: Lease) -> None:
        """Learns from the lease whether the connection before is released."""
        if self._before <= lease.released_token:
            self._beside_until_ms = min(self._beside_until_ms, self._now_ms())

    def write(self, step: Write) -> Written:
        """Stores the events. An epoch that they began is recorded after them, so the next connection finds both."""
        stream_id, log = self._invocation.stream_id, self.log
        is_beside = step.events[0].received_at_ms < self._beside_until_ms
        epochs = self._policy.epochs if log is None else log.epochs
        if epochs is not None:
            epochs.is_beside = is_beside
        if log is not None:
            written = log.write(step.first, step.events, step.came_ms)
        else:
            written = self._store.write(stream_id, step.fence, step.first, step.events, self._policy)
            if written.duplicates and self._profile.may_go_to_log:
                written = self._written_beside(step, written)
        epochs = self._policy.epochs if log is None else log.epochs
        if epochs is None:
            return written
        if epochs.epoch != self._epoch:
            epochs.epoch = self._epoch = self._store.begin_epoch(stream_id, self._epoch, epochs.epoch)
        if not (written.conflicts or epochs.row.length):
            return written
        lost, from_ms = epochs.lost(step.first + len(step.events))
        self.row = NO_ROW if is_beside else epochs.row
        return replace(written, is_beside=is_beside and written.conflicts > 0, lost=lost, lost_from_ms=from_ms)

    def _written_beside(self, step: Write, items: Written) -> Written:
        """Returns what was stored in all, if some of the events were refused as items.

        A connection that writes to the log already has promised some of them, and may have died before it appended
        them.
        """
        self.goes_to_log(self._store.read(self._invocation.stream_id), step.fence)
        if self.log is None:
            return items
        logged = self.log.write(step.first, step.events, step.came_ms)
        stored, dead_lettered = items.stored + logged.stored, items.dead_lettered + logged.dead_lettered
        return Written(stored, len(step.events) - stored - dead_lettered, dead_lettered, items.conflicts)

    def goes_to_log(self, record: ControlRecord, fence: int, epochs: Epochs | None = None) -> None:
        """Makes connection `fence` write to the stream's log from now on, if the record has one."""
        if record.layout.partitions == LOG and self.log is None:
            self.log = self._store.log(
                self._invocation.stream_id,
                fence,
                self._now_ms,
                window_ms=self._profile.dedup_window_ms,
                keep_days=self._profile.keep_days,
                epochs=epochs,
                layout=record.layout,
            )


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

    def of(self, step: Step) -> list[Request]:
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
                return [lambda: self._events.goes_to_log(store.goes_to_log(stream_id, self._now_ms()), fence)]
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
                return [*self._ledger.owed(), lambda: self._release(step)]
            case ReplaceCursor(cursor, progress):
                return [lambda: self._ledger.save(progress), lambda: self._replace_cursor(cursor)]
            case RecordGaps():
                return [lambda: self._ledger.gaps(step, self._record.looked)]
            case RecordLoss():
                return [*self._ledger.repair(), lambda: store.ledger.record_loss(stream_id, step)]
            case ReadRest():
                return [lambda: RestRead((record := store.read(stream_id)).rest, record.lease)]
            case ChangeRest(before, after):
                return [lambda: store.change_rest(stream_id, before, after, self._invocation.holder)]
            case _:
                raise TypeError(f"not a step of the store: {step!r}")

    # --- opening ------------------------------------------------------------------------------------------------------

    def _claim(self, step: Claim) -> Claimed | ClaimRefused | RestOwed:
        invocation, profile = self._invocation, self._profile
        reply = self._store.claim(
            invocation.stream_id,
            execution=invocation.execution,
            holder=invocation.holder,
            after_fence=step.after_fence,
            partitions=LOG if profile.store == "log" else profile.partitions,
            order=profile.order,
            now_ms=self._now_ms(),
            rest_until_ms=step.rest_until_ms,
            turn=mark(step.after_fence + 1, step.expires_at_ms, invocation.request_id) if step.expires_at_ms else None,
            try_until_ms=step.try_until_ms,
            rested_from_ms=self._began_ms if step.has_rested else None,
        )
        record, lease, rest = reply.record, reply.record.lease, reply.record.rest
        if not reply.is_done:
            refused = refusal(step, lease, rest, invocation.execution, self._began_ms)
            if refused is None:
                # Another layout, or damage: a retry at once would be refused again.
                raise StoreUnavailable("the control record cannot be claimed: another layout or damaged attributes")
            return refused
        self._found(record)
        self._events.begins(record, lease.fence)
        # Where two are forbidden, the older connection goes on until the turn is taken; the answer to that says where
        # to resume. A request that must not be made twice needs that at once, because it shows whether it was made.
        waits = profile.overlap == "forbids" and profile.again and lease.connected_token != lease.fence
        return Claimed(lease, Resumption(None) if waits else self._resumption(record), rest, record.layout.partitions)

    def _resumption(self, record: ControlRecord) -> Resumption:
        """Returns where to resume: after the later of two cursors, the control record's and the log's."""
        log = self._events.log
        logged = None if log is None else log.opens()
        later = record if log is None else record.heard(*log.newest).with_logged(logged)
        self._asked_fence = later.cursor_fence
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
        self._found(reply.record)
        self._events.begins(reply.record, step.fence)  # the one before has gone on until its release
        return LeaseRead(reply.record.lease, self._resumption(reply.record))

    def _found(self, record: ControlRecord) -> None:
        """Remembers the record; its newest connection is kept."""
        self._ledger.keep(record)
        self._record = record
        self._spending.follows(record)

    def _mark_connected(self, step: MarkConnected) -> None:
        """Shows the connection in the control record, which then no longer shows the one before it."""
        who, rest = self._invocation, self._change(step.rest)
        shown = self._found_before() | self._shown(step.progress, None)
        reply = self._store.mark_connected(
            who.stream_id, step.fence, step.expires_at_ms, request_id=who.request_id, shown=shown, rest=rest
        )
        if reply.is_done:
            self._ledger.keep(reply.record)

    def _found_before(self) -> Item:
        """Returns what the control record must keep of earlier connections once it shows this one."""
        return {"known": control_record.known(self._record.known_after())}

    # --- while it is connected, and after -----------------------------------------------------------------------------

    def _heartbeat(self, step: Heartbeat) -> LeaseRead:
        fence, shown = step.progress.fence, self._shown(step.progress, step.cursor)
        change, stream_id = self._change(step.rest), self._invocation.stream_id
        reply = self._store.heartbeat(stream_id, fence, step.expires_at_ms, shown, change)
        self._events.goes_to_log(reply.record, fence)
        answer, spent = self._answer(reply), self._spending
        if self._profile.budget is not None:
            answer = replace(answer, settled=spent.settled(answer.lease), wide=spent.shares(step.progress.counted))
        return answer if change is None else replace(answer, rest=reply.record.rest)

    def _release(self, step: Release) -> LeaseRead:
        fence, shown = step.progress.fence, {} if step.is_relieved else self._shown(step.progress, step.cursor)
        if shown and step.progress.opened_ms is None:
            # A turn that the upstream never answered was not marked: the release shows the connection for the first
            # time.
            shown = self._found_before() | shown
        reply = self._store.release(self._invocation.stream_id, fence, shown, self._change(step.rest))
        self._spending.shares(step.progress.counted, is_last=True)
        return replace(self._answer(reply), rest=reply.record.rest)

    def _change(self, rest: RestChange | None) -> Change | None:
        return None if rest is None else to_change(rest.before, rest.after, self._invocation.holder)

    def _answer(self, reply: Reply) -> LeaseRead:
        self._events.hears(reply.record.lease)
        if reply.is_done:
            self._ledger.looked = None
        return LeaseRead(reply.record.lease, is_log=reply.record.layout.partitions == LOG)

    def _shown(self, progress: Progress, cursor: str | None) -> Item:
        """Returns the attributes of the control record that change with the connection.

        The cursor of a connected one is saved only here.
        """
        live, row = self._ledger.row(progress), self._events.row.written(progress.dropped_from_ms)
        shown: Item = {"live": {"M": ledger_records.lean(live) | ({"row": {"S": row}} if row else {})}}
        if cursor is not None:
            came_ms = min(progress.seen_ms, progress.heard_ms or progress.seen_ms)
            shown |= control_record.cursor(cursor, progress.fence, self._now_ms(), came_ms)
        return shown if self._ledger.looked is None else shown | {"looked": typed_values.number(self._ledger.looked)}

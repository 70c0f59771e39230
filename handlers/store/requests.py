"""Decides which requests to the store a step takes, and in which order.

It keeps the control record of the last reply, so that a connection that opens, renews or leaves need not read it. It
knows no thread, socket or clock. Invariants: a step takes the same requests whichever performer makes them; after the
first failure no more are made.
"""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from handlers.connection.backoff import RestChange
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
from handlers.connection.epochs import NO_EPOCH, Epochs, epochs_of
from handlers.connection.inputs import (
    LOG,
    Claimed,
    ClaimRefused,
    GapsRecorded,
    LeaseRead,
    RestOwed,
    Resumption,
    Written,
)
from handlers.connection.lease import is_ended, superseded
from handlers.connection.spending import DAY_MS
from handlers.connection.steps import ChangeRest, Invocation, ReadRest, RestRead, Step
from handlers.errors import StoreUnavailable
from handlers.profile.behaviour import Profile
from handlers.store import control_record, ledger_records, typed_values
from handlers.store.connection_store import Reply, Store
from handlers.store.control_record import ControlRecord, to_record
from handlers.store.control_writes import Change, mark, to_change
from handlers.store.event_items import DEFAULT_POLICY, StoragePolicy
from handlers.store.typed_values import Item

if TYPE_CHECKING:
    from handlers.store.segment_writer import SegmentWriter

# How often a connection adds to the budgets that it shares with other streams.
SHARED_EVERY_MS = 60_000
# Returns the answer to the step, None if it needs none. Raises StoreUnavailable.
Request = Callable[[], Any]


class Requests:
    """The requests of one invocation; `now_ms` is its clock."""

    def __init__(self, profile: Profile, store: Store, invocation: Invocation, now_ms: Callable[[], int]) -> None:
        self._profile = profile
        self._store = store
        self._invocation = invocation
        self._now_ms = now_ms
        self._began_ms = now_ms()
        self._policy = DEFAULT_POLICY
        self._epoch = NO_EPOCH  # the control record's, as far as is known
        self._log: SegmentWriter | None = None  # the connection's log, if the stream has one
        self._asked_fence = 0  # the connection that saved the cursor which is sent upstream
        self._record = to_record(None)  # as the claim or the turn found it
        self._row: Item = {}  # the connection's own record, as it was last written in either place
        self._unsaved: Progress | None = None  # the same, if the ledger has refused it
        self._kept: Item | None = None  # the predecessor's record as this connection has written it
        self._before: tuple[int, str] | None = None  # the connection whose spending is to be settled, and as known
        # For each shared budget: when the connection last added what it has stored, and how much that was.
        self._shared: dict[str, tuple[int, tuple[int, int]]] = {}
        self._looked: int | None = None  # the connection that recorded gaps, if the control record lacks it

    def of(self, step: Step) -> list[Request]:
        """Returns the requests of `step`, in order, at least one; raises TypeError if it is not a step of the store."""
        store, stream_id = self._store, self._invocation.stream_id
        match step:
            case Write():
                return [lambda: self._write(step)]
            case Heartbeat():
                return [lambda: self._heartbeat(step)]
            case ReadLease():
                return [lambda: LeaseRead(store.read_lease(stream_id))]
            case GoToLog(fence):
                return [lambda: self._goes_to_log(store.goes_to_log(stream_id, self._now_ms()), fence)]
            case SaveRecord(progress):
                return [lambda: self._save_record(progress)]
            case Claim():
                return [lambda: self._claim(step)]
            case TakeTurn():
                return [lambda: self._take_turn(step)]
            case RenewTurn(fence, expires_at_ms):
                return [lambda: LeaseRead(store.renew(stream_id, fence, expires_at_ms).record.lease)]
            case MarkConnected():
                return [lambda: self._mark_connected(step)]
            case Release():
                return [*self._owed(), lambda: self._release(step)]
            case ReplaceCursor(cursor, progress):
                return [lambda: self._save_record(progress), lambda: _unheeded(self._replace_cursor(cursor))]
            case RecordGaps():
                return [lambda: self._record_gaps(step)]
            case RecordLoss():
                return [*self._repair(), lambda: store.ledger.record_loss(stream_id, step)]
            case ReadRest():
                return [self._read_rest]
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
            turn=self._turn(step),
            try_until_ms=step.try_until_ms,
            rested_from_ms=self._began_ms if step.has_rested else None,
        )
        lease, rest = reply.record.lease, reply.record.rest
        if not reply.is_done:
            is_over = lease.stop or superseded(lease, invocation.execution) or is_ended(lease)
            # An execution has let go of the stream since the invocation began, and none has claimed it since.
            was_let_go = bool(lease.ending) and not lease.execution and lease.ended_at_ms >= self._began_ms
            if is_over or (step.has_rested and was_let_go):
                return ClaimRefused(lease)
            if step.has_rested and 0 < step.after_fence < lease.connected_token:
                return ClaimRefused(lease, is_relieved=True)
            if rest.until_ms == step.rest_until_ms:
                # Another layout, or damage: a retry at once would be refused again.
                raise StoreUnavailable("the control record cannot be claimed: another layout or damaged attributes")
            return RestOwed(rest)
        record = reply.record
        self._found(record)
        self._epoch, conflict = record.epoch, profile.key_conflict
        epochs = None if conflict is None else epochs_of(conflict, record.epoch)
        # A log has no bodies at hand: it keeps their checksums if the profile wants conflicts noticed.
        compares = epochs if conflict == "epoch" else None
        self._log, layout = None, record.layout
        if layout.partitions == LOG:
            self._goes_to_log(record, lease.fence, compares)
        else:
            self._policy = StoragePolicy(layout.partitions, profile.keep_days, conflict, layout.order, epochs)
        # Where two are forbidden, the older connection goes on until the turn is taken; the answer to that says where
        # to resume. A request that must not be made twice needs that at once, because it shows whether it was made.
        waits = profile.overlap == "forbids" and profile.again and lease.connected_token != lease.fence
        return Claimed(lease, Resumption(None) if waits else self._resumption(record), rest, layout.partitions)

    def _turn(self, step: Claim) -> Item | None:
        """Returns the mark of the turn that the claim takes with it; None if it takes none."""
        if not (step.expires_at_ms and step.after_fence):
            return None
        return mark(step.after_fence + 1, step.expires_at_ms, self._invocation.request_id)

    def _resumption(self, record: ControlRecord) -> Resumption:
        """Returns where to resume: after the later of two cursors, the control record's and the log's."""
        logged = None if self._log is None else self._log.opens()
        newest = typed_values.count(record.live or {}, "fence") or 0
        came_ms = None if self._log is None else self._log.came_ms(newest)
        saved = record.heard_by(logged, came_ms).resumption(self._now_ms())
        later = record.with_logged(logged)
        self._asked_fence = later.cursor_fence
        return replace(saved, cursor=later.cursor, saved_ms=later.saved_ms)

    def _replace_cursor(self, cursor: str) -> bool:
        store, stream_id = self._store, self._invocation.stream_id
        return store.replace_cursor(stream_id, self._record, cursor, self._asked_fence, self._now_ms())

    def _take_turn(self, step: TakeTurn) -> LeaseRead:
        invocation, now_ms = self._invocation, self._now_ms()
        reply = self._store.take_turn(
            invocation.stream_id,
            step.fence,
            step.expires_at_ms,
            now_ms,
            request_id=invocation.request_id,
            over=step.over,
        )
        if reply.record.lease.connected_token != step.fence:
            return LeaseRead(reply.record.lease)
        self._found(reply.record)
        return LeaseRead(reply.record.lease, self._resumption(reply.record))

    def _found(self, record: ControlRecord) -> None:
        """Remembers the record; its newest connection is kept."""
        self._keep(record)
        self._record = record
        live = record.live or {}
        if self._profile.budget is not None and (fence := typed_values.count(live, "fence")):
            self._before = fence, typed_values.text(live, "spending") or ""

    def _keep(self, record: ControlRecord) -> None:
        """Writes the newest connection into the ledger: it may be killed, and the control record soon shows another."""
        live = record.live
        if live is not None and "closed_ms" not in live and live != self._kept:
            self._store.ledger.save(self._invocation.stream_id, live)
            self._kept = live

    def _mark_connected(self, step: MarkConnected) -> None:
        """Shows the connection in the control record, which then no longer shows the one before it."""
        store, stream_id = self._store, self._invocation.stream_id
        shown = self._found_before() | self._shown(step.progress, None)
        request_id = self._invocation.request_id
        reply = store.mark_connected(
            stream_id, step.fence, step.expires_at_ms, request_id=request_id, shown=shown, rest=self._change(step.rest)
        )
        if reply.is_done:
            self._keep(reply.record)

    def _found_before(self) -> Item:
        """Returns what the control record must keep of earlier connections once it shows this one."""
        return {"known": control_record.known(self._record.known_after())}

    # --- while it is connected, and after -----------------------------------------------------------------------------

    def _write(self, step: Write) -> Written:
        """Stores the events. An epoch that they began is recorded after them, so the next connection finds both."""
        stream_id, log = self._invocation.stream_id, self._log
        if log is not None:
            written = log.write(step.first, step.events)
        else:
            written = self._store.write(stream_id, step.fence, step.first, step.events, self._policy)
            if written.duplicates and self._profile.may_go_to_log:
                written = self._written_beside(step, written)
        epochs = self._policy.epochs if log is None else log.epochs
        if epochs is not None and epochs.epoch != self._epoch:
            epochs.epoch = self._epoch = self._store.begin_epoch(stream_id, self._epoch, epochs.epoch)
        return written

    def _written_beside(self, step: Write, items: Written) -> Written:
        """Returns what was stored in all, if some of the events were refused as items.

        A connection that writes to the log already has promised some of them, and may have died before it appended
        them.
        """
        self._goes_to_log(self._store.read(self._invocation.stream_id), step.fence)
        if self._log is None:
            return items
        logged = self._log.write(step.first, step.events)
        stored, dead_lettered = items.stored + logged.stored, items.dead_lettered + logged.dead_lettered
        return Written(stored, len(step.events) - stored - dead_lettered, dead_lettered, items.conflicts)

    def _goes_to_log(self, record: ControlRecord, fence: int, epochs: Epochs | None = None) -> None:
        """Makes connection `fence` write to the stream's log from now on, if the record has one."""
        if record.layout.partitions == LOG and self._log is None:
            self._log = self._store.log(
                self._invocation.stream_id,
                fence,
                self._now_ms,
                window_ms=self._profile.dedup_window_ms,
                keep_days=self._profile.keep_days,
                epochs=epochs,
                layout=record.layout,
            )

    def _heartbeat(self, step: Heartbeat) -> LeaseRead:
        fence, shown = step.progress.fence, self._shown(step.progress, step.cursor)
        change, stream_id = self._change(step.rest), self._invocation.stream_id
        reply = self._store.heartbeat(stream_id, fence, step.expires_at_ms, shown, change)
        self._goes_to_log(reply.record, fence)
        answer = self._answer(reply)
        if self._before is not None and self._before[0] <= answer.lease.released_token:
            answer = replace(answer, settled=self._settled(*self._before))
        answer = replace(answer, wide=self._shares(step.progress.counted))
        return answer if change is None else replace(answer, rest=reply.record.rest)

    def _settled(self, fence: int, known: str) -> tuple[str, str]:
        """Returns the spending of the connection before as it was known, and as it ended; it is read once."""
        final = self._store.ledger.spending(self._invocation.stream_id, fence)
        self._before = None
        return known, final

    def _shares(self, counted: tuple[int, int], *, is_last: bool = False) -> tuple[int, str] | None:
        """Adds what the connection has stored to the shared budgets; returns how much of the most used one is used.

        It does so once a minute, and only if something was stored since. What the table refuses is added the next time.
        """
        found, now_ms = list[tuple[int, str]](), self._now_ms()
        for one in () if self._profile.budget is None else self._profile.budget.wide:
            added_ms, added = self._shared.get(one.whose, (0, (0, 0)))
            is_due = is_last or now_ms - added_ms >= SHARED_EVERY_MS
            if not is_due or (added_ms and added == counted):
                continue
            whose = one.whose if one.whose == "stage" else f"{one.whose}:{self._profile.name}"
            with contextlib.suppress(StoreUnavailable):
                more = (counted[0] - added[0], counted[1] - added[1])
                used = self._store.ledger.spend(whose, now_ms // DAY_MS, *more)
                self._shared[one.whose] = now_ms, counted
                found.append((one.percent(*used), one.whose))
        return max(found, default=None)

    def _owed(self) -> list[Request]:
        """Returns what is tried again before an answered connection lets go: nothing else would record how it ended."""
        return [] if self._unsaved is None else [functools.partial(self._save_record, self._unsaved)]

    def _release(self, step: Release) -> LeaseRead:
        fence, shown = step.progress.fence, {} if step.is_relieved else self._shown(step.progress, step.cursor)
        if shown and step.progress.opened_ms is None:
            # A turn that the upstream never answered was not marked: the release shows the connection for the first
            # time.
            shown = self._found_before() | shown
        reply = self._store.release(self._invocation.stream_id, fence, shown, self._change(step.rest))
        self._shares(step.progress.counted, is_last=True)
        return replace(self._answer(reply), rest=reply.record.rest)

    def _change(self, rest: RestChange | None) -> Change | None:
        return None if rest is None else to_change(rest.before, rest.after, self._invocation.holder)

    def _answer(self, reply: Reply) -> LeaseRead:
        if reply.is_done:
            self._looked = None
        return LeaseRead(reply.record.lease, is_log=reply.record.layout.partitions == LOG)

    def _shown(self, progress: Progress, cursor: str | None) -> Item:
        """Returns the attributes of the control record that change with the connection.

        The cursor of a connected one is saved only here.
        """
        shown = {"live": ledger_records.live_value(self._of(progress))}
        if cursor is not None:
            shown |= control_record.cursor(cursor, progress.fence, self._now_ms())
        return shown if self._looked is None else shown | {"looked": typed_values.number(self._looked)}

    def _of(self, progress: Progress) -> Item:
        """Returns the connection's record for the ledger."""
        who = self._invocation
        self._row = ledger_records.connection_item(
            progress, lane=who.lane, execution=who.execution, request_id=who.request_id
        )
        if self._store.memory_mb is not None:
            # An upgrade compares it with that of the former version (handlers/upgrade/health.py).
            self._row["memory_mb"] = typed_values.number(self._store.memory_mb())
        return self._row

    def _save_record(self, progress: Progress) -> None:
        self._unsaved = progress
        self._store.ledger.save(self._invocation.stream_id, self._of(progress))
        self._unsaved, self._kept = None, self._row

    def _read_rest(self) -> RestRead:
        record = self._store.read(self._invocation.stream_id)
        return RestRead(record.rest, record.lease)

    def _repair(self) -> list[Request]:
        """Returns the request for the repair of a gap, which precedes the gap; none if the profile has no repair.

        A kill in between leaves a request without a gap, but never a gap without a request.
        """
        repair = self._profile.repair
        if repair is None:
            return []
        stream_id = self._invocation.stream_id
        return [lambda: self._store.request_repair(stream_id, self._now_ms(), repair.after_ms)]

    def _record_gaps(self, step: RecordGaps) -> GapsRecorded:
        now_ms, looked, repair, ledger = self._now_ms(), self._record.looked, self._repair(), self._store.ledger
        on_open, stream_id = repair[0] if repair else None, self._invocation.stream_id
        recorded = ledger.record_gaps(
            stream_id, now_ms, step.dead_after_ms, self._row, looked, on_open, again=step.again
        )
        self._looked = typed_values.count(self._row, "fence")
        return recorded


def _unheeded(_answer: object) -> None:
    """Takes the answer to a write whose only interesting result is whether a newer connection was first."""
    return

"""Stores the state of one connection: lease, cursor and back-off in the control record, events by the writer.

Each method is one conditional write of the control record, spelled by `control_writes.py`. Its reply has whether the
condition held, and the record, so a connection that writes need not read. Invariant: any other answer of AWS raises
`StoreUnavailable`, after the client's own retries.
"""

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from handlers.connection.backoff import Backoff
from handlers.connection.epochs import NO_EPOCH, Epoch, Epochs
from handlers.connection.inputs import IN_A_LOG, LOG, Layout
from handlers.connection.lease import Lease
from handlers.errors import StoreUnavailable
from handlers.store import control_record, control_writes, typed_values
from handlers.store.control_record import ControlRecord, to_record
from handlers.store.control_table import Table, set_clause, values_of
from handlers.store.control_writes import Change, Write, mark_values, rest_change
from handlers.store.event_writer import EventWriter
from handlers.store.ledger_records import LedgerRecords
from handlers.store.overflow import DeadLetterQueue, Objects, SingleWriter
from handlers.store.typed_values import Item

if TYPE_CHECKING:
    from handlers.segments.known_keys import KnownKeys
    from handlers.store.segment_writer import SegmentWriter


class Reply(NamedTuple):
    """Whether the condition held, and the control record: after the write, or unchanged if the write was refused."""

    is_done: bool
    record: ControlRecord


class Store:
    """The tables and the queue. The clients are made once and shared by all invocations of a sandbox.

    `sleep` waits for a number of seconds: the back-off of a throttled write. Records of connections and gaps expire
    after `ledger_keep_days`, 0 for never. A connection's record gets what `memory_mb` returns, nothing if that is None.
    `start_repair` invokes the function that repairs a stream's gaps, and raises nothing.
    """

    def __init__(
        self,
        dynamodb: Any,
        sqs: Callable[[], Any],
        *,
        events_table: str,
        control_table: str,
        dead_letter_queue_url: str,
        events_bucket: str = "",
        s3: Callable[[], Any] = lambda: None,  # never called if there is no bucket
        ledger_keep_days: int = 0,
        memory_mb: Callable[[], int] | None = None,
        start_repair: Callable[[str], None] = lambda _stream_id: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._start_repair = start_repair
        self.memory_mb = memory_mb
        self._dynamodb = dynamodb
        self._control_table = control_table
        self._table = Table(dynamodb, control_table)
        self.ledger = LedgerRecords(dynamodb, control_table, ledger_keep_days)
        self._events_table = events_table
        self._objects, self._dead_letters = Objects(s3, events_bucket), DeadLetterQueue(sqs, dead_letter_queue_url)
        singles = SingleWriter(dynamodb, events_table, self._objects, self._dead_letters)
        self._sleep = sleep
        self._writer = EventWriter(dynamodb, events_table, self._objects, singles, sleep)
        self.write = self._writer.write

    def log_writer(
        self,
        stream_id: str,
        fence: int,
        now_ms: Callable[[], int],
        *,
        window_ms: int,
        keep_days: int,
        epochs: Epochs | None = None,
        layout: Layout = IN_A_LOG,
        known: "KnownKeys | None" = None,
    ) -> "SegmentWriter":
        """Returns the log of a stream that has one, for a connection whose clock is `now_ms`."""
        # Imported here: few streams have a log, and each import lengthens the cold start.
        from handlers.store.segment_writer import SegmentWriter

        table = Table(self._dynamodb, self._events_table)
        ports = (table, self._objects, self._dead_letters, now_ms)
        return SegmentWriter(*ports, stream_id, fence, window_ms, keep_days, epochs, layout, self._sleep, known)

    def switch_to_log(self, stream_id: str, now_ms: int) -> ControlRecord:
        """Sends the stream's events to a log from now on, and returns the record; earlier events stay items.

        A stream whose items have no order stays as it is.
        """
        # Imported here: few streams have a log, and each import lengthens the cold start.
        from handlers.store.segment_reader import anchor_write, log_start_number

        record = self.read(stream_id)
        if record.layout.partitions == LOG or record.layout.order == "none":
            return record
        # The log must know where it begins before anything is appended.
        behind = log_start_number(Layout(LOG, since_ms=now_ms))
        Table(self._dynamodb, self._events_table).put(*anchor_write(stream_id, behind))
        return self._change(stream_id, *control_writes.switch_to_log(record.layout.partitions, now_ms)).record

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, stream_id: str) -> ControlRecord:
        """Returns the control record as it is now, read consistently; an empty one if there is none."""
        return self._to_record(self._table.get(stream_id, "lease"))

    def read_lease(self, stream_id: str) -> Lease:
        """Returns the lease as it is now, read consistently; an empty one if there is none."""
        return self.read(stream_id).lease

    # --- claiming -----------------------------------------------------------------------------------------------------

    def claim(
        self,
        stream_id: str,
        *,
        execution: str,
        holder: str,
        after_fence: int = 0,
        turn: Item | None = None,
        try_until_ms: int = 0,
        **more: Any,
    ) -> Reply:
        """Returns the reply to the claim, whose parameters `control_writes.claim` explains.

        `turn` has the `mark_values` of a turn that the claim takes with it, if no connection is open and none has
        claimed since `after_fence`.
        """
        words = control_writes.claim(execution, holder, after_fence=after_fence, try_until_ms=try_until_ms, **more)
        try:
            return self._claim_with_turn(stream_id, words, holder, after_fence, turn, try_until_ms)
        except StoreUnavailable as lost:
            # The claim may have been made although its answer was lost. The holder's unique name shows that.
            with contextlib.suppress(StoreUnavailable):
                record = self.read(stream_id)
                if _is_claimed_by(record.lease, holder, after_fence):
                    return Reply(True, record)
            raise lost

    def _claim_with_turn(
        self, stream_id: str, words: Write, holder: str, after_fence: int, turn: Item | None, try_until_ms: int
    ) -> Reply:
        """Returns the reply to the claim, with the turn if that is free."""
        if turn is not None:
            reply = self._change(stream_id, *control_writes.with_turn(words, turn, after_fence))
            # A refused claim may have been made by an earlier request whose answer was lost.
            if reply.is_done or _is_claimed_by(reply.record.lease, holder, after_fence):
                return Reply(True, reply.record)
        reply = self._change(stream_id, *words)
        has_tried = 0 < try_until_ms == reply.record.rest.until_ms
        if has_tried and _is_claimed_by(reply.record.lease, holder, after_fence):
            return Reply(True, reply.record)  # an earlier request took the try
        return reply

    # --- connecting ---------------------------------------------------------------------------------------------------

    def take_turn(
        self, stream_id: str, fence: int, expires_at_ms: int, now_ms: int, *, request_id: str = "", over: int = 0
    ) -> Reply:
        """Returns the reply; its connected token is `fence` if the turn was taken.

        For "forbids" only. Connection `over` is known to be over, 0 for none.
        """
        marked = mark_values(fence, expires_at_ms, request_id)
        return self._change(stream_id, *control_writes.turn(marked, now_ms, over))

    def renew(self, stream_id: str, fence: int, expires_at_ms: int) -> Reply:
        """Returns the reply to a renewal that writes nothing else: for a turn whose upstream has not answered yet."""
        return self._change(stream_id, *control_writes.renewal(fence, expires_at_ms, {}))

    def mark_connected(
        self,
        stream_id: str,
        fence: int,
        expires_at_ms: int,
        *,
        request_id: str = "",
        shown: Item | None = None,
        rest: Change | None = None,
    ) -> Reply:
        """Returns the reply; refused if a newer connection is connected already, or the lease is gone.

        `shown` are the attributes that change with the newest connection. The reply has the record before the mark.
        `rest` is written only if its condition holds, the mark in either case.
        """
        words = control_writes.connect(mark_values(fence, expires_at_ms, request_id), shown or {})
        return self._change_with(stream_id, words, rest and words.with_change(rest), "ALL_OLD")

    # --- while it is connected, and after -----------------------------------------------------------------------------

    def heartbeat(
        self, stream_id: str, fence: int, expires_at_ms: int, shown: Item, rest: Change | None = None
    ) -> Reply:
        """Returns the reply; refused if a newer connection is connected, or this one is closed.

        `shown` are the attributes that change: the connection's record, and the cursor if it has moved. `rest` is
        written only if its condition holds, everything else in either case.
        """
        words = control_writes.renewal(fence, expires_at_ms, shown)
        return self._change_with(stream_id, words, rest and words.with_change(rest))

    def release(self, stream_id: str, fence: int, shown: Item, rest: Change | None = None) -> Reply:
        """Returns the reply; `shown` is written if no newer connection is connected, the mark always.

        `shown` is as for a heartbeat. Without it one request is made: if the connection knows of a newer one, the other
        write would be refused. `rest` is written if its condition holds, no connection has claimed since, and no stop
        is requested.
        """
        if shown:
            words = control_writes.final_release(fence, shown)
            reply = self._change_with(stream_id, words, rest and control_writes.with_rest_change(words, rest))
            if reply.is_done:
                return reply
        return self._change(stream_id, *control_writes.release(fence))

    def replace_cursor(self, stream_id: str, read: ControlRecord, cursor: str, fence: int, now_ms: int) -> bool:
        """Returns whether `cursor` has replaced one that connection `fence` saved and the upstream no longer accepts.

        Only for a connection that was never connected: a connected connection saves its own cursor. So the new cursor
        keeps the other connection's name, and is written only if the cursor is still as it was `read`.
        """
        return self._change(stream_id, *control_writes.cursor_replacement(read, cursor, fence, now_ms)).is_done

    def change_rest(self, stream_id: str, before: Backoff, after: Backoff, holder: str) -> bool:
        """Returns whether the back-off was `before` and is `after` now; `holder` names this invocation alone."""
        condition, attributes, read = rest_change(before, after, holder)
        return self._change(stream_id, set_clause(tuple(attributes)), condition, values_of(attributes) | read).is_done

    def begin_epoch(self, stream_id: str, before: Epoch, after: Epoch) -> Epoch:
        """Returns the newest epoch of the stream's keys: `after` if it was `before`, else the stored one."""
        condition, values = "attribute_not_exists(#epoch)", {":epoch": control_record.epoch_value(after)}
        if before != NO_EPOCH:
            condition, values[":before"] = "#epoch = :before", control_record.epoch_value(before)
        return self._change(stream_id, "SET #epoch = :epoch", condition, values).record.epoch

    def request_repair(self, stream_id: str, now_ms: int, after_ms: int) -> None:
        """Requests the repair of a stream's gaps; one of them is about to be written."""
        # Imported here: few profiles have a repair, and each import lengthens the cold start.
        from handlers.repair.work import RepairWork

        RepairWork(self._dynamodb, self._control_table).request(stream_id, now_ms, now_ms + after_ms)
        self._start_repair(stream_id)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _change_with(self, stream_id: str, words: Write, with_rest: Write | None, answer: str = "ALL_NEW") -> Reply:
        """Returns the reply to the write with the change of the back-off, or without it if that is refused."""
        if with_rest is not None:
            reply = self._change(stream_id, *with_rest, answer)
            if reply.is_done:
                return reply
        return self._change(stream_id, *words, answer)

    def _change(self, stream_id: str, update: str, condition: str, values: Item, answer: str = "ALL_NEW") -> Reply:
        """Returns the reply to one conditional write of the control record."""
        key = typed_values.item_key(stream_id, "lease")
        is_done, item = self._table.try_update(key, update, condition, values, answer=answer)
        if not is_done and (problem := control_record.layout_problem(item)):
            raise StoreUnavailable(problem)
        return Reply(is_done, self._to_record(item))

    def _to_record(self, item: Item | None) -> ControlRecord:
        """Returns the record of the item; a stream in a group has part of it elsewhere."""
        return to_record(item)


def _is_claimed_by(lease: Lease, holder: str, after_fence: int) -> bool:
    """Returns whether `holder` made the last claim, after it had claimed `after_fence`."""
    # A stream that left a group and joins it again starts over in the same function: its earlier claims do not count.
    is_new = after_fence > 0 or lease.connected_token < lease.fence
    return lease.holder == holder and lease.fence > after_fence and is_new

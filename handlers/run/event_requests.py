"""Stores the events of one invocation's connections, as items or in the stream's log.

It knows the connection before, which may bring the same events with other bodies while it is open. It knows no thread,
socket or clock.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from handlers.connection.effects import Write
from handlers.connection.epochs import NO_EPOCH, NO_ROW, Epochs, epochs_of
from handlers.connection.inputs import LOG, Written
from handlers.connection.lease import Lease
from handlers.connection.steps import Invocation
from handlers.profile.behaviour import Profile
from handlers.store import typed_values
from handlers.store.connection_store import Store
from handlers.store.control_record import ControlRecord
from handlers.store.event_items import DEFAULT_POLICY, StoragePolicy

if TYPE_CHECKING:
    from handlers.store.segment_writer import SegmentWriter


class EventRequests:
    """The requests for the events of one invocation's connections; `log` is the connection's, if the stream has one."""

    def __init__(self, profile: Profile, store: Store, invocation: Invocation, now_ms: Callable[[], int]) -> None:
        self._profile, self._store, self._invocation, self._now_ms = profile, store, invocation, now_ms
        self._policy = DEFAULT_POLICY
        self._epoch, self.row = NO_EPOCH, NO_ROW  # the control record's, and what its next connection continues
        # The connection before, when it opened, and until when it may have been open.
        self._before = self._beside_from_ms = self._beside_until_ms = 0
        self.log: SegmentWriter | None = None

    def begin(self, record: ControlRecord, fence: int) -> None:
        """Makes connection `fence` store its events as the record says, as it is when the cursor is read."""
        profile, layout, lease = self._profile, record.layout, record.lease
        # Where two are forbidden, this one opens once the other is over.
        if profile.overlap != "forbids" and lease.released_token < lease.connected_token < fence:
            self._before, self._beside_until_ms = lease.connected_token, lease.expires_at_ms
        self._epoch, conflict, live = record.epoch, profile.key_conflict, record.live or {}
        is_shown = typed_values.read_int(live, "fence") == lease.connected_token
        self._beside_from_ms = typed_values.read_int(live, "opened_ms") or 0 if is_shown else 0
        row = typed_values.read_text(live, "row") or ""
        epochs = None if conflict is None else epochs_of(conflict, record.epoch, row)
        self.row = NO_ROW if epochs is None else epochs.row
        self.log = None
        # A log has no bodies at hand: without their checksums, ids that start over would go unnoticed.
        if layout.partitions == LOG:
            self.switch_to_log(record, fence, epochs)
        else:
            self._policy = StoragePolicy(layout.partitions, profile.keep_days, conflict, layout.order, epochs)

    def record_resumption(self, *, is_asked: bool) -> None:
        """Learns whether the connection requests what came after a cursor."""
        epochs = self._policy.epochs if self.log is None else self.log.epochs
        if epochs is not None:
            epochs.is_resumed = is_asked

    def apply_lease(self, lease: Lease) -> None:
        """Learns from the lease whether the connection before is released."""
        if self._before <= lease.released_token:
            self._beside_until_ms = min(self._beside_until_ms, self._now_ms())

    def write(self, step: Write) -> Written:
        """Stores the events. An epoch that they began is recorded after them, so the next connection finds both."""
        stream_id, log = self._invocation.stream_id, self.log
        is_beside = step.events[0].received_at_ms < self._beside_until_ms
        epochs = self._policy.epochs if log is None else log.epochs
        if epochs is not None:
            epochs.beside_ms = self._beside_from_ms if is_beside else None
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
        lost, from_ms = epochs.take_lost(step.first + len(step.events))
        self.row = NO_ROW if epochs.is_beside else epochs.row
        return replace(written, is_beside=epochs.is_beside and written.conflicts > 0, lost=lost, lost_from_ms=from_ms)

    def _written_beside(self, step: Write, items: Written) -> Written:
        """Returns what was stored in all, if some of the events were refused as items.

        A connection that writes to the log already has promised some of them, and may have died before it appended
        them.
        """
        self.switch_to_log(self._store.read(self._invocation.stream_id), step.fence)
        if self.log is None:
            return items
        logged = self.log.write(step.first, step.events, step.came_ms)
        stored, dead_lettered = items.stored + logged.stored, items.dead_lettered + logged.dead_lettered
        return Written(stored, len(step.events) - stored - dead_lettered, dead_lettered, items.conflicts)

    def switch_to_log(self, record: ControlRecord, fence: int, epochs: Epochs | None = None) -> None:
        """Makes connection `fence` write to the stream's log from now on, if the record has one."""
        if record.layout.partitions == LOG and self.log is None:
            self.log = self._store.log_writer(
                self._invocation.stream_id,
                fence,
                self._now_ms,
                window_ms=self._profile.dedup_window_ms,
                keep_days=self._profile.keep_days,
                epochs=epochs,
                layout=record.layout,
            )

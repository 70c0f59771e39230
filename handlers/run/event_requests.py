"""Decides which requests store the events of one connection, as items or in the stream's log, and count its budgets.

Invariant: an epoch that events began is recorded after them, so the next connection finds both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from handlers.connection.effects import Write
from handlers.connection.epochs import NO_EPOCH, Epochs, epochs_of
from handlers.connection.inputs import LOG, Written
from handlers.connection.lease import Lease
from handlers.connection.spending import DAY_MS
from handlers.connection.steps import Invocation
from handlers.errors import StoreUnavailable
from handlers.profile.behaviour import Profile
from handlers.store import typed_values
from handlers.store.connection_store import Store
from handlers.store.control_record import ControlRecord
from handlers.store.event_items import DEFAULT_POLICY, StoragePolicy

if TYPE_CHECKING:
    from handlers.store.segment_writer import SegmentWriter

# How often a connection adds to the budgets that it shares with other streams.
SHARED_EVERY_MS = 60_000


class EventRequests:
    """The requests for the events of one invocation's connections; `log` is the connection's, if the stream has one."""

    def __init__(self, profile: Profile, store: Store, invocation: Invocation, now_ms: Callable[[], int]) -> None:
        self._profile, self._store, self._invocation, self._now_ms = profile, store, invocation, now_ms
        self._policy = DEFAULT_POLICY
        self._epoch = NO_EPOCH  # the control record's, as far as is known
        self.log: SegmentWriter | None = None

    def begins(self, record: ControlRecord) -> None:
        """Makes the connection that has claimed the stream store its events as the record says."""
        profile, layout = self._profile, record.layout
        self._epoch, conflict = record.epoch, profile.key_conflict
        epochs = None if conflict is None else epochs_of(conflict, record.epoch)
        # A log has no bodies at hand: it keeps their checksums if the profile wants conflicts noticed.
        compares = epochs if conflict == "epoch" else None
        self.log = None
        if layout.partitions == LOG:
            self.goes_to_log(record, record.lease.fence, compares)
        else:
            self._policy = StoragePolicy(layout.partitions, profile.keep_days, conflict, layout.order, epochs)

    def write(self, step: Write) -> Written:
        """Stores the events. An epoch that they began is recorded after them, so the next connection finds both."""
        stream_id, log = self._invocation.stream_id, self.log
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
        self.goes_to_log(self._store.read(self._invocation.stream_id), step.fence)
        if self.log is None:
            return items
        logged = self.log.write(step.first, step.events)
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


class SpendingRequests:
    """The requests for the budgets of one invocation's stream; nothing without a budget."""

    def __init__(self, profile: Profile, store: Store, invocation: Invocation, now_ms: Callable[[], int]) -> None:
        self._profile, self._store, self._invocation, self._now_ms = profile, store, invocation, now_ms
        self._before: tuple[int, str] | None = None  # the connection whose spending is to be settled, and as known
        # For each shared budget: when the connection last added what it has stored, and how much that was.
        self._shared: dict[str, tuple[int, tuple[int, int]]] = {}

    def follows(self, record: ControlRecord) -> None:
        """Remembers the newest connection, which `record` shows: its spending is to be settled."""
        live = record.live or {}
        if self._profile.budget is not None and (fence := typed_values.count(live, "fence")):
            self._before = fence, typed_values.text(live, "spending") or ""

    def settled(self, lease: Lease) -> tuple[str, str] | None:
        """Returns the spending of the connection before as it was known, and as it ended: once, when it has ended."""
        if self._before is None or self._before[0] > lease.released_token:
            return None
        fence, known = self._before
        final = self._store.ledger.spending(self._invocation.stream_id, fence)
        self._before = None
        return known, final

    def shares(self, counted: tuple[int, int], *, is_last: bool = False) -> tuple[int, str] | None:
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

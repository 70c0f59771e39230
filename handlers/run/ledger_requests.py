"""Decides which requests record a connection in the ledger, and which count what it stores for its budgets."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from handlers.connection.effects import Progress, RecordGaps
from handlers.connection.inputs import GapsRecorded
from handlers.connection.lease import Lease
from handlers.connection.spending import DAY_MS
from handlers.connection.steps import Invocation
from handlers.errors import StoreUnavailable
from handlers.profile.behaviour import Profile
from handlers.store import ledger_records, typed_values
from handlers.store.connection_store import Store
from handlers.store.control_record import ControlRecord
from handlers.store.typed_values import Item

# How often a connection adds to the budgets that it shares with other streams.
SHARED_EVERY_MS = 60_000
# Returns the answer to a step, None if it needs none. Raises StoreUnavailable.
Request = Callable[[], Any]


class LedgerRequests:
    """The requests for the records of one invocation's connections.

    `last_searched` is the connection that recorded gaps, if the control record lacks it.
    """

    def __init__(self, profile: Profile, store: Store, invocation: Invocation, now_ms: Callable[[], int]) -> None:
        self._profile, self._store, self._invocation, self._now_ms = profile, store, invocation, now_ms
        self._row: Item = {}  # the connection's own record, as it was last written in either place
        self._unsaved: Progress | None = None  # the same, if the ledger has refused it
        self._kept: Item | None = None  # the predecessor's record as this connection has written it
        self.last_searched: int | None = None

    def keep(self, record: ControlRecord) -> None:
        """Writes the newest connection into the ledger: it may be killed, and the control record soon shows another."""
        live = record.live
        if live is not None and "closed_ms" not in live and live != self._kept:
            self._store.ledger.save(self._invocation.stream_id, live)
            self._kept = live

    def requests_to_retry(self) -> list[Request]:
        """Returns what is tried again before an answered connection lets go: nothing else would record how it ended."""
        return [] if self._unsaved is None else [functools.partial(self.save, self._unsaved)]

    def row(self, progress: Progress) -> Item:
        """Returns the connection's record for the ledger."""
        who = self._invocation
        self._row = ledger_records.connection_item(
            progress, lane=who.lane, execution=who.execution, request_id=who.request_id
        )
        if self._store.memory_mb is not None:
            # An upgrade compares it with that of the former version (handlers/upgrade/health.py).
            self._row["memory_mb"] = typed_values.number_value(self._store.memory_mb())
        return self._row

    def save(self, progress: Progress) -> None:
        """Writes the connection's record."""
        self._unsaved = progress
        self._store.ledger.save(self._invocation.stream_id, self.row(progress))
        self._unsaved, self._kept = None, self._row

    def repair_requests(self) -> list[Request]:
        """Returns the request for the repair of a gap, which precedes the gap; none if the profile has no repair.

        A kill in between leaves a request without a gap, but never a gap without a request.
        """
        repair = self._profile.repair
        if repair is None:
            return []
        stream_id = self._invocation.stream_id
        return [lambda: self._store.request_repair(stream_id, self._now_ms(), repair.after_ms)]

    def record_gaps(self, step: RecordGaps, last_searched: int) -> GapsRecorded:
        """Records the gaps; connection `last_searched` has searched for them before."""
        now_ms, repair, ledger = self._now_ms(), self.repair_requests(), self._store.ledger
        on_open, stream_id = repair[0] if repair else None, self._invocation.stream_id
        recorded = ledger.record_gaps(
            stream_id, now_ms, step.dead_after_ms, self._row, last_searched, on_open, has_open_gap=step.again
        )
        self.last_searched = typed_values.read_int(self._row, "fence")
        return recorded


class SpendingRequests:
    """The requests for the budgets of one invocation's stream; nothing without a budget."""

    def __init__(self, profile: Profile, store: Store, invocation: Invocation, now_ms: Callable[[], int]) -> None:
        self._profile, self._store, self._invocation, self._now_ms = profile, store, invocation, now_ms
        self._before: tuple[int, str] | None = None  # the connection whose spending is to be settled, and as known
        # For each shared budget: when the connection last added what it has stored, how much that was, and how many
        # percent were used then.
        self._shared: dict[str, tuple[int, tuple[int, int], int]] = {}

    def begin_after(self, record: ControlRecord) -> None:
        """Begins the count of another connection; that of the newest one, which `record` shows, is to be settled."""
        live, self._shared = record.live or {}, {}
        if self._profile.budget is not None and (fence := typed_values.read_int(live, "fence")):
            self._before = fence, typed_values.read_text(live, "spending") or ""

    def take_settled(self, lease: Lease) -> tuple[str, str] | None:
        """Returns the spending of the connection before as it was known, and as it ended: once, when it has ended."""
        if self._before is None or self._before[0] > lease.released_token:
            return None
        fence, known = self._before
        final = self._store.ledger.read_spending(self._invocation.stream_id, fence)
        self._before = None
        # The release of a killed connection by another one says nothing about what it has stored.
        return (known, final) if final else None

    def add_to_shared(self, counted: tuple[int, int], *, is_last: bool = False) -> tuple[int, int, str] | None:
        """Adds what the connection has stored to the shared budgets; returns `wide` of LeaseRead.

        It does so once a minute and for each hundredth of the budget, and only if something was stored since. If the
        table refuses, it adds the same the next time.
        """
        now_ms = self._now_ms()
        for one in () if self._profile.budget is None else self._profile.budget.shared:
            added_ms, added, _ = self._shared.get(one.owner, (0, (0, 0), 0))
            more = (counted[0] - added[0], counted[1] - added[1])
            is_due = is_last or now_ms - added_ms >= SHARED_EVERY_MS or one.percent(*more) > 0
            if not is_due or (added_ms and added == counted):
                continue
            whose = one.owner if one.owner == "stage" else f"{one.owner}:{self._profile.name}"
            with contextlib.suppress(StoreUnavailable):
                used = self._store.ledger.add_spending(whose, now_ms // DAY_MS, *more)
                self._shared[one.owner] = now_ms, counted, one.percent(*used)
        # A budget that was not read now is still used as much, until the day is over.
        known = [(at_ms // DAY_MS, percent, whose) for whose, (at_ms, _, percent) in self._shared.items()]
        return max(known, default=None)

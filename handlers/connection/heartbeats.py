"""Decides when an open connection renews its lease or reads it, and what it writes then.

    0 s       marked as connected        the next heartbeat is due `progress_every_ms` later
    0.2 s     the first event is stored  a heartbeat at once: before the first cursor a kill has nothing to resume from
    20.2 s    the next heartbeat         it renews the lease, saves record and cursor, and its answer is the lease
    780 s     a successor may be coming  from here on the lease is read between two heartbeats

Once a newer connection is connected, the lease belongs to that one: this one only reads it, and writes its own record.
"""

from __future__ import annotations

from handlers.connection import ends
from handlers.connection.effects import Effect, Heartbeat, SaveRecord
from handlers.connection.ends import End
from handlers.connection.lease import Lease
from handlers.connection.lifetime import Lifetime
from handlers.connection.record import Record
from handlers.connection.steps import Invocation


class Heartbeats:
    """The heartbeats of one connection of `invocation`."""

    def __init__(self, invocation: Invocation) -> None:
        self._lease_every_ms, self._every_ms = invocation.lease_every_ms, invocation.progress_every_ms
        # About when the wait of the successor's lane is over.
        leaves_ms = invocation.deadline_ms - invocation.overlap_max_ms - 2 * invocation.margin_ms
        self._watches_from_ms = leaves_ms - invocation.lease_every_ms

    def next_read_ms(self, now_ms: int, record: Record, lease: Lease) -> int:
        """Returns when the lease is next renewed or read: sooner once a successor is due or has come."""
        next_ms = now_ms + self._lease_every_ms
        if lease.connected_token > record.fence:
            return next_ms
        heartbeat_ms = record.saved_at_ms + self._every_ms
        return max(now_ms, min(next_ms, heartbeat_ms) if next_ms >= self._watches_from_ms else heartbeat_ms)

    def due(self, now_ms: int, record: Record, lifetime: Lifetime, lease: Lease) -> list[Effect] | End:
        """Returns the due writes: a heartbeat, and once the gaps before it; or the end, if its budget is used up."""
        if record.opened_ms is None:
            return []
        if record.account is not None and (pause_s := record.account.pauses_s(now_ms)) is not None:
            return ends.paused(pause_s)
        is_holder, pending = lease.connected_token <= record.fence, record.pending
        # Until the first cursor is saved, a kill would leave nothing to resume from.
        is_due = now_ms - record.saved_at_ms >= self._every_ms
        if not (is_due or (pending.saved is None and pending.is_first and is_holder)):
            return []
        # A predecessor that is still silent must be dead by now, so the gap before this connection is known.
        is_known = now_ms - record.opened_ms > lifetime.ttl_ms
        progress = record.save(now_ms, is_open=True)
        gaps = record.gaps(lifetime.ttl_ms) if is_known else []
        if not is_holder:
            return [SaveRecord(progress), *gaps]
        return [Heartbeat(pending.take(), progress, lifetime.expires_at_ms(now_ms)), *gaps]

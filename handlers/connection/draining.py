"""Decides when a connection that leaves has ended, and as what.

Two questions, one after the other. Is it *drained*: is the upstream closed, and is every event that was read stored?
And why did it close? A connection that left for a reason of its own ends for that reason. One that was closed asks the
lease: a successor that is connected means taken over; one that has claimed and may yet connect is watched for a moment.

    40 ms   Closed("ended_by_upstream")     drained at once; the lease says that connection 4 has claimed
    140 ms  LeaseRead(4 is connected)       taken over
    2.04 s  nothing until now               dropped: connection 4 did not connect

It knows no clock and no effect, and not why a connection leaves. Invariant: a connection has no outcome before it
leaves, and is drained only once.
"""

from __future__ import annotations

from handlers.connection import ends
from handlers.connection.effects import Outcome
from handlers.connection.record import Record

# How long a closed connection watches a successor that claimed and has not connected. An upstream that evicts answers
# the newer connection first, so its mark is on the way; one that forbids two is asked only after the release, so a
# connect more.
WATCH_MS = 2_000


class Draining:
    """The end of one connection; `connect_ms` is how long a successor may take to connect once this one is released."""

    def __init__(self, connect_ms: int) -> None:
        self.watch_ms = WATCH_MS + connect_ms
        self.asks_lease = False
        self.until_ms: int | None = None  # None before it leaves
        self._outcome: Outcome | None = None
        self._is_closed = False

    @property
    def outcome(self) -> Outcome:
        """Returns its own reason to end, whatever the lease says."""
        assert self._outcome is not None
        return self._outcome

    def ends_as(self, outcome: Outcome, *, asks_lease: bool) -> None:
        """Records why it ends, and whether the lease may explain that otherwise."""
        self._outcome, self.asks_lease = outcome, asks_lease

    def begins(self, until_ms: int, *, has_asked: bool) -> None:
        """Records that reading has ended; the upstream is open only where it was asked."""
        self.until_ms = until_ms
        self._is_closed = self._is_closed or not has_asked

    def closes(self) -> bool:
        """Records that the upstream is closed; returns whether it was not before."""
        was_closed, self._is_closed = self._is_closed, True
        return not was_closed

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can come of the upstream."""
        return self._is_closed

    def is_drained(self, record: Record) -> bool:
        """Returns whether all that was read is stored, and nothing more can come."""
        return self._is_closed and record.pending.is_stored

    def timed_out(self, now_ms: int, record: Record) -> Outcome | None:
        """Returns its end once there is no time left to wait for more; None before."""
        if self.until_ms is None or now_ms < self.until_ms:
            return None
        return self.outcome if self.is_drained(record) else ends.NOT_DRAINED

"""Decides when a connection renews its lease, and when it leaves: near its function's deadline, at the end of its
overlap, to move away from another hot connection's deadline, or because another may open and the upstream forbids two.

The margin before the deadline has two halves. In the first half a successor that is just connecting may still take
over; in the second the connection stores what it has read. When a quarter of the margin is left, it gives up what is
not stored.

Two hot connections that began together, for example after an outage, would reach their deadlines together. So the older
one leaves early, once: half a life after the newer one connected. From then on they are half a life apart.

Times are integer milliseconds that the caller passes. Invariant: a connection leaves between its claim and its
deadline, and a hot one never while the newer one is about to leave.
"""

from __future__ import annotations

from handlers.connection import ends
from handlers.connection.effects import Effect, Heartbeat, SaveRecord
from handlers.connection.ends import End
from handlers.connection.lease import FINAL_ENDINGS, Lease, LeaseView, is_superseded
from handlers.connection.record import Record
from handlers.connection.steps import Invocation
from handlers.profile.behaviour import Profile

# Connections less than a quarter of a life apart are moved apart. Half a life apart they stay, however long starts
# take.
NEAR, APART = 4, 2


def separate_at_ms(claimed_ms: int, leave_at_ms: int, newer_ms: int) -> int | None:
    """Returns when the older of two hot connections leaves early; None if they are far enough apart.

    It claimed at `claimed_ms`, would leave at `leave_at_ms` and first saw the newer one connected at `newer_ms`.
    """
    life_ms = leave_at_ms - claimed_ms
    if newer_ms - claimed_ms >= life_ms // NEAR:
        return None
    return newer_ms + life_ms // APART


def longest_overlap_ms(life_ms: int, wait_ms: int, margin_ms: int, lease_every_ms: int) -> int:
    """Returns the longest overlap that leaves no gap; below 0 if even no overlap may be too long.

    A function's life of `life_ms` covers its predecessor's overlap and the other lane's whole wait. Subtract its
    margin, the reading of the lease that begins an overlap, and half a margin (in whole seconds) for two connects: what
    is left is the longest overlap.
    """
    return life_ms - wait_ms - margin_ms - lease_every_ms - margin_ms // 2_000 * 1_000


class Lifetime:
    """How long one connection of `invocation` lives; it counts as connected for `ttl_ms` after each renewal.

    A hot connection stays open beside the other lane's.
    """

    def __init__(self, profile: Profile, invocation: Invocation) -> None:
        self._deadline_ms = deadline_ms = invocation.deadline_ms
        margin_ms = invocation.margin_ms
        self._leave_at_ms = deadline_ms - margin_ms
        self._last_ms = deadline_ms - margin_ms // 2
        self._spare_ms = margin_ms // 4
        self.ttl_ms = invocation.lease_ttl_ms
        # A newer connection whose lease lasts this long will stay: while it renews, its lease lasts far longer.
        self._stays_ms = min(self._spare_ms, self.ttl_ms // 2)
        # A longer overlap would leave its lane too late for its next turn.
        self._overlap_ms = min(profile.overlap_ms, invocation.overlap_max_ms)
        self._is_exclusive = profile.overlap == "forbids"
        # No other connection repeats a request that must be made only once, so such a connection reads on.
        self._gives_up_turn = self._is_exclusive and profile.again
        self._is_hot = profile.standby == "hot"
        self._execution = invocation.execution
        self._claimed_ms = 0
        self._is_expiring = False
        self.overlap_ends_ms: int | None = None  # None unless it is taken over
        self._has_stayed = False
        self._beside = 0  # the newest connection that was seen connected beside this one
        self._separate_at_ms: int | None = None
        self._is_separating = False
        self._expires_at_ms = 0
        self._runs_out_ms: int | None = None  # when to close unless the turn was renewed, if the upstream forbids two
        self._has_asked_ms = 0  # for which of these instants the lease was read once more
        self.alarm_ms = self._leave_at_ms  # when `is_turn_due`, `must_leave` or another is due

    def begin(self, now_ms: int) -> None:
        """Records the instant of the claim."""
        self._claimed_ms = now_ms

    def end_by_lease(self, now_ms: int, lease: Lease, view: LeaseView) -> End | None:
        """Returns how the connection ends, given the lease that it has just read; None if it stays.

        `overlap_ends_ms` then says whether it overlaps with a newer one.
        """
        if self.is_relieved(now_ms, lease, view):
            return End(ends.outcome_of_takeover(lease, self.is_superseded(lease)), "taken_over")
        if view is LeaseView.CLAIMED and self._is_exclusive:
            return End(ends.LET_GO, "let_go", should_check_lease=True)
        if self.is_turn_expiring(now_ms, lease):
            return ends.NOT_RENEWED
        return ends.AT_DEADLINE if self.may_leave(now_ms, lease, view) else None

    def is_turn_expiring(self, now_ms: int, lease: Lease) -> bool:
        """Returns whether the turn that the connection has by `lease` may soon be another's, so that it must close."""
        if not self._gives_up_turn:
            return False
        # Once the lease has run out by its own clock, which may be ahead, another function opens. So half a lease
        # before, this connection closes: as long as clocks differ by less, the upstream never sees two. A lease that
        # lasts to the deadline need not be renewed, because the connection leaves before.
        is_lasting = lease.expires_at_ms >= self._deadline_ms
        self._runs_out_ms = None if is_lasting else lease.expires_at_ms - self.ttl_ms // 2
        self._set_alarm()
        return self._runs_out_ms is not None and now_ms >= self._runs_out_ms

    def is_turn_due(self, now_ms: int) -> bool:
        """Returns whether to read once more whether the turn was renewed; `is_turn_expiring` then decides."""
        if self._runs_out_ms is None or now_ms < self._runs_out_ms or self._has_asked_ms == self._runs_out_ms:
            return False
        self._has_asked_ms = self._runs_out_ms
        self._set_alarm()
        return True

    def is_relieved(self, now_ms: int, lease: Lease, view: LeaseView) -> bool:
        """Returns whether it was taken over and its overlap is over; `overlap_ends_ms` is None if it stays."""
        if view is LeaseView.TAKEN_OVER and not self.should_stay(lease):
            if self.overlap_ends_ms is None:
                self.begin_overlap(now_ms, lease)
            return self.overlap_ends_ms is not None and now_ms >= self.overlap_ends_ms
        # The newer one is closed again, so this one stays, unless the stream is over because the upstream has ended or
        # refused it for the newer one.
        if self.overlap_ends_ms is not None and lease.ending not in FINAL_ENDINGS:
            self.cancel_overlap()
        return self.overlap_ends_ms is not None

    def begin_overlap(self, now_ms: int, lease: Lease) -> None:
        """Records that it was taken over and reads on for its overlap, or until it would leave anyway.

        Beside connections of another execution it overlaps only once: that execution's other lane may be about to open
        a third.
        """
        overlap_ms = 0 if self._has_stayed and self.is_superseded(lease) else self._overlap_ms
        self.overlap_ends_ms = min(now_ms + overlap_ms, self._leave_at_ms)
        self._set_alarm()

    def cancel_overlap(self) -> None:
        """Records that the newer connection is closed again: this one stays as if it had never come."""
        self.overlap_ends_ms, self._has_stayed = None, True
        self._set_alarm()

    def _set_alarm(self) -> None:
        first_ms = self._leave_at_ms
        if self.overlap_ends_ms is not None:
            first_ms = min(self.overlap_ends_ms, first_ms)
        elif self._separate_at_ms is not None and not self._is_separating:
            first_ms = min(self._separate_at_ms, first_ms)
        if self._runs_out_ms is not None and self._runs_out_ms != self._has_asked_ms and self.overlap_ends_ms is None:
            first_ms = min(self._runs_out_ms, first_ms)
        self.alarm_ms = first_ms

    def is_reread_due(self, now_ms: int) -> bool:
        """Returns whether the overlap is over and time is left to read the lease once more before leaving."""
        return self.overlap_ends_ms is not None and self.overlap_ends_ms <= now_ms < self._last_ms

    def must_leave(self, now_ms: int) -> bool:
        """Returns whether the connection leaves at once, whatever the lease says."""
        return now_ms >= self._leave_at_ms

    def is_read_due(self, now_ms: int) -> bool:
        """Returns whether the connection reads the lease now; `may_leave` then decides whether it leaves."""
        if now_ms >= self._leave_at_ms and not self._is_expiring:
            self._is_expiring = True
            self._leave_at_ms = self._last_ms
            self._set_alarm()
            return True
        asks = self._separate_at_ms is not None and not self._is_separating and now_ms >= self._separate_at_ms
        self._is_separating = self._is_separating or asks
        self._set_alarm()
        return asks

    def may_leave(self, now_ms: int, lease: Lease, view: LeaseView) -> bool:
        """Returns whether `lease`, whose view for this connection is `view`, lets it leave before it must.

        At its margin it may leave unless a successor is on the way; another execution that has claimed the stream
        counts as one. The older of two hot connections leaves first. If the newer is about to leave, the older waits
        for the newer one's successor.
        """
        if not self.should_stay(lease):
            return self._is_expiring and view is LeaseView.HOLDER and not self.is_superseded(lease)
        if view is not LeaseView.TAKEN_OVER or lease.expires_at_ms <= now_ms + self._stays_ms:
            return False
        if self._beside != lease.connected_token and not self._is_expiring:
            self._beside = lease.connected_token
            self._separate_at_ms = separate_at_ms(self._claimed_ms, self._leave_at_ms, now_ms)
            self._is_separating = False
            self._set_alarm()
        return self._is_expiring or (self._separate_at_ms is not None and now_ms >= self._separate_at_ms)

    def should_stay(self, lease: Lease) -> bool:
        """Returns whether it stays although it was taken over: both hot lanes of an execution stay connected."""
        return self._is_hot and not self.is_superseded(lease)

    def is_superseded(self, lease: Lease) -> bool:
        """Returns whether another execution has claimed the stream since."""
        return is_superseded(lease, self._execution)

    def expires_at_ms(self, now_ms: int) -> int:
        """Returns until when the connection counts as connected if its lease is renewed now.

        The lease of a hot connection does not outlast its stay, so that the older of two can see whether the newer is
        about to leave.
        """
        until_ms = now_ms + self.ttl_ms
        # A renewal to an earlier instant would be refused together with its cursor. So a clock that is set back must
        # not shorten it.
        self._expires_at_ms = max(self._expires_at_ms, min(until_ms, self._last_ms) if self._is_hot else until_ms)
        return self._expires_at_ms

    def drain_until_ms(self, now_ms: int) -> int:
        """Returns until when a connection that leaves now may store what it read; a late one has less time."""
        until_ms = self._last_ms + (self._spare_ms if now_ms >= self._last_ms else 0)
        return max(now_ms, until_ms)

    def watch_until_ms(self, now_ms: int, wait_ms: int) -> int:
        """Returns until when a closed connection watches its successor: at most for `wait_ms`."""
        return min(now_ms + wait_ms, max(now_ms, self._last_ms))


class Heartbeats:
    """When one connection of `invocation` renews its lease or reads it, and what it writes then.

        0 s       marked as connected        the next heartbeat is due `progress_every_ms` later
        0.2 s     the first event is stored  a heartbeat at once: before it a kill leaves no cursor to resume from
        20.2 s    the next heartbeat         it renews the lease, saves record and cursor, and its answer is the lease
        780 s     a successor may be coming  from here on the lease is read between two heartbeats

    Once a newer connection is connected, the lease belongs to that one: this one only reads it, and writes its own
    record.
    """

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

    def due_writes(self, now_ms: int, record: Record, lifetime: Lifetime, lease: Lease) -> list[Effect] | End:
        """Returns the due writes: a heartbeat, and once the gaps before it; or the end, if its budget is used up."""
        if record.opened_ms is None:
            return []
        if record.account is not None and (pause_s := record.account.pause_s(now_ms)) is not None:
            return ends.end_for_pause(pause_s)
        is_holder, pending = lease.connected_token <= record.fence, record.pending
        # Until the first cursor is saved, a kill would leave nothing to resume from.
        is_due = now_ms - record.saved_at_ms >= self._every_ms
        is_due = is_due or (record.account is not None and record.account.is_due)
        if not (is_due or (pending.saved is None and pending.has_first_cursor and is_holder)):
            return []
        # A predecessor that is still silent must be dead by now, so the gap before this connection is known.
        is_known = now_ms - record.opened_ms > lifetime.ttl_ms
        progress = record.save(now_ms, is_open=True)
        gaps = record.search_gaps(lifetime.ttl_ms) if is_known else []
        if not is_holder:
            return [SaveRecord(progress), *gaps]
        return [Heartbeat(pending.take_cursor(), progress, lifetime.expires_at_ms(now_ms)), *gaps]

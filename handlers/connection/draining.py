"""Decides how a connection leaves: what it stores and records before its end, and how the lease explains that end.

    close      the upstream is closed; what it had sent may still come
    store      every event that was read is written
    save       the record and the cursor, which pass nothing that a kill could lose
    release    a successor that waited for it reads a cursor that is complete
    finish     with its own reason, or as taken over: an upstream that evicts closes the older connection as it answers
               the newer one, whose mark may be on the way

Where the lease may explain the end, the connection reads it repeatedly, as long as a successor that has claimed may
still connect. Invariant: nothing is released before everything is stored, unless no time is left.
"""

from __future__ import annotations

from handlers.connection import ends
from handlers.connection.effects import CloseUpstream, Effect, Finish, Outcome, Release, ReplaceCursor, SaveRecord
from handlers.connection.ends import End
from handlers.connection.intake import Intake
from handlers.connection.lease import Lease, LeaseView
from handlers.connection.lifetime import Lifetime
from handlers.connection.record import Record
from handlers.profile.behaviour import Profile
from handlers.values import dataclass

# An upstream that evicts has answered the newer connection already, so that one's mark is on the way.
WATCH_MS = 2_000
WATCH_POLL_MS = 100


def watch_ms(profile: Profile) -> int:
    """Returns how long a closed connection of the profile watches a successor that claimed and has not connected."""
    # A successor that waits for the release has yet to connect; one that sends messages first needs time for them.
    connect_ms = profile.connect_timeout_ms if profile.overlap == "forbids" else 0
    return WATCH_MS + connect_ms + sum(one.within_ms for one in profile.subscribe if one.expect)


@dataclass
class Draining:
    """The state of a connection's end, while it leaves or before it does.

    `outcome` is its own reason to end; where `should_check_lease`, the lease may give another. The connection waits
    until `until_ms` (None before it leaves) for what is not stored yet; then it watches its successor for at most
    `watch_ms`, and reads the lease at `lease_due_ms`. Once `is_closed`, nothing more can come from the upstream.
    `again` is whether the profile allows its request to be made twice.
    """

    watch_ms: int
    again: bool = True
    outcome: Outcome = ends.LET_GO
    should_check_lease: bool = False
    until_ms: int | None = None
    lease_due_ms: int | None = None
    is_closed: bool = False

    def is_drained(self, record: Record) -> bool:
        """Whether all that was read is stored, and nothing more can come."""
        return self.is_closed and record.pending.is_stored

    def set_reason(self, end: End, record: Record) -> None:
        """Records why it ends; even while it leaves, bytes that it had read before may give another reason."""
        self.outcome, self.should_check_lease = end.outcome, end.should_check_lease
        record.set_end(end.ended_by, end.outcome)

    def begin(self, now_ms: int, record: Record, intake: Intake, lifetime: Lifetime, has_asked: bool) -> list[Effect]:
        """Returns how the upstream is closed; there is nothing to close unless the connection `has_asked` for it."""
        self.until_ms = lifetime.drain_until_ms(now_ms)
        self.is_closed = self.is_closed or not has_asked
        record.end_reading()
        last_words = intake.closing_messages()
        says = last_words if has_asked and not self.is_closed else []
        return [*says, *([CloseUpstream()] if has_asked else [])]

    def proceed(
        self, now_ms: int, record: Record, intake: Intake, lifetime: Lifetime, lease: Lease, has_turn: bool
    ) -> list[Effect]:
        """Returns what follows once everything that was read is stored; nothing before that.

        `has_turn` is whether the connection took its turn, if an upstream forbids two.
        """
        if self.is_closed and (waited := intake.flush(now_ms, record, is_leaving=True)):
            return waited
        if not self.is_drained(record):
            return []
        if unfinished := intake.take_unfinished(now_ms, record):
            return unfinished
        record.unterminated_bytes = intake.tail_bytes()
        progress, cursor = record.save(now_ms, is_open=False), record.pending.take_cursor()
        # If the request must not be made twice and may have begun, the turn is kept. Otherwise the other lane, which
        # waits for it, would make the request again before the machine learns of this end.
        keeps_turn = not self.again and ends.without_retry(self.outcome, progress) != self.outcome
        # If this connection was never answered, an older one may still be open, and must not count as closed.
        is_released = record.opened_ms is not None or (has_turn and not keeps_turn)
        effects: list[Effect] = [SaveRecord(progress)]
        if cursor is not None and not is_released:
            effects = [ReplaceCursor(cursor, progress)]
        if record.may_show_gaps:
            effects += record.search_gaps(lifetime.ttl_ms, leaves_some=self.should_check_lease)
        if is_released:
            effects.append(Release(cursor, progress, is_relieved=lease.connected_token > record.fence))
        if not self.should_check_lease:
            return [*effects, Finish(self.outcome)]
        self.until_ms = lifetime.watch_until_ms(now_ms, self.watch_ms)
        self.lease_due_ms = None if is_released else now_ms  # the answer to the release is the lease
        return effects

    def finish_if_explained(
        self, now_ms: int, record: Record, lifetime: Lifetime, lease: Lease, view: LeaseView
    ) -> list[Effect]:
        """Returns the end that the lease explains; nothing while a successor that claimed may still connect."""
        if not self.should_check_lease or not self.is_drained(record):
            return []
        takeover = (
            None if lifetime.should_stay(lease) else ends.outcome_of_takeover(lease, lifetime.is_superseded(lease))
        )
        outcome = ends.outcome_by_lease(view, self.outcome, takeover)
        if outcome is None:
            self.lease_due_ms = now_ms + WATCH_POLL_MS
            return []
        if outcome is not takeover:
            return [Finish(outcome)]
        record.set_end("taken_over", outcome)
        return [SaveRecord(record.save(now_ms, is_open=False)), Finish(outcome)]

    def finish_if_overdue(self, now_ms: int, record: Record) -> list[Effect]:
        """Returns the end once the time to explain it is over; nothing before that."""
        if self.until_ms is None or now_ms < self.until_ms:
            return []
        # While events are in flight, the ledger's record stays as it is: it must cover nothing that is not stored.
        return [Finish(self.outcome if self.is_drained(record) else ends.NOT_DRAINED)]

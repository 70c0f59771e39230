"""Decides how a connection ends once it leaves: what it still stores, what it marks, and what its end is called.

The order of the last effects is the promise that nothing is lost: the upstream is closed, every event is stored, then
the cursor is saved, then the connection is marked released (a successor that waited for that reads a complete cursor),
then it ends. Whoever was closed without a reason of its own asks the lease: a successor that is connected means taken
over, one that has claimed and may yet connect is watched for a moment.

It knows no clock, and neither why a connection leaves nor how it came to be. Invariants: the saved cursor belongs to an
event that is stored and that no unstored event precedes; nothing follows a Finish.
"""

from __future__ import annotations

from handlers.connection import ends
from handlers.connection.effects import CloseUpstream, Effect, Finish, MarkReleased, Outcome, RecordGaps, SaveProgress
from handlers.connection.intake import Intake
from handlers.connection.lease import Lease, LeaseView
from handlers.connection.lifetime import Stay
from handlers.connection.phases import HAS_ASKED, LIVE, Phase
from handlers.connection.record import Record
from handlers.profile.behaviour import Profile

SETTLE_POLL_MS = 100
# How long a closed connection watches a successor that claimed and has not connected. An upstream that evicts answers
# the newer connection first, so its mark is on the way; one that forbids two is asked only after the release, so a
# connect more.
SETTLE_MS = 2_000


class Closing:
    """The end of one connection, and what it needs of the life before; the lease vouches for it for `lease_ttl_ms`."""

    def __init__(self, profile: Profile, stay: Stay, lease_ttl_ms: int) -> None:
        self._profile = profile
        self._stay = stay
        self._intake = Intake(profile)
        self._record = Record()
        self._lease = Lease()
        self._has_turn = False
        self._ending: Outcome | None = None
        self._asks_lease = False
        self._settle_until_ms: int | None = None
        self._is_closed = False
        self._gaps_recorded = False
        self.lease_ttl_ms = lease_ttl_ms
        self.phase = Phase.CLAIMING
        self.lease_due_ms: int | None = None

    def expires_at_ms(self, now_ms: int) -> int:
        """Returns until when the lease vouches for this connection if it is renewed now."""
        return self._stay.expires_at_ms(now_ms)

    def _leave(self, now_ms: int, outcome: Outcome | None, ended_by: str, *, ask_lease: bool = False) -> list[Effect]:
        """Stops reading. `outcome` None means: a successor claimed, taken over if it connects, else dropped."""
        self._ending = outcome or ends.LET_GO
        self._asks_lease = ask_lease or outcome is None
        if self.phase is Phase.SETTLING:
            self._record.ending = ended_by
            return []  # the end of the stream was found while draining
        opened = self.phase in HAS_ASKED
        self._is_closed = self._is_closed or not opened
        self.phase = Phase.SETTLING
        self.lease_due_ms = None
        self._settle_until_ms = self._stay.drains_until_ms(now_ms)
        self._record.closes(ended_by)
        return ([CloseUpstream()] if opened else []) + self._drained(now_ms)

    @property
    def _is_drained(self) -> bool:
        return self._is_closed and self._record.pending.is_stored

    def _drained(self, now_ms: int) -> list[Effect]:
        """Returns what follows once all that was read is stored; nothing before."""
        if not self._is_drained:
            return []
        assert self._ending is not None
        if not self._asks_lease:
            return [*self._released(now_ms), Finish(self._ending)]
        wait_ms = SETTLE_MS + (self._profile.connect_timeout_ms if self._profile.overlap == "forbids" else 0)
        self._settle_until_ms = self._stay.settles_until_ms(now_ms, wait_ms)
        self.lease_due_ms = now_ms
        return self._released(now_ms)

    def _released(self, now_ms: int) -> list[Effect]:
        self._record.unterminated_bytes = self._intake.tail_bytes()
        if self._record.opened_ms is None and not self._has_turn:
            return [self._save(now_ms)]  # it must not vouch for an older one that is still open
        return [self._save(now_ms), MarkReleased(self._record.fence), *self._gaps()]

    def _settle(self, now_ms: int, found: LeaseView) -> list[Effect]:
        """Returns the end that the lease explains, or nothing while a successor that claimed may yet connect."""
        if not self._is_drained:
            return []
        assert self._ending is not None
        takeover = None if self._stay.keeps(self._lease) else self._taken_over()
        outcome = ends.explained(found, self._ending, takeover)
        if outcome is None:
            self.lease_due_ms = now_ms + SETTLE_POLL_MS
            return []
        if outcome is not takeover:
            return [Finish(outcome)]
        self._record.ending = "taken_over"
        return [self._save(now_ms), Finish(outcome)]

    def _give_up(self, now_ms: int) -> list[Effect]:
        """Returns the end when nothing explained the close in time; nothing before `_settle_until_ms`."""
        assert self._ending is not None
        if self._settle_until_ms is None or now_ms < self._settle_until_ms:
            return []
        # Where events are in flight the ledger's record stays as it is: it vouches for nothing that is not stored.
        return [Finish(self._ending if self._is_drained else ends.NOT_DRAINED)]

    def _taken_over(self) -> Outcome:
        return ends.taken_over(self._lease, self._stay.is_superseded(self._lease))

    def _save(self, now_ms: int) -> SaveProgress:
        return self._record.save(now_ms, self.expires_at_ms(now_ms), self.phase in LIVE)

    def _gaps(self) -> list[Effect]:
        """Returns the look for gaps, which each connection makes once."""
        if self._gaps_recorded:
            return []
        self._gaps_recorded = True
        return [RecordGaps(self.lease_ttl_ms)]

"""Decides what one connection does next: claim, open, store, let go, leave; inputs in, effects out.

A connection goes through *phases*. `Manager._TABLE` lists the phases in which each input is legal; anything else is a
driver's mistake and raises `ProtocolMisuse`, except that what comes after the end is ignored (bytes already read, say).

    CLAIMING          the fence is being raised                          → AWAITING_RELEASE, OPENING
    AWAITING_RELEASE  the upstream forbids two: the older is still open  → OPENING, SETTLING
    OPENING           the request is sent, no answer yet                 → CONNECTED, SETTLING
    CONNECTED         reading                                            → OVERLAPPING, SETTLING
    OVERLAPPING       taken over, reads on until `overlap_s` is over     → SETTLING
    SETTLING          closing: what was read before is drained and       → FINISHED
                      stored, then the lease says why it closed
    FINISHED          the outcome is known; nothing may follow

The order of the last effects is the promise that nothing is lost: the upstream is closed, every event is stored, then
the cursor is saved, then the connection is marked released (a successor that waited for that reads a complete cursor),
then it ends.

The manager knows no socket, clock, table or log: `now_ms` comes with every input, a driver performs the effects in
order, and reads `wake_at_ms` and `lease_due_ms` to learn when it must come back. Invariants: the saved cursor belongs
to an event that is stored and that no unstored event precedes; the ledger vouches for no instant after the arrival of
something that is not stored; exactly one Finish is emitted, as the last effect.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from handlers.handover.deadlines import parts_at_ms
from handlers.handover.lease import Lease, Standing, may_open, standing, superseded
from handlers.stream.framing import FramingError
from handlers.stream.judging import is_confirmed, judge
from handlers.stream.marks import Kind
from handlers.stream.profiles import Profile
from handlers.stream.reading import read
from handlers.stream.signals import (
    Chunk,
    Claim,
    Claimed,
    ClaimRefused,
    Closed,
    CloseUpstream,
    CursorRead,
    Effect,
    Finish,
    Input,
    LeaseRead,
    MarkConnected,
    MarkReleased,
    Open,
    Opened,
    Outcome,
    Progress,
    ReadCursor,
    RecordGaps,
    RecordLoss,
    SaveProgress,
    StoreFailed,
    TakeTurn,
    Woken,
    Write,
    Written,
)

RELEASE_POLL_MS = 200
SETTLE_POLL_MS = 100
# How long a closed connection watches a successor that claimed and has not connected. An upstream that evicts answers
# the newer connection first, so its mark is on the way; one that forbids two is asked only after the release, so a
# connect more.
SETTLE_MS = 2_000
# A holder counts as dead after this many of its renewals have failed to come.
LEASE_TTL_READS = 4

BROKEN = frozenset({"stalled", "reset", "truncated", "tls", "protocol"})
CURSOR_EXPIRED = "cursor_expired"
EXPIRED_CURSOR = Outcome("StreamDropped", "", "the upstream no longer knows the cursor: what came since is lost")
DISCONNECTED = Outcome("StreamDropped", "", "the upstream asked for a new connection")
EXPIRED = Outcome("ConnectionExpired", "", "the function's deadline was reached and nobody had taken over")


class ProtocolMisuse(RuntimeError):
    """The driver gave an input that the phase does not know: a defect of the driver, never of the upstream."""


class Phase(enum.Enum):
    """Where a connection is in its life; the value is the word used in logs."""

    CLAIMING = "claiming"
    AWAITING_RELEASE = "awaiting release"
    OPENING = "opening"
    CONNECTED = "connected"
    OVERLAPPING = "overlapping"
    SETTLING = "settling"
    FINISHED = "finished"


class Manager:
    """One connection's decisions; see the module's docstring for the phases.

    `deadline_ms` is when the function is killed; the connection leaves `margin_ms` before, or half of that while a
    successor is connecting, and by a quarter of it what was read is stored or given up. `execution` is the execution
    that started it ("" where none is known). An overlap ends after `overlap_max_ms` at most, for a longer one would
    leave its lane too late for its next turn.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        deadline_ms: int,
        margin_ms: int,
        lease_every_ms: int,
        progress_every_ms: int,
        overlap_max_ms: int | None = None,
        execution: str = "",
    ) -> None:
        self._profile = profile
        self._decoder = profile.decoder()
        self._leave_at_ms = deadline_ms - margin_ms
        self._give_up_at_ms = deadline_ms - margin_ms // 2
        self._spare_ms = margin_ms // 4
        self._beside = 0  # the newest connection that was seen connected beside this one
        self._part_at_ms: int | None = None
        self._lease_every_ms = lease_every_ms
        self._progress_every_ms = progress_every_ms
        self.lease_ttl_ms = LEASE_TTL_READS * max(lease_every_ms, progress_every_ms)
        self._overlap_ms = profile.overlap_ms if overlap_max_ms is None else min(profile.overlap_ms, overlap_max_ms)
        self._execution = execution
        self._lease = Lease()
        self._writes: deque[str | None] = deque()  # the last cursor of each Write that is not answered yet
        self._written_cursor: str | None = None
        self._saved_cursor: str | None = None
        self._sent_cursor: str | None = None
        self._saved_ms: int | None = None
        self._losses = 0
        self._saved_at_ms = 0
        self._unstored: deque[int] = deque()  # when the events of each of them had arrived
        self._heard_ms = 0
        self._arrived_ms = 0
        self._unread_ms: int | None = None
        self._events = 0
        self._overlap_ends_ms: int | None = None
        self._settle_until_ms: int | None = None
        self._ending: Outcome | None = None
        self._asks_lease = False
        self._expiring = False
        self._is_closed = False
        self._discards = False
        self._gaps_recorded = False
        self._has_turn = False
        self._pending_close = ""
        self.phase = Phase.CLAIMING
        self.progress = Progress(fence=0, claimed_ms=0)
        self.lease_due_ms: int | None = None
        self.wake_at_ms: int | None = None

    @property
    def fence(self) -> int:
        """Returns this connection's fence; 0 before the claim is answered."""
        return self.progress.fence

    def start(self, now_ms: int) -> list[Effect]:
        """Returns the first effects."""
        self.progress = replace(self.progress, claimed_ms=now_ms, seen_ms=now_ms)
        self.wake_at_ms = self._leave_at_ms
        return [Claim()]

    def handle(
        self, now_ms: int, given: Input, *, arrived_ms: int | None = None, unread_ms: int | None = None
    ) -> list[Effect]:
        """Returns the effects of one input, in order; ProtocolMisuse where the phase does not know it.

        `arrived_ms` is when `given` had come, where it had to wait; `unread_ms` the same of the oldest that waits on.
        """
        if self.phase is Phase.FINISHED:
            return []
        self._arrived_ms = now_ms if arrived_ms is None else min(arrived_ms, now_ms)
        self._unread_ms = unread_ms
        phases, method = self._TABLE[type(given)]
        if self.phase not in phases:
            if self.phase is Phase.SETTLING and isinstance(given, CursorRead | Opened):
                return []  # the answer to a question that is not of interest any more
            raise ProtocolMisuse(f"{type(given).__name__} in the phase {self.phase.value}")
        effects: list[Effect] = method(self, now_ms, given)
        self._set_alarm()
        return effects

    # --- opening ------------------------------------------------------------------------------------------------------

    def _claimed(self, now_ms: int, given: Claimed) -> list[Effect]:
        self._lease = given.lease
        self.progress = replace(self.progress, fence=given.lease.fence)
        if self._profile.overlap == "forbids":
            self.phase = Phase.AWAITING_RELEASE
            return self._await_release(now_ms, Standing.HOLDER)
        self.phase = Phase.OPENING
        return [ReadCursor()]

    def _claim_refused(self, _now_ms: int, given: ClaimRefused) -> list[Effect]:
        status = "stopped" if given.lease.stop else "superseded"
        return self._finish(Outcome("", status, f"the claim was refused: {status}"))

    def _cursor_read(self, _now_ms: int, given: CursorRead) -> list[Effect]:
        self._saved_cursor = self._written_cursor = self._sent_cursor = given.cursor
        self._saved_ms = given.saved_ms
        self.progress = replace(self.progress, resumed=self._profile.asks(given.cursor))
        return [Open(given.cursor)]

    def _opened(self, now_ms: int, given: Opened) -> list[Effect]:
        meaning = self._profile.meaning(given.status)
        if meaning == "expired" and self.progress.resumed:
            self._discards = True
            return [*self._cursor_expired(now_ms), *self._leave(now_ms, EXPIRED_CURSOR, CURSOR_EXPIRED)]
        refusal = judge(self._profile, given, meaning)
        if refusal is not None:
            self._discards = True  # the body of a refusal is no part of the stream
            return self._leave(now_ms, refusal, "refused" if refusal.error else "ended")
        self.phase = Phase.CONNECTED
        self._heard_ms = self._arrived_ms
        self.progress = replace(self.progress, opened_ms=now_ms, seen_ms=now_ms)
        self.lease_due_ms = now_ms + self._lease_every_ms
        lost: list[Effect] = []
        if self.progress.resumed and not is_confirmed(self._profile, given, self._sent_cursor or ""):
            self.progress = replace(self.progress, resumed=False)
            lost = self._lost(self._since(now_ms), now_ms, "cursor_unknown")
        return [MarkConnected(self.fence, self._expires_at_ms(now_ms)), self._save(now_ms), *lost]

    # --- what the upstream no longer has ------------------------------------------------------------------------------

    def _since(self, now_ms: int) -> int:
        """Returns since when events may be missing that the upstream cannot give any more."""
        return min(self._saved_ms if self._saved_ms is not None else self.progress.claimed_ms, now_ms)

    def _lost(self, from_ms: int, to_ms: int, cause: str) -> list[Effect]:
        self._losses += 1
        return [RecordLoss(self.fence, self._losses, from_ms, to_ms, cause)]

    def _cursor_expired(self, now_ms: int) -> list[Effect]:
        """Returns the record of the loss; what is saved at the end is the fallback in place of the cursor."""
        since_ms = self._since(now_ms) if self.progress.opened_ms is None or not self._events else self._heard_ms
        resume = self._profile.resume
        self._written_cursor = resume.fallback if resume is not None else ""
        self._writes = deque(None for _ in self._writes)
        self.progress = replace(self.progress, resumed=False)
        return self._lost(since_ms, now_ms, CURSOR_EXPIRED)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _chunk(self, now_ms: int, given: Chunk) -> list[Effect]:
        if self._discards:
            return []  # behind the end of the stream, or behind what can't be framed
        try:
            frames, failure = self._decoder.feed(given.data), None
        except FramingError as error:
            frames, failure = error.frames, error
        heard_ms, self._heard_ms = self._heard_ms, self._arrived_ms
        last_id = self._decoder.last_event_id
        found = read(self._profile, frames, last_id, now_ms, f"{self.fence:012d}", self._events)
        self.progress = replace(
            self.progress,
            frames=self.progress.frames + found.frames,
            bytes=self.progress.bytes + len(given.data),
        )
        effects: list[Effect] = []
        if found.events:
            effects.append(Write(self.fence, self._events, found.events))
            self._events += len(found.events)
            self._writes.append(found.cursor)
            self._unstored.append(self._arrived_ms)
        elif found.cursor is not None:
            self._skip_to(found.cursor)
        for _ in range(found.losses):
            effects += self._lost(heard_ms, now_ms, "announced_by_upstream")
        if found.stop is Kind.END:
            effects += self._leave(now_ms, Outcome("", "ended", "the upstream ended the stream"), "ended")
        elif found.stop is Kind.EXPIRED:
            effects += [*self._cursor_expired(now_ms), *self._leave(now_ms, EXPIRED_CURSOR, CURSOR_EXPIRED)]
        elif found.stop is Kind.DISCONNECT:
            effects += self._leave(now_ms, DISCONNECTED, "disconnected_by_upstream", ask_lease=True)
        elif failure is not None:
            effects += self._leave(now_ms, Outcome("StreamDropped", "", str(failure)), failure.reason)
        self._discards = self._discards or found.stop is not None or failure is not None
        return effects

    def _skip_to(self, cursor: str) -> None:
        """Takes the cursor of a frame that is not stored: it counts once all that came before it is."""
        if self._writes:
            self._writes[-1] = cursor
        else:
            self._written_cursor = cursor

    def _written(self, now_ms: int, given: Written) -> list[Effect]:
        cursor = self._writes.popleft()
        self._unstored.popleft()
        self._written_cursor = self._written_cursor if cursor is None else cursor
        self.progress = replace(
            self.progress,
            stored=self.progress.stored + given.stored,
            duplicates=self.progress.duplicates + given.duplicates,
            dead_lettered=self.progress.dead_lettered + given.dead_lettered,
        )
        if self.phase is Phase.SETTLING:
            return self._drained(now_ms)
        return self._progress_made(now_ms)

    def _progress_made(self, now_ms: int) -> list[Effect]:
        """Returns the writes that are due while it is connected: cursor and ledger, and once what gaps there were.

        The stream's very first cursor is saved at once: until then a kill has nothing to resume from.
        """
        is_first = self._saved_cursor is None and self._written_cursor is not None
        if self.phase not in self._LIVE or (now_ms - self._saved_at_ms < self._progress_every_ms and not is_first):
            return []
        assert self.progress.opened_ms is not None
        is_settled = now_ms - self.progress.opened_ms > self.lease_ttl_ms
        return [self._save(now_ms), *(self._gaps() if is_settled else [])]

    def _gaps(self) -> list[Effect]:
        if self._gaps_recorded:
            return []
        self._gaps_recorded = True
        return [RecordGaps(self.lease_ttl_ms)]

    def _store_failed(self, _now_ms: int, given: StoreFailed) -> list[Effect]:
        close: list[Effect] = [] if self.phase in (Phase.CLAIMING, Phase.AWAITING_RELEASE) else [CloseUpstream()]
        return close + self._finish(Outcome("StoreUnavailable", "", given.detail))

    # --- the lease ----------------------------------------------------------------------------------------------------

    def _lease_read(self, now_ms: int, given: LeaseRead) -> list[Effect]:
        self._lease = given.lease
        found = standing(given.lease, self.fence)
        if self.phase is Phase.SETTLING:
            return self._settle(now_ms, found)
        self.lease_due_ms = now_ms + self._lease_every_ms
        if found is Standing.STOPPED:
            return self._leave(now_ms, Outcome("", "stopped", "the stream is to be stopped"), "stopped")
        if self.phase is Phase.AWAITING_RELEASE:
            return self._await_release(now_ms, found)
        if self.phase is Phase.OPENING:
            return [MarkConnected(self.fence, self._expires_at_ms(now_ms))] if self._has_turn else []
        if found is Standing.TAKEN_OVER and self.phase is Phase.CONNECTED and not self._stays:
            self.phase = Phase.OVERLAPPING
            self._overlap_ends_ms = now_ms + self._overlap_ms
        elif found is Standing.CLAIMED and self.phase is Phase.CONNECTED and self._profile.overlap == "forbids":
            return self._leave(now_ms, None, "let_go")
        elif self._may_part(now_ms, found) or (self._expiring and self._may_expire(now_ms, found)):
            return self._leave(now_ms, EXPIRED, "expired", ask_lease=True)
        return self._progress_made(now_ms)

    def _may_part(self, now_ms: int, found: Standing) -> bool:
        """Whether it is the older of two hot connections that began together, and the time has come to get apart."""
        if not self._stays or self._expiring or not self._newer_stays(now_ms, found):
            return False
        if self._beside != self._lease.connected:
            self._beside = self._lease.connected
            self._part_at_ms = parts_at_ms(self.progress.claimed_ms, self._leave_at_ms, now_ms)
        return self._part_at_ms is not None and now_ms >= self._part_at_ms

    def _newer_stays(self, now_ms: int, found: Standing) -> bool:
        """Whether a newer hot connection is there and not about to go itself; if it is, its return is waited for."""
        return found is Standing.TAKEN_OVER and self._lease.expires_at_ms > now_ms + self._spare_ms

    def _expires_at_ms(self, now_ms: int) -> int:
        """Returns until when the lease vouches for this connection.

        A hot one's does not outlast its stay, so that the older of two can see whether the newer is about to go.
        """
        until_ms = now_ms + self.lease_ttl_ms
        return min(until_ms, self._give_up_at_ms) if self._profile.standby == "hot" else until_ms

    def _may_expire(self, now_ms: int, found: Standing) -> bool:
        """Whether it may go before the half of the margin that is kept for a successor is over.

        Of two hot connections the older goes first. And where another execution keeps the stream by now, its first
        function is on the way.
        """
        if self._profile.standby == "hot":
            return self._newer_stays(now_ms, found)
        return found is Standing.HOLDER and not superseded(self._lease, self._execution)

    def _await_release(self, now_ms: int, found: Standing) -> list[Effect]:
        if self._lease.connected == self.fence:
            # The turn is this connection's. It is marked before the request goes out: a connection that opens and
            # stands in no mark would be invisible to the next one.
            self._has_turn = True
            self.phase = Phase.OPENING
            self.lease_due_ms = now_ms + self._lease_every_ms  # the turn is renewed while the upstream keeps it waiting
            return [ReadCursor()]
        if found is not Standing.HOLDER or self._lease.connected > self.fence:
            return self._leave(now_ms, None, "claimed_by_successor")
        self.lease_due_ms = now_ms + RELEASE_POLL_MS
        if not may_open(self._lease, self.fence, now_ms):
            return []
        return [TakeTurn(self.fence, self._expires_at_ms(now_ms))]

    def _closed(self, now_ms: int, given: Closed) -> list[Effect]:
        was_closed, self._is_closed = self._is_closed, True
        if self.phase is Phase.SETTLING:
            if (closed_ms := self.progress.closed_ms) is not None:
                self.progress = replace(self.progress, closed_ms=min(closed_ms, self._until_ms(given.reason)))
            return [] if was_closed else self._drained(now_ms)
        detail = f": {given.detail}" if given.detail else ""
        verb = "closed" if self._was_connected else "not opened"
        outcome = Outcome("StreamDropped", "", f"the stream was {verb} ({given.reason}){detail}")
        if given.reason == "rejected":
            return self._leave(now_ms, replace(outcome, error="StreamRejected"), given.reason)
        return self._leave(now_ms, outcome, given.reason, ask_lease=True)

    def _woken(self, now_ms: int, _given: Woken) -> list[Effect]:
        if self.phase is Phase.SETTLING:
            return self._give_up(now_ms)
        if self._overlap_ends_ms is not None and now_ms >= self._overlap_ends_ms:
            return self._leave(now_ms, self._taken_over(), "taken_over")
        if now_ms >= self._leave_at_ms and self.phase is Phase.CONNECTED and not self._expiring:
            # Half the margin is kept for a successor that is connecting right now: the lease tells whether one is.
            self._expiring = True
            self._leave_at_ms = self._give_up_at_ms
            self.lease_due_ms = now_ms
        elif now_ms >= self._leave_at_ms and self.phase is Phase.OVERLAPPING:
            return self._leave(now_ms, self._taken_over(), "taken_over")
        elif now_ms >= self._leave_at_ms:
            return self._leave(now_ms, EXPIRED, "expired", ask_lease=True)
        return []

    # --- ending -------------------------------------------------------------------------------------------------------

    def _leave(self, now_ms: int, outcome: Outcome | None, ended_by: str, *, ask_lease: bool = False) -> list[Effect]:
        """Stops reading. `outcome` None means: a successor claimed, taken over if it connects, else dropped."""
        self._ending = outcome or Outcome("StreamDropped", "", "let go for a successor that did not connect")
        self._asks_lease = ask_lease or outcome is None
        self._pending_close = ended_by
        if self.phase is Phase.SETTLING:
            return []  # the end of the stream was found while draining
        opened = self.phase in (Phase.OPENING, Phase.CONNECTED, Phase.OVERLAPPING)
        self._is_closed = self._is_closed or not opened
        self.phase = Phase.SETTLING
        self.lease_due_ms = None
        # One that leaves at the last moment has half as long again for what it has read.
        late_ms = self._give_up_at_ms + self._spare_ms
        self._settle_until_ms = max(now_ms, self._give_up_at_ms if now_ms < self._give_up_at_ms else late_ms)
        self.progress = replace(self.progress, closed_ms=self._until_ms(ended_by) if self._was_connected else None)
        return ([CloseUpstream()] if opened else []) + self._drained(now_ms)

    def _until_ms(self, ended_by: str) -> int:
        """Returns until when the connection heard all that the upstream sent."""
        # What came after the last byte of a connection that broke is not known: the peer may have been gone since.
        until_ms = self._heard_ms if ended_by in BROKEN else self._arrived_ms
        # What arrives is handled later, the answer that opened it too: a close that came with it is not before it.
        return max(until_ms, self.progress.opened_ms or 0)

    @property
    def _was_connected(self) -> bool:
        return self.progress.opened_ms is not None

    def _drained(self, now_ms: int) -> list[Effect]:
        """Returns what follows once all that was read is stored; nothing before."""
        if self._writes or not self._is_closed:
            return []
        assert self._ending is not None
        if not self._asks_lease:
            return self._released(now_ms) + self._finish(self._ending)
        wait_ms = SETTLE_MS + (self._profile.connect_timeout_ms if self._profile.overlap == "forbids" else 0)
        self._settle_until_ms = min(now_ms + wait_ms, max(now_ms, self._give_up_at_ms))
        self.lease_due_ms = now_ms
        return self._released(now_ms)

    def _released(self, now_ms: int) -> list[Effect]:
        if tail_bytes := self._decoder.close():
            self.progress = replace(self.progress, unterminated_bytes=tail_bytes)
        if not self._was_connected and not self._has_turn:  # it must not vouch for an older one that is still open
            return [self._save(now_ms)]
        return [self._save(now_ms), MarkReleased(self.fence), *self._gaps()]

    def _settle(self, now_ms: int, found: Standing) -> list[Effect]:
        """Returns the end that the lease explains, or nothing while a successor that claimed may yet connect."""
        if self._writes or not self._is_closed:
            return []
        assert self._ending is not None
        if found is Standing.STOPPED:
            return self._finish(Outcome("", "stopped", "the stream is to be stopped"))
        if found is Standing.TAKEN_OVER and not self._stays:
            self._pending_close = "taken_over"
            return [self._save(now_ms), *self._finish(self._taken_over())]
        if found is Standing.CLAIMED and not self._stays:
            self.lease_due_ms = now_ms + SETTLE_POLL_MS
            return []
        return self._finish(self._ending)

    def _give_up(self, now_ms: int) -> list[Effect]:
        """Returns the end when nothing explained the close in time; nothing before `_settle_until_ms`."""
        assert self._ending is not None
        if self._settle_until_ms is None or now_ms < self._settle_until_ms:
            return []
        if self._writes or not self._is_closed:
            # The ledger's record stays as it is: it vouches for nothing that was read and is not stored.
            in_flight = "events were still in flight to the store at the deadline"
            return self._finish(Outcome("StoreUnavailable", "", in_flight))
        return self._finish(self._ending)

    @property
    def _stays(self) -> bool:
        """Whether being taken over is no reason to go: a hot standby keeps both lanes of its execution connected."""
        return self._profile.standby == "hot" and not superseded(self._lease, self._execution)

    def _taken_over(self) -> Outcome:
        if superseded(self._lease, self._execution):
            return Outcome("", "superseded", "another execution keeps the stream connected")
        return Outcome("StreamTakenOver", "", f"connection {self._lease.connected} has taken over")

    def _save(self, now_ms: int) -> SaveProgress:
        cursor = self._written_cursor if self._written_cursor != self._saved_cursor else None
        self._saved_cursor = self._written_cursor
        self._saved_at_ms = now_ms
        seen_ms = self._seen_ms(now_ms)
        if (seen_ms, self._pending_close) != (self.progress.seen_ms, self.progress.ended_by):
            self.progress = replace(self.progress, ended_by=self._pending_close, seen_ms=seen_ms)
        return SaveProgress(cursor, self.progress, self._expires_at_ms(now_ms))

    def _seen_ms(self, now_ms: int) -> int:
        """Returns until when the ledger may vouch for the connection should nothing more be heard of it."""
        if self.phase not in self._LIVE:
            return self.progress.seen_ms
        # A quiet stream is connected all the same: what is seen is the connection, not its bytes. But what was read and
        # is not stored dies with the function.
        unstored = [instant for instant in (*self._unstored, self._unread_ms) if instant is not None]
        return max(self.progress.seen_ms, min([now_ms, *unstored]))

    def _finish(self, outcome: Outcome) -> list[Effect]:
        self.phase = Phase.FINISHED
        self.lease_due_ms = self.wake_at_ms = None
        return [Finish(outcome)]

    def _set_alarm(self) -> None:
        """Sets `wake_at_ms` to the earliest instant at which the phase wants Woken."""
        if self.phase is Phase.FINISHED:
            return
        if self.phase is Phase.SETTLING:
            self.wake_at_ms = self._settle_until_ms
        elif self._overlap_ends_ms is not None:
            self.wake_at_ms = min(self._overlap_ends_ms, self._leave_at_ms)
        else:
            self.wake_at_ms = self._leave_at_ms

    _LIVE = frozenset({Phase.CONNECTED, Phase.OVERLAPPING})
    _ANY = frozenset(Phase)
    _TABLE: ClassVar[dict[type, tuple[frozenset[Phase], Callable[..., list[Effect]]]]] = {
        Claimed: (frozenset({Phase.CLAIMING}), _claimed),
        ClaimRefused: (frozenset({Phase.CLAIMING}), _claim_refused),
        CursorRead: (frozenset({Phase.OPENING}), _cursor_read),
        Opened: (frozenset({Phase.OPENING}), _opened),
        Chunk: (_LIVE | {Phase.SETTLING}, _chunk),
        Closed: (_LIVE | {Phase.OPENING, Phase.SETTLING}, _closed),
        Written: (_LIVE | {Phase.SETTLING}, _written),
        LeaseRead: (_ANY - {Phase.CLAIMING}, _lease_read),
        StoreFailed: (_ANY, _store_failed),
        Woken: (_ANY, _woken),
    }

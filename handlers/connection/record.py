"""Decides what is recorded of a connection: its record in the ledger, its cursor, and what the upstream lost.

A quiet stream is connected too. But what was read and is not stored, or has arrived and is not read, dies with the
function; after a break nobody knows what the upstream sent after the last byte; and half a frame is an event that is
missing unless its end comes.

    1.0 s  two events arrive        known good until 1.0 s while they are on their way to the store
    1.4 s  they are stored          known good until 1.4 s
    5.0 s  nothing has arrived      known good until 5.0 s
    5.1 s  the connection breaks    known good until 1.0 s, when it was last heard

A connection that resumed from a cursor has caught up, however far it was behind, when the upstream was idle: for
`IDLE_MS` nothing came but signs of life, and then another one. Silence alone is no proof: a dead peer is silent too,
and so is one that is still looking for the first event to send.

    6.0 s  an event arrives, whole
    9.0 s  half an event arrives    known good until 6.0 s, whenever and however it ends, until the other half is there

Invariants: an end is in the record only together with what was stored until then; a cursor is saved once, and only when
every write before it is answered; no connection is known good after the arrival of what is not stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from handlers.connection import ledger
from handlers.connection.effects import Effect, Outcome, Progress, RecordGaps, RecordLoss, bounded
from handlers.connection.epochs import IN_A_ROW
from handlers.connection.inputs import GapsRecorded, Resumption, Written
from handlers.connection.quiet import APART_MS
from handlers.connection.spending import Account
from handlers.framing.events import StreamEvent
from handlers.profile.budget_field import Budget


class Pending:
    """The writes of one connection that are not answered yet, and the cursors behind them."""

    def __init__(self) -> None:
        self._writes: deque[str | None] = deque()  # the last cursor of each, None where it has none
        self._reached: str | None = None
        self.saved: str | None = None
        self.asked_from: str | None = None

    def begins(self, cursor: str | None) -> None:
        """Records the saved cursor: the upstream is asked to resume after it."""
        self.saved = self._reached = self.asked_from = cursor

    def sent(self, cursor: str | None) -> None:
        """Records that a write is on its way, `cursor` the last in it."""
        self._writes.append(cursor)

    def stored(self) -> None:
        """Records that the oldest write is answered."""
        cursor = self._writes.popleft()
        self._reached = self._reached if cursor is None else cursor

    def skipped(self, cursor: str) -> None:
        """Records the cursor of something that is not stored: it counts once everything before it is stored."""
        if self._writes:
            self._writes[-1] = cursor
        else:
            self._reached = cursor

    @property
    def last(self) -> str | None:
        """The cursor behind all that was read, whether it may be saved yet or not."""
        return next((cursor for cursor in reversed(self._writes) if cursor is not None), self._reached)

    def expired(self, cursor: str) -> None:
        """Records that the upstream accepts no cursor of this connection any more: `cursor` is saved in their place."""
        self._reached = cursor
        self._writes = deque(None for _ in self._writes)

    @property
    def is_stored(self) -> bool:
        """Whether every write is answered."""
        return not self._writes

    @property
    def is_unmoved(self) -> bool:
        """Whether no cursor was reached but the one that was sent, and no write is unanswered."""
        return not self._writes and self._reached == self.asked_from

    @property
    def is_first(self) -> bool:
        """Whether there is a cursor to save and none was ever saved: after a kill nothing could be resumed."""
        return self.saved is None and self._reached is not None

    def take(self) -> str | None:
        """Returns the cursor to be saved now; None where it is saved already."""
        if self._reached == self.saved:
            return None
        self.saved = self._reached
        return self.saved


BROKEN = frozenset({"stalled", "reset", "truncated", "tls", "protocol"})


class Liveness:
    """The liveness of one connection: when it heard something, and since when some of it is not stored."""

    def __init__(self) -> None:
        self.heard_ms = 0  # when the upstream last sent something; 0 before its answer
        # Of the current input, as the manager knows it: when it had come, and since when the oldest arrival waits.
        self.arrived_ms = 0
        self.unread_ms: int | None = None
        self._unstored: deque[int] = deque()  # when the events of each unanswered write had arrived
        # When it was last heard before the unfinished frame began; None where no frame is unfinished.
        self.whole_until_ms: int | None = None

    def heard(self) -> int:
        """Records that the current input came from the upstream; returns when the previous one did."""
        before_ms, self.heard_ms = self.heard_ms, self.arrived_ms
        return before_ms

    def framed(self, before_ms: int, *, ended_some: bool, is_inside: bool) -> None:
        """Records whether the bytes ended frames, and end inside one; it was last heard before them at `before_ms`."""
        if not is_inside:
            self.whole_until_ms = None
        elif ended_some or self.whole_until_ms is None:
            self.whole_until_ms = before_ms

    def sent(self) -> None:
        """Records that events of the current input are on their way to the store."""
        self._unstored.append(self.arrived_ms)

    def stored(self) -> int:
        """Records that the oldest of them are stored; returns when they had arrived."""
        return self._unstored.popleft()

    def until_ms(self, ended_by: str, opened_ms: int) -> int:
        """Returns until when a connection that is closed now heard all that the upstream sent."""
        until_ms = self.heard_ms if ended_by in BROKEN else self.arrived_ms
        # What arrives is handled later, the opening answer too: a close that came with it is no earlier than that.
        return max(until_ms, opened_ms)

    def seen_ms(self, now_ms: int, before_ms: int) -> int:
        """Returns until when an open connection is known good; it was until `before_ms`."""
        unstored = [ms for ms in (*self._unstored, self.unread_ms, self.whole_until_ms) if ms is not None]
        return max(before_ms, min([now_ms, *unstored]))


# While an upstream sends its backlog, page by page of a table say, its pauses are shorter than this.
IDLE_MS = 5_000
# The profile says how far back the upstream goes at least. It may keep, and send, this many times as much.
KEEPS = 2
# Of many connections in a row that break off, one in this many searches for gaps, and reads further back.
LOOK_EVERY = 8


class Record:
    """The record of one connection, whose function is killed at `deadline_ms`.

    `fence` is 0 before the claim is answered, `opened_ms` None before the upstream's answer.
    """

    def __init__(self, deadline_ms: int, expect_ms: int | None = None, budget: Budget | None = None) -> None:
        self.account = None if budget is None else Account(budget)
        self.deadline_ms = deadline_ms
        self._expect_ms = expect_ms
        self._event_ms: int | None = None
        self._pause_ms: int | None = None
        self._pauses_from_ms: int | None = None  # None where connections were interrupted since
        self.pending = Pending()
        self.liveness = Liveness()
        self.fence = 0
        self.stopped_ms: int | None = None
        self.claimed_ms = 0
        self.opened_ms: int | None = None
        self._read_until_ms: int | None = None  # when reading ended, or before, where it broke
        self.resumed = False
        self._reach_ms: int | None = None
        self._since_ms: int | None = None  # until when all was known when it resumed
        self._behind_ms = 0  # how long it must have lasted to have caught up, as of `_asked_ms`
        self._asked_ms = 0
        self._live_ms: int | None = None
        self._idle_from_ms = 0  # since when nothing came but signs of life
        self._proof: tuple[int, int] | None = None  # when it was proved that it has caught up, and as of when
        self._forgot_ms: int | None = None
        self._good_ms: int | None = None  # when it was last good, if before its end
        self.ending = ""  # what ends it; in the record once it is saved
        self._outcome: Outcome | None = None
        self._is_ended = False  # the record has both
        self.frames = self.bytes = self.events = self.left_out = self.unterminated_bytes = 0
        self.saved_at_ms = 0
        self._seen_ms = 0
        self._ended_by = ""
        self._stored = self._duplicates = self._dead_lettered = self._conflicts = 0
        self._losses = self._missing_gaps = 0
        self._is_open = False  # the gap that it ended, as recorded
        # Other bodies under known keys, in a row: how many, since when, and as which loss they are recorded.
        self._dropped = self._dropped_from_ms = self._dropped_as = 0
        self._looked = 0  # the last connection that recorded the gaps
        self._told = -1  # in which state it last recorded gaps: open, closed, or caught up

    @property
    def progress(self) -> Progress:
        """The record as the ledger has it."""
        outcome = self._outcome if self._is_ended else None
        return Progress(
            fence=self.fence,
            claimed_ms=self.claimed_ms,
            opened_ms=self.opened_ms,
            seen_ms=self._seen_ms,
            closed_ms=self.closed_ms,
            ended_by=self._ended_by,
            frames=self.frames,
            bytes=self.bytes,
            stored=self._stored,
            duplicates=self._duplicates,
            dead_lettered=self._dead_lettered,
            unterminated_bytes=self.unterminated_bytes,
            resumed=self.resumed,
            reach_ms=self._reach_ms if self.resumed else None,
            since_ms=self._since_ms,
            live_ms=self._live_ms,
            forgot_ms=self._forgot_ms,
            conflicts=self._conflicts,
            left_out=self.left_out,
            saved_ms=self.saved_at_ms,
            deadline_ms=self.deadline_ms,
            heard_ms=self.liveness.heard_ms or None,
            error="" if outcome is None else outcome.error,
            http_status=0 if outcome is None else outcome.http_status,
            detail="" if outcome is None else bounded(outcome.message if outcome.detail is None else outcome.detail),
            event_ms=self._event_ms,
            pause_ms=self._pause_ms,
            expect_ms=self._expect_ms,
            stopped_ms=self.stopped_ms,
            missing=self._losses + self._missing_gaps,
            spending="" if self.account is None else self.account.spent.written(),
        )

    @property
    def closed_ms(self) -> int | None:
        """Until when it was good, once reading has ended; bytes that had arrived by then may still end a frame."""
        if self._read_until_ms is None or self.opened_ms is None:
            return None
        ends = (self._read_until_ms, self._good_ms, self.liveness.whole_until_ms)
        return max(self.opened_ms, min(ms for ms in ends if ms is not None))

    @property
    def stays_at(self) -> str | None:
        """The cursor that was sent, where nothing was stored since and no cursor was reached; else None."""
        is_moved = self._stored or self._dead_lettered or not self.pending.is_unmoved
        return None if is_moved or not self.resumed else self.pending.asked_from

    def begins(self, now_ms: int) -> None:
        """Records that the claim is on its way."""
        self.claimed_ms = self._seen_ms = now_ms

    def resumes(self, now_ms: int, at: Resumption, is_asked: bool, reach_ms: int | None = None) -> None:
        """Records the saved cursor, whether the upstream is asked to resume from it, and how far back it goes."""
        self.pending.begins(at.cursor)
        if self.account is not None:
            self.account.begins(at.spending)
        self._looked = at.looked
        self._event_ms, self._pause_ms = at.event_ms, at.pause_ms
        is_apart = at.connected_ms is None or now_ms - at.connected_ms > APART_MS
        self._pauses_from_ms = None if is_apart else at.event_ms
        self.resumed = is_asked
        self._reach_ms = reach_ms
        self._asked_ms = now_ms
        # Without records of connections, the cursor is all that is known of the time before.
        since_ms = at.saved_ms if at.known_ms is None else at.known_ms
        self._since_ms = None if since_ms is None else min(since_ms, now_ms)
        behind_ms = now_ms - (now_ms if self._since_ms is None else self._since_ms)
        self._behind_ms = behind_ms if at.behind_ms is None else at.behind_ms

    def opened(self, now_ms: int) -> None:
        """Records that the upstream has answered with the stream."""
        self.liveness.heard()
        self.opened_ms = self._seen_ms = self._idle_from_ms = now_ms
        behind_ms = self._behind_ms + now_ms - self._asked_ms if self.resumed else 0
        if self._reach_ms:  # an upstream sends no more than it keeps
            behind_ms = min(behind_ms, KEEPS * self._reach_ms)
        self._live_ms = now_ms + behind_ms

    def heard(self, data_bytes: int, frames: int, *, ended_some: bool, is_inside: bool, is_idle: bool) -> int:
        """Records bytes that came, and the frames in them; returns when the upstream had last sent something.

        `is_idle` is whether they are whole signs of life and nothing else.
        """
        before_ms = self.liveness.heard()
        if is_idle:
            self._was_idle()
        else:
            self._idle_from_ms = self.liveness.arrived_ms
        self.liveness.framed(before_ms, ended_some=ended_some, is_inside=is_inside)
        self.frames += frames
        self.bytes += data_bytes
        return before_ms

    def _was_idle(self) -> None:
        """Records that it has caught up, if the upstream has been idle for long enough."""
        live_ms = self._idle_from_ms + IDLE_MS
        if self.liveness.arrived_ms >= live_ms:
            self._proves(live_ms, live_ms)

    def _proves(self, at_ms: int, live_ms: int) -> None:
        """Records that it has caught up at `live_ms`, once all that came until `at_ms` is stored."""
        if self._proof is None or live_ms < self._proof[1]:
            self._proof = at_ms, live_ms

    def sent(self, events: Sequence[StreamEvent]) -> None:
        """Records that the events are on their way to the store, in one write."""
        self.events += len(events)
        self.pending.sent(last_cursor(events))
        self.liveness.sent()
        if self.account is not None:
            self.account.sent(events, joins=False)

    def joins(self, events: Sequence[StreamEvent]) -> None:
        """Records that the events join the newest write."""
        self.events += len(events)
        cursor = last_cursor(events)
        if cursor is not None:
            self.pending.skipped(cursor)
        if self.account is not None:
            self.account.sent(events, joins=True)

    def settles(self, spending: tuple[str, str] | None) -> None:
        """Records what the connection before has stored of the budget, as it was known and as it ended."""
        if spending is not None and self.account is not None:
            self.account.settles(*spending)

    def stored(self, written: Written, *, drops: bool = False) -> list[Effect]:
        """Records the answer to the oldest of those writes; returns the effects that record events lost by it.

        Where the profile `drops` other bodies under known keys, several in a row are new events whose ids started over.
        """
        self.pending.stored()
        came_ms = self.liveness.stored()
        if self.account is not None:
            count = written.stored + written.duplicates + written.dead_lettered
            self.account.stored(came_ms, written.stored, count)
        if written.stored or written.dead_lettered:
            if self._pauses_from_ms is not None:
                self._pause_ms = max(self._pause_ms or 0, came_ms - self._pauses_from_ms)
            self._event_ms = self._pauses_from_ms = max(came_ms, self._event_ms or 0)
        self._stored += written.stored
        self._duplicates += written.duplicates
        self._dead_lettered += written.dead_lettered
        self._conflicts += written.conflicts
        if not drops or not written.conflicts:
            if written.stored:
                self._dropped = self._dropped_as = 0
            return []
        self._dropped_from_ms = self._dropped_from_ms if self._dropped else came_ms
        self._dropped += written.conflicts
        if self._dropped < IN_A_ROW:
            return []
        # One record for the whole row; it grows.
        if not self._dropped_as:
            self._losses += 1
            self._dropped_as = self._losses
        return [
            RecordLoss(self.fence, self._dropped_as, self._dropped_from_ms, came_ms, "ids_restarted", self._dropped)
        ]

    def ends(self, ended_by: str, outcome: Outcome) -> None:
        """Records why it ends: the ledger's word for it, and the function's outcome."""
        self.ending, self._outcome = ended_by, outcome

    def closes(self, ended_by: str, outcome: Outcome) -> None:
        """Records that reading has ended, and why."""
        self.ends(ended_by, outcome)
        if self.opened_ms is not None:
            if ended_by == "ended_by_upstream":
                self._was_idle()
                self.liveness.heard()  # the upstream ended it after all that it had sent
            self._read_until_ms = self.liveness.until_ms(ended_by, self.opened_ms)

    def closed(self, ended_by: str) -> None:
        """Records that the upstream closed it too, perhaps earlier."""
        if self._read_until_ms is not None:
            self._read_until_ms = min(self._read_until_ms, self.liveness.until_ms(ended_by, self.opened_ms or 0))

    def misses(self, recorded: GapsRecorded) -> list[Effect]:
        """Records how many gaps it could not request in full, and whether the one before it is open."""
        self._missing_gaps, self._is_open = recorded.missing, recorded.is_open
        return []

    def lost(self, now_ms: int, heard_ms: int, events: int | None) -> RecordLoss:
        """Returns the effect that records `events` as lost by the upstream's own word; None is an unknown number.

        They lie after `heard_ms`, when it last sent something; or, while the connection catches up, anywhere since all
        was known.
        """
        self._losses += 1
        is_live = self._live_ms is not None and heard_ms >= self._live_ms
        from_ms = heard_ms if is_live or self._since_ms is None else min(heard_ms, self._since_ms)
        return RecordLoss(self.fence, self._losses, from_ms, now_ms, "announced_by_upstream", events)

    def reaches_cursor(self) -> None:
        """Records that the upstream went back to the cursor: its numbers show it, whatever the profile vouches for."""
        self._reach_ms = None

    def cursor_unknown(self, now_ms: int) -> None:
        """Records that the answer does not begin after the cursor: what came in between can no longer be requested."""
        self.resumed = False
        self._forgot_ms = self._live_ms = now_ms

    def cursor_expired(self, now_ms: int, cursor: str, heard_ms: int) -> None:
        """Records that the upstream has forgotten what came after the cursor; `cursor` is saved in its place.

        What it sent on this connection until `heard_ms` is not in doubt, if that moved the cursor by an event or a
        heartbeat.
        """
        has_moved = self.events > 0 or self.pending.last != self.pending.asked_from
        self.pending.expired(cursor)
        self._forgot_ms = now_ms
        self.resumed = self.resumed and has_moved
        self._good_ms = heard_ms

    def save(self, now_ms: int, is_open: bool) -> Progress:
        """Returns the record as it is to be written now; `is_open` while the connection reads."""
        if is_open:
            self._seen_ms = self.liveness.seen_ms(now_ms, self._seen_ms)
        if self._proof is not None and self._live_ms is not None and (not is_open or self._seen_ms >= self._proof[0]):
            self._live_ms = min(self._live_ms, self._proof[1])
        self._ended_by, self._is_ended = self.ending, bool(self.ending)
        self.saved_at_ms = now_ms
        return self.progress

    @property
    def shows_gaps(self) -> bool:
        """Whether gaps may follow from it: the upstream answered, if only that the cursor is too old."""
        return self.opened_ms is not None or self._forgot_ms is not None

    @property
    def has_caught_up(self) -> bool:
        """Whether the record says so as it was saved."""
        said = self.progress
        times = said.opened_ms or 0, said.seen_ms, said.closed_ms
        return ledger.Record(
            said.fence, *times, said.ended_by, said.resumed, live_ms=said.live_ms, heard_ms=said.heard_ms
        ).has_caught_up

    def gaps(self, dead_after_ms: int, *, leaves_some: bool = False) -> list[Effect]:
        """Returns the effect that records the gaps before it: once, and again where it proves more.

        With `leaves_some`, none where a connection shortly before it has searched: a later one does.
        """
        if leaves_some and self.fence - self._looked < LOOK_EVERY:
            return []
        told = 2 if self.has_caught_up else int(self.closed_ms is not None)
        # A connection that counted as dead may have recorded its end since, so there was no gap.
        is_over = self._is_open and self.closed_ms is not None
        told += 2 * is_over
        if told <= self._told:
            return []
        self._told = told
        return [RecordGaps(dead_after_ms, is_over)]


def last_cursor(events: Sequence[StreamEvent]) -> str | None:
    """Returns the cursor after the events; None where none of them has one."""
    for event in reversed(events):
        if event.cursor is not None:
            return event.cursor
    return None

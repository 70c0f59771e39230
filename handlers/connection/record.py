"""Keeps the record of a connection for the ledger, and the losses that the upstream announced.

Each part of the record knows one thing: which writes are unanswered (`pending.py`), until when the connection is known
good, and when it has caught up with the upstream (`liveness.py`).

Invariant: the record has an end only together with everything that was stored until then.
"""

from __future__ import annotations

from handlers.connection import evidence
from handlers.connection.effects import Effect, Outcome, Progress, RecordGaps, RecordLoss
from handlers.connection.ends import safe_phrase
from handlers.connection.gap_record import ANNOUNCED
from handlers.connection.inputs import GapsRecorded, Resumption, Written
from handlers.connection.liveness import APART_MS, Backlog, Liveness
from handlers.connection.pending import Pending
from handlers.connection.spending import Account
from handlers.profile.budget_field import Budget

# If many connections in a row break off, only one in this many searches for gaps, and it reads further back.
SEARCH_EVERY = 8


class Record:
    """The record of one connection, whose function is killed at `deadline_ms`.

    `fence` is 0 before the claim is answered, `opened_ms` None before the upstream's answer.
    """

    def __init__(self, deadline_ms: int, expect_ms: int | None = None, budget: Budget | None = None) -> None:
        self.account = None if budget is None else Account(budget)
        self._deadline_ms = deadline_ms
        self._expect_ms = expect_ms
        self._event_ms: int | None = None
        self._pause_ms: int | None = None
        self._pauses_from_ms: int | None = None  # None if connections were interrupted since
        self.pending = Pending(self.account)
        self.liveness = Liveness()
        self.backlog = Backlog()
        self.fence = 0
        self.stopped_ms: int | None = None
        self.started_ms: int | None = None
        self._claimed_ms = 0
        self.opened_ms: int | None = None
        self._is_one_json = False  # whether a long poll answered it
        self._ending = ""  # what ends it; the record has it once it is saved
        self._outcome: Outcome | None = None
        self._is_ended = False  # the record has the end and its outcome
        self.frames = self.bytes = self.left_out = self.unterminated_bytes = 0
        self.saved_at_ms = 0
        self._known_good_ms = 0
        self._stored = self._duplicates = self._dead_lettered = self._conflicts = 0
        self._losses = self._missing_gaps = 0
        self._is_open = False  # whether the gap that it ended is recorded as open
        # Known keys with other bodies: since when, how many of their events are lost, and the number of that loss.
        self._dropped_from_ms = self._dropped = self._dropped_as = 0
        self._last_searched = 0  # the last connection that recorded the gaps
        self.connected_ms: int | None = None  # until when another connection is known to have been open
        self._searched_with, self._searched_as_resumed = (
            -1,
            False,
        )  # what the record proved when gaps were last recorded: see `gaps`

    @property
    def progress(self) -> Progress:
        """The record as the ledger has it."""
        outcome = self._outcome if self._is_ended else None
        backlog = self.backlog
        # Late events have come, or ids have started over: until that is clear it does not count as resumed.
        resumed = backlog.resumed and not (
            self.pending.restart_detector is not None and self.pending.restart_detector.is_doubtful
        )
        return Progress(
            fence=self.fence,
            claimed_ms=self._claimed_ms,
            opened_ms=self.opened_ms,
            seen_ms=self._known_good_ms,
            closed_ms=self.closed_ms,
            ended_by=self._ending if self._is_ended else "",
            frames=self.frames,
            bytes=self.bytes,
            stored=self._stored,
            duplicates=self._duplicates,
            dead_lettered=self._dead_lettered,
            unterminated_bytes=self.unterminated_bytes,
            resumed=resumed,
            reach_ms=backlog.reach_ms if resumed else None,
            since_ms=backlog.since_ms,
            live_ms=backlog.live_ms,
            forgot_ms=backlog.forgot_ms,
            conflicts=self._conflicts,
            left_out=self.left_out,
            saved_ms=self.saved_at_ms,
            deadline_ms=self._deadline_ms,
            heard_ms=self.liveness.heard_ms or None,
            error="" if outcome is None else outcome.error,
            http_status=0 if outcome is None else outcome.http_status,
            detail=""
            if outcome is None
            else safe_phrase(outcome.message if outcome.detail is None else outcome.detail),
            event_ms=self._event_ms,
            pause_ms=self._pause_ms,
            expect_ms=self._expect_ms,
            stopped_ms=self.stopped_ms,
            started_ms=self.started_ms,
            missing=self._losses + self._missing_gaps,
            spending="" if self.account is None else self.account.spent.to_text(),
            counted=(0, 0) if self.account is None else self.account.counted,
            dropped_from_ms=self._dropped_from_ms,
        )

    @property
    def closed_ms(self) -> int | None:
        """Until when it was good, once reading has ended."""
        return self.liveness.closed_ms(self.opened_ms)

    @property
    def stuck_cursor(self) -> str | None:
        """The cursor that was sent, if nothing was stored since and no other cursor was reached; else None.

        None too if a long poll was answered in whole: that nothing new has come is an answer.
        """
        is_moved = self._stored or self._dead_lettered or not self.pending.is_unmoved
        is_whole = self._is_one_json and self._ending == "ended_by_upstream" and not self.unterminated_bytes
        return None if is_moved or is_whole or not self.backlog.resumed else self.pending.sent_cursor

    def begin(self, now_ms: int) -> None:
        """Records that the claim was requested."""
        self._claimed_ms = self._known_good_ms = now_ms

    def record_resumption(self, now_ms: int, at: Resumption, is_asked: bool, reach_ms: int | None = None) -> None:
        """Records the saved cursor, whether the upstream is asked to resume from it, and how far back it goes."""
        self.pending.begin(at.cursor, is_asked=is_asked)
        self.backlog.record_resumption(now_ms, at, is_asked, reach_ms)
        if self.account is not None:
            self.account.begin(at.spending, is_open=at.is_counting, comes_again=is_asked and not at.is_logged)
        self._last_searched, self.connected_ms = at.last_searched, at.connected_ms
        self._event_ms, self._pause_ms = at.event_ms, at.pause_ms
        is_apart = at.connected_ms is None or now_ms - at.connected_ms > APART_MS
        self._pauses_from_ms = None if is_apart else at.event_ms

    def record_opened(self, now_ms: int, *, is_one_json: bool = False) -> None:
        """Records that the upstream has answered with the stream."""
        self._is_one_json = is_one_json
        self.liveness.record_input()
        self.opened_ms = self._known_good_ms = now_ms
        self.backlog.record_opened(now_ms)
        if self.account is not None:
            self.account.record_opened()

    # --- reading ------------------------------------------------------------------------------------------------------

    def record_bytes(self, data_bytes: int, frames: int, *, ended_some: bool, is_inside: bool, is_idle: bool) -> int:
        """Records bytes that came, and the frames in them; returns when the upstream had last sent something.

        `is_idle` is whether they are whole signs of life and nothing else.
        """
        before_ms = self.liveness.record_input()
        if is_idle:
            self.backlog.record_idle(self.liveness.arrived_ms)
        else:
            self.backlog.idle_from_ms = self.liveness.arrived_ms
        self.liveness.record_framing(before_ms, ended_some=ended_some, is_inside=is_inside)
        self.frames += frames
        self.bytes += data_bytes
        return before_ms

    def record_stored(self, written: Written, *, drops: bool = False) -> list[Effect]:
        """Records the answer to the oldest write; returns the effects that record events which are lost.

        `drops` is whether the profile drops other bodies under known keys, and some came.
        """
        came_ms = self.pending.record_stored(written, drops=drops)
        if written.stored or written.dead_lettered:
            if self._pauses_from_ms is not None:
                self._pause_ms = max(self._pause_ms or 0, came_ms - self._pauses_from_ms)
            self._event_ms = self._pauses_from_ms = max(came_ms, self._event_ms or 0)
        self._stored += written.stored
        self._duplicates += written.duplicates
        self._dead_lettered += written.dead_lettered
        self._conflicts += written.conflicts
        if drops and written.conflicts:
            return self._record_dropped(came_ms, written)
        if written.stored:
            self._dropped_from_ms = self._dropped = self._dropped_as = 0
        return []

    def _record_dropped(self, came_ms: int, written: Written) -> list[Effect]:
        self._dropped_from_ms = self._dropped_from_ms or self._lost_from_ms(came_ms)
        if not written.lost:
            return []
        self._dropped += written.lost
        self._dropped_from_ms = min(self._dropped_from_ms, written.lost_from_ms)
        # The whole row has one record, which grows.
        if not self._dropped_as:
            self._losses += 1
            self._dropped_as = self._losses
        # Events that came while the process stood still may have come until now.
        span = self._dropped_from_ms, self.liveness.arrived_ms
        return [RecordLoss(self.fence, self._dropped_as, *span, "ids_restarted", self._dropped)]

    def record_loss(self, now_ms: int, heard_ms: int, events: int | None) -> RecordLoss:
        """Returns the effect that records the loss of `events` that the upstream announced; None is an unknown number.

        They were lost after `heard_ms`, when the upstream last sent something.
        """
        self._losses += 1
        span = self._lost_from_ms(heard_ms), now_ms
        return RecordLoss(self.fence, self._losses, *span, ANNOUNCED, events)

    def _lost_from_ms(self, came_ms: int) -> int:
        """Returns when an event that came then happened at the earliest: perhaps long ago, during a catch-up."""
        live_ms, since_ms = self.backlog.live_ms, self.backlog.earliest_event_ms
        is_live = live_ms is not None and came_ms >= live_ms
        return came_ms if is_live or since_ms is None else min(came_ms, since_ms)

    def record_expired_cursor(self, now_ms: int, cursor: str, heard_ms: int) -> None:
        """Records that the upstream has forgotten what came after the cursor; `cursor` is saved in its place.

        Events until `heard_ms` still count if an event or a heartbeat of this connection has moved the cursor.
        """
        has_moved = self.pending.events > 0 or self.pending.last_cursor != self.pending.sent_cursor
        self.pending.replace_cursors(cursor)
        self.backlog.record_expired_cursor(now_ms, has_moved=has_moved)
        self.liveness.record_forgotten(heard_ms)

    # --- ending -------------------------------------------------------------------------------------------------------

    def set_end(self, ended_by: str, outcome: Outcome) -> None:
        """Records why it ends: the ledger's word for it, and the function's outcome."""
        self._ending, self._outcome = ended_by, outcome

    def end_reading(self) -> None:
        """Records that reading has ended."""
        if self._ending == "ended_by_upstream" and self.opened_ms is not None:
            self.backlog.record_idle(self.liveness.arrived_ms)
            self.liveness.record_input()  # the upstream ended it after it had sent everything
        self.record_upstream_close(self._ending)

    def record_upstream_close(self, ended_by: str) -> None:
        """Records that the upstream closed the connection too, perhaps earlier."""
        if self.opened_ms is not None:
            self.liveness.record_close(ended_by, self.opened_ms)

    def save(self, now_ms: int, is_open: bool) -> Progress:
        """Returns the record to write now; `is_open` is whether the connection still reads."""
        if is_open:
            self._known_good_ms = self.liveness.seen_ms(now_ms, self._known_good_ms, self.pending.arrivals)
        self.backlog.accept_proof(self._known_good_ms if is_open else None)
        self._is_ended = bool(self._ending)
        self.saved_at_ms = now_ms
        if self.account is not None:
            self.account.record_saved()
        return self.progress

    # --- gaps ---------------------------------------------------------------------------------------------------------

    def record_missing(self, recorded: GapsRecorded) -> list[Effect]:
        """Records how many gaps it could not request in full, and whether the gap before it is open."""
        self._missing_gaps, self._is_open = recorded.missing, recorded.is_open
        return []

    @property
    def may_show_gaps(self) -> bool:
        """Whether gaps may follow from the record: the upstream answered, if only that the cursor is too old."""
        return self.opened_ms is not None or self.backlog.forgot_ms is not None

    @property
    def has_caught_up(self) -> bool:
        """Whether the connection has caught up, by its record as it was saved."""
        said = self.progress
        times = said.opened_ms or 0, said.seen_ms, said.closed_ms
        return evidence.Record(
            said.fence, *times, said.ended_by, said.resumed, live_ms=said.live_ms, heard_ms=said.heard_ms
        ).has_caught_up

    def search_gaps(self, dead_after_ms: int, *, leaves_some: bool = False) -> list[Effect]:
        """Returns the effect that records the gaps before the connection: once, and again when its record proves more.

        With `leaves_some` it returns none if a recent connection has searched, because a later one will. But if this
        connection has recorded an open gap, it searches: no other knows of that gap.
        """
        if leaves_some and not self._is_open and self.fence - self._last_searched < SEARCH_EVERY:
            return []
        if (resumed := self.progress.resumed) != self._searched_as_resumed:
            self._searched_with, self._searched_as_resumed = -1, resumed
        told = 2 if self.has_caught_up else int(self.closed_ms is not None)
        # The connection before, which counted as dead, may have recorded more since; then there was no gap.
        is_over = self._is_open and self.closed_ms is not None
        told += 2 * is_over
        if told <= self._searched_with:
            return []
        self._searched_with = told
        return [RecordGaps(dead_after_ms, again=self._is_open)]

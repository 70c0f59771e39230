"""Turns the upstream's answer and its bytes into writes, losses, a cursor, and the end if they contain one.

It knows no lease, no phase and no clock. Invariants: nothing after an end, or after bytes that cannot be framed, is
taken; the body of a refusal is not part of the stream; what was read before an end is stored all the same.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from handlers.connection import ends
from handlers.connection.effects import Effect, GoToLog, Open, Outcome, Write
from handlers.connection.ends import End
from handlers.connection.evidence import CURSOR_EXPIRED
from handlers.connection.frame_reading import HoleFinder, Reading, read_frames
from handlers.connection.inputs import Opened
from handlers.connection.judging import OwnTimes, is_cursor_refused, is_resume_confirmed, judge_answer
from handlers.connection.record import Record
from handlers.framing.events import StreamEvent
from handlers.framing.frames import Decoded, FrameTooLong, FramingError
from handlers.framing.marks import Kind
from handlers.framing.oversize import BufferBudget, Oversize
from handlers.profile.behaviour import Profile

if TYPE_CHECKING:
    from handlers.connection.conversation import Conversation
    from handlers.profile.secret_references import Secrets
    from handlers.segments.waiting_events import WaitingEvents

# The most events of one Write; a chunk may hold thousands. The cursor moves on after each Write, and the time for which
# a throttled table is retried counts for each one.
MOST_EVENTS = 250


class Intake:
    """The intake of one connection; it takes what the upstream sent, in order. `stream_id` has its part of `budget`."""

    def __init__(self, profile: Profile, budget: BufferBudget | None = None, stream_id: str = "") -> None:
        self._profile = profile
        self._budget, self._stream_id = budget, stream_id
        self._unstored_bytes = 0
        self._decoder = profile.decoder()
        self._discards = False
        self.has_instants = False  # whether `due_ms` may ever be other than None
        self.needs_stored = budget is not None  # whether `replies_to_stored` has any effect
        self._has_taken_unfinished = False
        self._waiting: WaitingEvents | None = None  # None if each event is an item
        self._conversation: Conversation | None = None
        self._numbers: HoleFinder | None = None
        self._times: OwnTimes | None = None  # None if no event shows how far behind the connection is
        self._fallback_cursor: str | None = None  # where it began instead, once the upstream had refused the cursor

    def enable_messages(self, stream_id: str, secrets: Secrets) -> None:
        """Makes the connection send this stream's messages once the upstream has answered."""
        # Imported here, because few streams send messages and each import lengthens the cold start.
        from handlers.connection.conversation import Conversation

        self._conversation = Conversation(self._profile, stream_id, secrets)
        self.has_instants = self.needs_stored = True

    @property
    def due_ms(self) -> int | None:
        """When to call `flush` or `due_messages`; None for never."""
        parts = (self._conversation, self._waiting)
        return min((one.due_ms for one in parts if one is not None and one.due_ms is not None), default=None)

    def due_messages(self, now_ms: int, unread_ms: int | None) -> tuple[list[Effect], End | None]:
        """Returns the messages that are due on the socket, and what ends the connection."""
        return ([], None) if self._conversation is None else self._conversation.due_messages(now_ms, unread_ms)

    def closing_messages(self) -> list[Effect]:
        """Returns the last messages on the socket, once."""
        return [] if self._conversation is None else self._conversation.closing_messages()

    def take_answer(self, now_ms: int, opened: Opened, record: Record) -> tuple[list[Effect], End | None]:
        """Returns what follows from the answer, and the end if it is not a stream; notes a stream in `record`."""
        meaning = self._profile.meaning_of_status(opened.status)
        if record.backlog.resumed and is_cursor_refused(self._profile, opened.status):
            self._discards = True
            return [], self._end_of_expired_cursor(now_ms, record, record.liveness.heard_ms, None)
        refusal = judge_answer(self._profile, opened, meaning, now_ms)
        if refusal is not None:
            self._discards = True
            return [], refusal
        asked = record.pending.sent_cursor if self._fallback_cursor is None else self._fallback_cursor
        if self._profile.sequence is not None:
            is_row = self._fallback_cursor is None and self._profile.cursor == self._profile.sequence.path
            after, is_asked = asked if is_row else None, record.backlog.resumed
            self._numbers = HoleFinder(self._profile.sequence, after, self._profile.split, is_asked=is_asked)
        if self._profile.time is not None and record.backlog.resumed:
            self._times = OwnTimes(self._profile.time, opened.headers.get("date", ""), now_ms)
        self._decoder.take_headers(opened.headers)
        said: list[Effect] = (
            [] if self._conversation is None else self._conversation.begin(now_ms, asked, opened.places)
        )
        if self._conversation is not None and not self._conversation.is_complete:
            return said, None
        record.record_opened(now_ms, is_one_json=opened.is_one_json)
        if not record.backlog.resumed or is_resume_confirmed(self._profile, opened, record.pending.sent_cursor or ""):
            return said, None
        record.backlog.record_unknown_cursor(now_ms)
        return said, None

    def retry_without_cursor(self, now_ms: int, status: int, record: Record) -> list[Effect]:
        """Returns another request, without the cursor, if the answer refused it; else nothing."""
        resume = self._profile.resume
        if resume is None or not record.backlog.resumed or not is_cursor_refused(self._profile, status):
            return []
        record.backlog.record_unknown_cursor(now_ms)
        self._fallback_cursor = resume.fallback
        return [Open(resume.fallback)]

    def take_chunk(self, now_ms: int, data: bytes, record: Record) -> tuple[list[Effect], End | None]:
        """Returns what to store and to record of the bytes, and the end if they contain one."""
        if self._discards:
            return [], None
        frames, failure = self._decode(data)
        said: list[Effect] = []
        end: End | None = None
        if self._conversation is not None:
            said, frames, end = self._conversation.take_frames(now_ms, frames, self._decoder, failure)
            if not self._conversation.is_connected:
                self._discards = end is not None
                if end is not None and end.is_expired and record.backlog.resumed:
                    end = self._end_of_expired_cursor(now_ms, record, record.liveness.heard_ms, None)
                return said, end
            if record.opened_ms is None:
                record.record_opened(now_ms)
        decoder, numbers = self._decoder, self._numbers
        last_id, is_inside = decoder.last_event_id, decoder.is_inside_frame
        place, is_resumed = f"{record.fence:012d}", record.backlog.resumed
        reading = read_frames(
            self._profile, frames, last_id, now_ms, place, record.pending.events, is_resumed=is_resumed, numbers=numbers
        )
        if numbers is not None and numbers.goes_on:
            record.backlog.record_continuity()
        goes_on = reading.stop is None and failure is None and end is None
        taken, before_ms = self._take_reading(
            now_ms, reading, record, len(data), ended_some=bool(frames), is_inside=goes_on and is_inside
        )
        if self._conversation is not None:
            said += self._conversation.replies_to_stored(record.pending)
        if goes_on:
            return said + taken, None
        self._discards = True
        # The conversation has explained a refusal.
        if end is None or reading.stop not in (None, Kind.REFUSAL):
            end = self._end_at_stop(now_ms, reading, failure, record, before_ms)
        elif end.is_expired:
            end = self._end_of_expired_cursor(now_ms, record, before_ms, None)
        return said + taken, end

    def _take_reading(
        self, now_ms: int, reading: Reading, record: Record, data_bytes: int, *, ended_some: bool, is_inside: bool
    ) -> tuple[list[Effect], int]:
        """Returns the losses and the writes of what was read, and when the upstream had last sent something before."""
        events, pending, arrived_ms = reading.events, record.pending, record.liveness.arrived_ms
        # Events that the profile leaves out are no sign of idleness: more of the backlog may follow.
        is_idle = not (is_inside or events or reading.losses or reading.left_out)
        goes_to_log = False
        if record.account is not None:
            events = record.account.select_events(now_ms, events)
            goes_to_log = self._waiting is None and record.account.should_switch_to_log(now_ms)
        record.left_out += reading.left_out + len(reading.events) - len(events)
        before_ms = record.record_bytes(
            data_bytes, reading.frames, ended_some=ended_some, is_inside=is_inside, is_idle=is_idle
        )
        if self._times is not None and reading.events:
            brought_ms = self._times.delivered_until_ms(reading.events[-1].data, arrived_ms)
            if record.backlog.has_caught_up_at(arrived_ms):
                self._times = None
            elif brought_ms is not None:
                record.backlog.record_delivery(arrived_ms, brought_ms)
        writes: list[Effect] = []
        if goes_to_log:
            writes.append(GoToLog(record.fence))
            self.gather_events()
        if self._waiting is not None and events:
            joins = self._waiting.add(now_ms, pending.events, events)
            pending.record_sent(events, arrived_ms, joins=joins)
        else:
            for first in range(0, len(events), MOST_EVENTS):
                some = events[first : first + MOST_EVENTS]
                writes.append(Write(record.fence, pending.events, some))
                pending.record_sent(some, arrived_ms)
        if self._budget is not None:
            self._free_memory(record)
        if reading.cursor is not None:
            pending.record_skipped(reading.cursor)
        if self._waiting is not None and events:
            writes += self.flush(now_ms, record, is_leaving=False)
        # A loss is recorded before the events beside it are stored, because the cursor may pass it with any of them.
        losses: list[Effect] = []
        for count in reading.losses:
            losses.append(record.record_loss(now_ms, before_ms, count))
        return losses + writes, before_ms

    def _decode(self, data: bytes) -> tuple[Decoded, FramingError | None]:
        """Returns the frames that the bytes complete, as far as the memory allows, and why no more can be decoded."""
        decoder, budget = self._decoder, self._budget
        most_bytes = 0
        if budget is not None:
            budget.set_held(self._stream_id, decoder.held_bytes + self._unstored_bytes)
            most_bytes = budget.most_bytes(self._stream_id)
            decoder.set_budget(most_bytes - self._unstored_bytes)
            most_bytes = min(most_bytes, decoder.held_bytes + self._unstored_bytes + len(data))
        try:
            frames, failure = decoder.feed(data), None
        except FramingError as error:
            frames, failure = error.frames, error
        if budget is not None:
            if frames:
                # Decoded frames stay in memory until they are stored.
                self._unstored_bytes = max(self._unstored_bytes, most_bytes - decoder.held_bytes)
            budget.set_held(self._stream_id, decoder.held_bytes + self._unstored_bytes)
        return frames, failure

    def replies_to_stored(self, record: Record) -> list[Effect]:
        """Takes note that a write was answered; returns the replies to the events that are stored now."""
        self._free_memory(record)
        return [] if self._conversation is None else self._conversation.replies_to_stored(record.pending)

    def _free_memory(self, record: Record) -> None:
        """Records that the memory of what was taken is free again, if all of it is stored."""
        if self._budget is not None and record.pending.is_stored:
            self._unstored_bytes = 0
            self._budget.set_held(self._stream_id, self._decoder.held_bytes)

    def gather_events(self) -> None:
        """Makes events wait, as long as the profile says, to be written together from now on: the stream has a log."""
        if self._waiting is None:
            # Imported here, because few streams have a log and each import lengthens the cold start.
            from handlers.segments.waiting_events import WaitingEvents

            self._waiting = WaitingEvents(self._profile.flush_ms)
            self.has_instants = True

    def flush(self, now_ms: int, record: Record, *, is_leaving: bool) -> list[Effect]:
        """Returns the write of the waiting events if it is due or the connection leaves."""
        waiting = self._waiting
        if waiting is None or waiting.due_ms is None:
            return []
        # The waiting events must leave memory for the next frame, or even a short one would be too long.
        is_crowded = self._budget is not None and self._unstored_bytes >= self._budget.assured_bytes // 2
        if not (is_leaving or is_crowded or waiting.is_due(now_ms)):
            return []
        # After a standstill the bytes may have come much earlier than they were read, and their end unnoticed since.
        return [Write(record.fence, waiting.first, waiting.take(), record.liveness.heard_ms)]

    @property
    def reconnection_ms(self) -> int | None:
        """Returns the reconnection time that the upstream requested, as the profile bounds it; None for none."""
        asked_ms = self._decoder.reconnection_ms
        return None if asked_ms is None else min(asked_ms, self._profile.retry_max_ms)

    def take_unfinished(self, now_ms: int, record: Record) -> list[Effect]:
        """Returns the write of an unfinished oversize frame's beginning; a second call returns nothing.

        The next connection may read the frame to its end, so this part is stored under a key of its own.
        """
        is_told, self._has_taken_unfinished = self._has_taken_unfinished, True
        frame = None if is_told or self._discards else self._decoder.unfinished_oversize()
        if frame is None or not isinstance(frame.data, Oversize):
            return []
        key = f"unfinished-{hashlib.sha256(frame.data.head).hexdigest()}"
        event = StreamEvent(key, frame.data, frame.id, frame.name, None, now_ms)
        write = Write(record.fence, record.pending.events, (event,))
        record.pending.record_sent((event,), record.liveness.arrived_ms)
        return [write]

    def tail_bytes(self) -> int:
        """Returns how many bytes came after the last delimiter; they are only counted. It is the last call."""
        if self._budget is not None:
            self._budget.set_held(self._stream_id, 0)
        return self._decoder.close()

    def _end_at_stop(
        self, now_ms: int, reading: Reading, failure: FramingError | None, record: Record, before_ms: int
    ) -> End:
        if reading.stop is Kind.END:
            return End(ends.ENDED, "ended")
        if reading.stop is Kind.EXPIRED:
            return self._end_of_expired_cursor(now_ms, record, before_ms, reading.oldest)
        if reading.stop is Kind.DISCONNECT:
            return End(ends.DISCONNECTED, "disconnected_by_upstream", should_check_lease=True)
        assert failure is not None
        # A decoder fails at a frame that is too long only if the profile rejects such frames.
        error = "StreamRejected" if isinstance(failure, FrameTooLong) else "StreamDropped"
        return End(Outcome(error, "", str(failure)), failure.reason)

    def _end_of_expired_cursor(self, now_ms: int, record: Record, heard_ms: int, oldest: str | None) -> End:
        resume = self._profile.resume
        cursor, is_lost = (
            resume.after_expiry(record.pending.last_cursor or "", oldest) if resume is not None else ("", True)
        )
        if not is_lost:
            return End(ends.FORGOTTEN, "disconnected_by_upstream", should_check_lease=True)
        record.record_expired_cursor(now_ms, cursor, heard_ms)
        return End(ends.EXPIRED_CURSOR if oldest is None else ends.PARTLY_FORGOTTEN, CURSOR_EXPIRED)

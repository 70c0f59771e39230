"""Turns the upstream's answer and its bytes into writes, losses, a cursor, and the end if they contain one.

It knows no lease, no phase and no clock. Invariants: nothing behind an end, or behind what cannot be framed, is taken;
the body of a refusal is no part of the stream; what was read before an end is stored nevertheless.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from handlers.connection import ends
from handlers.connection.effects import Effect, Open, Outcome, Write
from handlers.connection.ends import End
from handlers.connection.inputs import Opened
from handlers.connection.judging import is_confirmed, is_expired, judge, refused_as
from handlers.connection.ledger import CURSOR_EXPIRED
from handlers.connection.record import Record
from handlers.framing.events import LEFT_OUT, StreamEvent, cursor_after, cursor_behind, forget_parsed, to_event
from handlers.framing.frames import Decoded, Frame, FrameTooLong, FramingError, as_frames
from handlers.framing.marks import Kind
from handlers.framing.oversize import BufferBudget, Oversize
from handlers.profile.behaviour import Profile

if TYPE_CHECKING:
    from handlers.connection.conversation import Conversation
    from handlers.connection.numbers import Numbers
    from handlers.profile.secret_references import Secrets

# An end and a loss are events as well: what the upstream said is stored. A comment never is.
_STORED = frozenset({Kind.EVENT, Kind.END, Kind.LOSS, Kind.SNAPSHOT})
_STOPS = frozenset({Kind.END, Kind.DISCONNECT, Kind.EXPIRED})
# They are not events, and may say how far the stream has come.
_BESIDE = frozenset({Kind.HEARTBEAT, Kind.DISCONNECT})


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: `frames` counts those that are no comments, `stop` is what ends the connection, if anything.

    `losses` has the number of events of each announced loss, None where the upstream did not say. `oldest` is the
    oldest place that can be asked for, where the frame that stops it names one. `left_out` counts the events that the
    profile does not keep.
    """

    events: tuple[StreamEvent, ...]
    cursor: str | None
    frames: int
    losses: Sequence[int | None]
    stop: Kind | None = None
    oldest: str | None = None
    left_out: int = 0


def read(
    profile: Profile,
    frames: Decoded,
    last_id: str | None,
    now_ms: int,
    place: str,
    first: int,
    *,
    is_resumed: bool,
    numbers: Numbers | None = None,
) -> Reading:
    """Reads `frames` by the rules of `profile`; `place` and its number `first` name an event where nothing else does.

    `last_id` is the last event ID behind them, as the decoder has it. `is_resumed` is whether the connection asked for
    what came after a cursor. What is missing in `numbers` is a loss, announced by the event behind it.
    """
    events: list[StreamEvent] = []
    cursor: str | None = None
    count = left_out = 0
    losses: list[int | None] = []
    splits = profile.split is not None
    batch: Sequence[StreamEvent] = ()
    key = profile.whole_key if splits else profile.key
    # Most framings return frames already; checking it here saves a call for each chunk.
    whole = cast(Sequence[Frame], frames) if frames and isinstance(frames[0], Frame) else as_frames(frames)
    for frame in whole:
        if not splits:
            kind = profile.marks.kind(frame)
        else:
            kind, batch = taken_apart(profile, frame, now_ms)
        count += not frame.is_comment
        if kind is Kind.LOSS:
            losses.append(profile.marks.lost(frame))
        if numbers is not None and kind in _STORED:
            losses += numbers.missing(frame, begins=kind is Kind.SNAPSHOT)
        if kind is Kind.SNAPSHOT and frame.name is None:
            frame = frame._replace(name=kind.value)
        if profile.keep and kind is Kind.EVENT and not batch and not frame.is_comment and not profile.keeps(frame):
            left_out += 1
            after = cursor_after(frame, profile.cursor)
            cursor = after if after is not None else cursor
        elif batch or (kind in _STORED and not frame.is_comment):
            for event in batch or (to_event(frame, now_ms, key=key, cursor=profile.cursor),):
                cursor = event.cursor if event.cursor is not None else cursor
                if event.key == LEFT_OUT:
                    left_out += 1
                    continue
                if profile.key == "each":
                    event = event._replace(key=f"{place}-{first + len(events):09d}")
                events.append(event)
        elif kind in _BESIDE and not frame.is_comment:
            after = profile.cursor_beside(kind, frame, is_resumed=is_resumed)
            cursor = after if after is not None else cursor
        if kind in _STOPS:
            oldest = profile.oldest_after(frame) if kind is Kind.EXPIRED else None
            return Reading(tuple(events), cursor, count, losses, kind, oldest, left_out)
    forget_parsed()
    after = cursor_behind(last_id, profile.cursor)
    cursor = after if after is not None else cursor
    return Reading(tuple(events), cursor, count, losses, left_out=left_out)


def taken_apart(profile: Profile, frame: Frame, now_ms: int) -> tuple[Kind, Sequence[StreamEvent]]:
    """Reads `frame` for a profile that splits, and returns the events of its elements; none where it is not a batch."""
    # First, for it parses the frame as `kind` does, and also notes where the elements are in it.
    batch = profile.events(frame, now_ms)
    kind = profile.kind(frame)
    if batch:
        return (Kind.EVENT if kind is Kind.HEARTBEAT else kind), batch
    is_empty = batch is not None and kind is Kind.EVENT
    return (Kind.HEARTBEAT if is_empty else kind), ()


# As many events as one Write holds: a chunk may hold thousands. The cursor moves on with each Write, and how long a
# throttled table is asked again counts for each.
MOST_EVENTS = 250


class Intake:
    """The intake of one connection: it is given what the upstream sent, in order."""

    def __init__(self, profile: Profile, budget: BufferBudget | None = None) -> None:
        self._profile = profile
        self._budget = budget
        self._unstored_bytes = 0
        self._decoder = profile.decoder()
        self._discards = False
        self.has_instants = False  # whether `due_ms` can be anything but None
        self._told_unfinished = False
        self._waiting: Waiting | None = None  # None where each event is an item
        self._due_ms: int | None = None  # when what waits is to be written; None where nothing waits
        self._talk: Conversation | None = None
        self._numbers: Numbers | None = None
        self._afresh: str | None = None  # where it began instead, after the upstream refused the cursor

    def speaks(self, stream_id: str, secrets: Secrets) -> None:
        """From the answer on the connection sends this stream's messages."""
        # Imported here: few streams send messages, and each import lengthens the cold start.
        from handlers.connection.conversation import Conversation, Speaker

        self._talk = Conversation(Speaker(self._profile, stream_id, secrets))
        self.has_instants = True

    @property
    def due_ms(self) -> int | None:
        """When `flush` or `passes` is to be called; None for never."""
        talk_ms = None if self._talk is None else self._talk.due_ms
        return min((ms for ms in (self._due_ms, talk_ms) if ms is not None), default=None)

    def passes(self, now_ms: int) -> tuple[list[Effect], End | None]:
        """Returns the messages that are due on the socket, and what ends the connection."""
        return ([], None) if self._talk is None else self._talk.passes(now_ms)

    def leaves(self) -> list[Effect]:
        """Returns the last messages on the socket, once."""
        return [] if self._talk is None else self._talk.leaves()

    def answer(self, now_ms: int, opened: Opened, record: Record) -> tuple[list[Effect], End | None]:
        """Returns what follows from the answer, and why it is not a connection; where it is one, `record` says so."""
        meaning = self._profile.meaning(opened.status)
        if record.resumed and is_expired(self._profile, opened.status):
            self._discards = True
            return [], self._cursor_expired(now_ms, record, record.liveness.heard_ms, None)
        refusal = judge(self._profile, opened, meaning)
        if refusal is not None:
            self._discards = True
            return [], End(refusal, refused_as(refusal))
        asked = record.pending.asked_from if self._afresh is None else self._afresh
        if self._profile.sequence is not None:
            self._numbers = _numbers(self._profile, asked if record.resumed else None)
        self._decoder.opens(opened.headers)
        said: list[Effect] = [] if self._talk is None else self._talk.begins(now_ms, asked, opened.places)
        if self._talk is not None and not self._talk.is_complete:
            return said, None
        record.opened(now_ms)
        if not record.resumed or is_confirmed(self._profile, opened, record.pending.asked_from or ""):
            return said, None
        record.cursor_unknown(now_ms)
        return said, None

    def afresh(self, now_ms: int, status: int, record: Record) -> list[Effect]:
        """Returns the request for what happens from now on, where the answer refused the cursor; else nothing."""
        resume = self._profile.resume
        if resume is None or not record.resumed or not is_expired(self._profile, status):
            return []
        record.cursor_unknown(now_ms)
        self._afresh = resume.fallback
        return [Open(resume.fallback)]

    def chunk(self, now_ms: int, data: bytes, record: Record) -> tuple[list[Effect], End | None]:
        """Returns what to store and to record of the bytes, and what in them ends the connection."""
        if self._discards:
            return [], None
        frames, failure = self._decoded(data)
        said: list[Effect] = []
        end: End | None = None
        if self._talk is not None:
            said, frames, end = self._talk.takes(now_ms, frames, self._decoder, failure)
            if not self._talk.is_connected:
                self._discards = end is not None
                return said, end
            if record.opened_ms is None:
                record.opened(now_ms)
        last_id, is_inside = self._decoder.last_event_id, self._decoder.is_inside_frame
        place = f"{record.fence:012d}"
        reading = read(
            self._profile,
            frames,
            last_id,
            now_ms,
            place,
            record.events,
            is_resumed=record.resumed,
            numbers=self._numbers,
        )
        if self._numbers is not None and self._numbers.goes_on:
            record.reaches_cursor()
        goes_on = reading.stop is None and failure is None and end is None
        is_inside = goes_on and is_inside
        # Events that the profile leaves out are no idleness either: more of the backlog may follow.
        is_idle = not (is_inside or reading.events or reading.losses or reading.left_out)
        events = reading.events
        if record.account is not None:
            events = record.account.keeps(now_ms, events)
        record.left_out += reading.left_out + len(reading.events) - len(events)
        before_ms = record.heard(
            len(data), reading.frames, ended_some=bool(frames), is_inside=is_inside, is_idle=is_idle
        )
        writes = self._writes(now_ms, events, record)
        if self._budget is not None:
            self.stored(record)
        if reading.cursor is not None:
            record.pending.skipped(reading.cursor)
        # A loss is recorded before the events beside it are stored: the cursor may pass it with any of them.
        losses: list[Effect] = []
        for count in reading.losses:
            losses.append(record.lost(now_ms, before_ms, count))
        if goes_on:
            return said + losses + writes, None
        self._discards = True
        if end is None or reading.stop is not None:
            end = self._stopped(now_ms, reading, failure, record, before_ms)
        elif end.is_expired:
            end = self._cursor_expired(now_ms, record, before_ms, None)
        return said + losses + writes, end

    def _decoded(self, data: bytes) -> tuple[Decoded, FramingError | None]:
        """Returns the frames that the bytes complete, as far as there is room for them, and why no more can follow."""
        decoder, budget = self._decoder, self._budget
        most_bytes = 0
        if budget is not None:
            most_bytes = budget.most_bytes(decoder.held_bytes + self._unstored_bytes)
            decoder.allows(most_bytes - self._unstored_bytes)
            most_bytes = min(most_bytes, decoder.held_bytes + self._unstored_bytes + len(data))
        try:
            frames, failure = decoder.feed(data), None
        except FramingError as error:
            frames, failure = error.frames, error
        if budget is not None:
            if frames:
                # What was decoded stays in memory until it is stored.
                self._unstored_bytes = max(self._unstored_bytes, most_bytes - decoder.held_bytes)
            budget.holds(decoder.held_bytes + self._unstored_bytes)
        return frames, failure

    def stored(self, record: Record) -> None:
        """Records that a write is answered, or that none was needed: its memory is free again."""
        if self._budget is not None and record.pending.is_stored:
            self._unstored_bytes = 0
            self._budget.holds(self._decoder.held_bytes)

    def gathers(self, flush_ms: int) -> None:
        """From now on events wait for up to `flush_ms` to be written together: the stream's events lie in a log."""
        self._waiting = Waiting(flush_ms)
        self.has_instants = True

    def flush(self, now_ms: int, record: Record, *, is_leaving: bool) -> list[Effect]:
        """Returns the write of what waits, where it is due or the connection leaves."""
        waiting = self._waiting
        if waiting is None or waiting.due_ms is None:
            return []
        # What waits must leave memory for the next frame, or even a short one would be too long.
        is_crowded = self._budget is not None and self._unstored_bytes >= self._budget.sure_bytes // 2
        if not (is_leaving or is_crowded or waiting.is_due(now_ms)):
            return []
        self._due_ms = None
        return [Write(record.fence, waiting.first, waiting.take())]

    def _writes(self, now_ms: int, read_events: tuple[StreamEvent, ...], record: Record) -> list[Effect]:
        """Returns the writes of what was read, except what waits for more."""
        if self._waiting is not None and read_events:
            if self._waiting.add(now_ms, record.events, read_events):
                record.joins(read_events)
            else:
                record.sent(read_events)
            self._due_ms = self._waiting.due_ms
            return self.flush(now_ms, record, is_leaving=False)
        writes: list[Effect] = []
        for first in range(0, len(read_events), MOST_EVENTS):
            events = read_events[first : first + MOST_EVENTS]
            writes.append(Write(record.fence, record.events, events))
            record.sent(events)
        return writes

    @property
    def reconnection_ms(self) -> int | None:
        """Returns how long the upstream wants to be left alone before the next connection, at most as the profile says.

        None where it asked for nothing.
        """
        asked_ms = self._decoder.reconnection_ms
        return None if asked_ms is None else min(asked_ms, self._profile.retry_max_ms)

    def unfinished(self, now_ms: int, record: Record) -> list[Effect]:
        """Returns the write of what came of a skipped frame that has not ended; once, and nothing after.

        The next connection may read it to its end, so this part is stored under a key of its own.
        """
        is_told, self._told_unfinished = self._told_unfinished, True
        frame = None if is_told or self._discards else self._decoder.unfinished_oversize()
        if frame is None or not isinstance(frame.data, Oversize):
            return []
        key = f"unfinished-{hashlib.sha256(frame.data.head).hexdigest()}"
        event = StreamEvent(key, frame.data, frame.id, frame.name, None, now_ms)
        write = Write(record.fence, record.events, (event,))
        record.sent((event,))
        return [write]

    def tail_bytes(self) -> int:
        """Returns how many bytes came after the last delimiter: no event, only counted. Nothing is read after."""
        if self._budget is not None:
            self._budget.holds(0)
        return self._decoder.close()

    def _stopped(
        self, now_ms: int, reading: Reading, failure: FramingError | None, record: Record, before_ms: int
    ) -> End:
        if reading.stop is Kind.END:
            return End(ends.ENDED, "ended")
        if reading.stop is Kind.EXPIRED:
            return self._cursor_expired(now_ms, record, before_ms, reading.oldest)
        if reading.stop is Kind.DISCONNECT:
            return End(ends.DISCONNECTED, "disconnected_by_upstream", asks_lease=True)
        assert failure is not None
        # Only a profile that rejects what is too long makes a decoder fail for that.
        error = "StreamRejected" if isinstance(failure, FrameTooLong) else "StreamDropped"
        return End(Outcome(error, "", str(failure)), failure.reason)

    def _cursor_expired(self, now_ms: int, record: Record, heard_ms: int, oldest: str | None) -> End:
        resume = self._profile.resume
        cursor, is_lost = resume.after_expiry(record.pending.last or "", oldest) if resume is not None else ("", True)
        if not is_lost:
            return End(ends.FORGOTTEN, "disconnected_by_upstream", asks_lease=True)
        record.cursor_expired(now_ms, cursor, heard_ms)
        return End(ends.EXPIRED_CURSOR if oldest is None else ends.PARTLY_FORGOTTEN, CURSOR_EXPIRED)


def _numbers(profile: Profile, after: str | None) -> Numbers:
    from handlers.connection.numbers import Numbers

    assert profile.sequence is not None
    return Numbers(profile.sequence, after if profile.cursor == profile.sequence.path else None)


class Waiting:
    """The events that wait, where the stream's events lie in a log, until they are appended together.

        0.0 s  two events arrive       they wait until 1.0 s
        0.4 s  a third                 it waits with them
        1.0 s  one write of three

    They are written earlier when they fill a segment, and at once when the connection leaves. Invariant: no event waits
    longer than `flush_ms` after the first of those that wait.
    """

    def __init__(self, flush_ms: int) -> None:
        # Imported here: few streams have a log, and each import lengthens the cold start.
        from handlers.segments.codec import WAITING_BYTES, event_bytes

        self._most_bytes, self._event_bytes = WAITING_BYTES, event_bytes
        self._flush_ms = flush_ms
        self._events: list[StreamEvent] = []
        self._bytes = 0
        self.first = 0
        self.due_ms: int | None = None  # None while nothing waits

    def add(self, now_ms: int, first: int, events: Iterable[StreamEvent]) -> bool:
        """Adds events, of which the first is the connection's `first`; returns whether others waited before."""
        had_some = self.due_ms is not None
        if not had_some:
            self.first, self.due_ms = first, now_ms + self._flush_ms
        before = len(self._events)
        self._events += events
        self._bytes += sum(map(self._event_bytes, self._events[before:]))
        return had_some

    def is_due(self, now_ms: int) -> bool:
        """Whether the waiting events are to be written now."""
        return self.due_ms is not None and (now_ms >= self.due_ms or self._bytes >= self._most_bytes)

    def take(self) -> tuple[StreamEvent, ...]:
        """Returns the waiting events, in order; none wait any more."""
        events, self._events = tuple(self._events), []
        self._bytes, self.due_ms = 0, None
        return events

"""Decides how a writer appends events to a stream's log: each once and in order, even if others append too.

A log consists of segments with consecutive numbers. A segment is written once and never changed: the store takes it
only if its number is free. So a writer that gets a number has read everything before it. One conditional write stores
the events, saves the cursor after them and keeps the order.

    LookBack(None)        -> Page(segment 7)     where the log ends, and the cursor
    LookBack(7)           -> Page(6, 5, …)       back over the window, before the first append
    ReadOn(8)             -> Page()              nothing was appended since it opened
    Put(8, events 1 to 3) -> False               another writer was first
    ReadOn(8)             -> Page(8)             it has event 2
    Put(9, events 1, 3)   -> True                Appended(stored 2, duplicates 1)

A writer that finds its number taken reads what was written there, drops its own duplicates and continues after it.
After a lost answer it recognises its own segment by its token and the number of its first event. A request that arrives
late finds its number taken and changes nothing.

The last segment says where to resume; a writer with an older token keeps a newer one's cursor. If segments expire, an
anchor that does not expire keeps an empty log from reusing old numbers. DynamoDB deletes what has expired in any order:
behind a last segment that has expired, a writer leaves out as many numbers as later ones may have had.

Invariants: no key is appended twice within the window; a writer's events are appended in order; the log's cursor passes
no event that is not in the log, and never goes back to an older token's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from handlers.connection.epochs import Epochs, alternative_keys
from handlers.framing.events import StreamEvent
from handlers.segments.known_keys import HASH_BYTES, KnownKeys, body_sum, key_hash
from handlers.segments.log_requests import (
    Anchor,
    Answer,
    Appended,
    Cursor,
    LogBusy,
    LookBack,
    Page,
    Put,
    ReadOn,
    Request,
    Segment,
)

# How far after the anchor, or after an expired segment, a log continues: more than a connection appends in its life, or
# than a partition takes in the two days within which DynamoDB deletes what has expired.
JUMP = 1_000_000
# How often one append may find its number taken. With two writers that rarely happens twice.
MOST_TRIES = 50


class Appender:
    """One connection's view of the log; `fence` is its token. One request is under way at a time.

    Keys are remembered for `window_ms`, in `known` if that is given. `anchors` is True if segments expire. `epochs` are
    the connection's, None if bodies are not compared.
    """

    def __init__(
        self, fence: int, window_ms: int, *, anchors: bool, known: KnownKeys | None = None, epochs: Epochs | None = None
    ) -> None:
        self._fence = fence
        self._window_ms = window_ms
        self._anchors = anchors
        self._known = known or KnownKeys()
        self._next = 0  # 0 until it has read where the log ends
        self._last_ms = 0  # when the last segment was made
        self._back_to: int | None = None  # the oldest segment read so far; None once it has read far enough
        self._anchor = -1  # as it was last read
        self._skips = 0  # numbers to leave out, because segments after the last one may have expired before it
        # Before the first append it reads the end of the log again: the previous connection appends once more when it
        # leaves, and a read costs a fifth of a refused write.
        self._reads_on = False
        self._now_ms = 0
        self._first = self._tries = 0
        self._events: Sequence[StreamEvent] = ()
        self._came_ms: int | None = None
        self._request: Request | None = None
        self.epochs = self._epochs_after = epochs
        self._conflicts = 0
        self._passed = 0  # how many of the events the cursor may pass: none from the first dropped one on
        self.cursor: Cursor | None = None

    @property
    def has_all_keys(self) -> bool:
        """Whether it knows every key of the window; False if there were too many."""
        return not self._known.is_full

    def has(self, key: str) -> bool:
        """Whether it knows an event with this dedup key."""
        return key_hash(key) in self._known

    def find_end(self, now_ms: int) -> Request:
        """Begins to find the log's end; `answered` returns None once that and the cursor are known."""
        self._now_ms, self._reads_on = now_ms, True
        return self._set_request(LookBack(None))

    def append(
        self, now_ms: int, first: int, events: Sequence[StreamEvent], came_ms: int | None = None
    ) -> Request | Appended | None:
        """Begins to append events; `first` and `came_ms` as in Write. Appends follow one another."""
        self._now_ms, self._first, self._events, self._tries = now_ms, first, events, 0
        self._came_ms = came_ms
        self._known.forget(now_ms - self._window_ms)
        return self._proceed()

    def answered(self, answer: Answer) -> Request | Appended | None:
        """Returns what follows from the answer to the last request: another request, or the end. Raises LogBusy."""
        request = self._request
        match request:
            case LookBack(None):
                assert isinstance(answer, Page)
                return self._take_end(answer)
            case LookBack():
                assert isinstance(answer, Page)
                self._take_older(answer)
            case Put(segment):
                if answer:
                    self._learn(segment)
                    return self._finish(segment.keys)
                self._tries += 1
                if self._tries == MOST_TRIES:
                    raise LogBusy
                return self._set_request(ReadOn(segment.number))
            case ReadOn(number):
                assert isinstance(answer, Page)
                self._reads_on = False
                own = [one for one in answer.segments if self._is_own(one, number)]
                for segment in answer.segments:
                    self._learn(segment)
                if own:
                    return self._finish(own[0].keys)
                if not answer.is_end:
                    return self._set_request(ReadOn(self._next))
            case Anchor():
                self._anchors = False
        return self._proceed()

    # --- where the log ends -------------------------------------------------------------------------------------------

    def _take_end(self, page: Page) -> Request | Appended | None:
        if not page.segments and page.anchor != self._anchor and page.anchor:
            # Everything has expired, or another writer began anew between two reads: its segment is there now.
            self._anchor = page.anchor
            return self._set_request(LookBack(None))
        if not page.segments:
            self._next = page.anchor + JUMP if page.anchor else 1
            return self._proceed() if self._events else None
        last, *older = page.segments
        self._learn(last)
        self._back_to, self._skips = last.number, JUMP if page.is_expired else 0
        if self._is_far_enough(last.at_ms):
            self._back_to = None
        else:
            self._take_older(Page(older, page.is_end))
        return self._proceed() if self._events else None

    def _take_older(self, page: Page) -> None:
        for segment in page.segments:
            if self._is_far_enough(segment.at_ms):
                self._back_to = None
                return
            self._known.add_older(segment.at_ms, segment.keys, segment.bodies)
            self._back_to = segment.number
        if page.is_end:
            self._back_to = None

    def _is_far_enough(self, at_ms: int) -> bool:
        # No segment is made earlier than the one before it, so all earlier ones are too old as well.
        return self._known.is_full or at_ms < self._now_ms - self._window_ms

    def _learn(self, segment: Segment) -> None:
        """Learns the keys of a segment that follows all known ones."""
        # At a handover both connections bring the same events, and an upstream may write the connection's name into
        # each.
        bodies = segment.bodies if segment.fence <= self._fence else b""
        self._known.add(segment.at_ms, segment.keys, bodies)
        self._next, self._last_ms, self.cursor = segment.number + 1, segment.at_ms, segment.cursor
        self._skips = 0

    # --- one append ---------------------------------------------------------------------------------------------------

    def _proceed(self) -> Request | Appended | None:
        """Returns the next request, or the end if no event is new."""
        if not self._next:
            return self._set_request(LookBack(None))
        if self._back_to is not None:
            return self._set_request(LookBack(self._back_to))
        fresh, self._epochs_after, self._conflicts = self._known.select_unknown(self._events), self.epochs, 0
        self._passed = len(self._events)
        if self.epochs is not None and len(fresh) < len(self._events):
            fresh = self._place_events(replace(self.epochs))
        if not fresh:
            return self._finish(b"")
        if self._reads_on:
            return self._set_request(ReadOn(self._next))
        self._next, self._skips = self._next + self._skips, 0
        if self._anchors:
            return self._set_request(Anchor(self._next - 1))
        # The time never goes back, even if the clock was set back: readers search the segments by time.
        at_ms = max(self._now_ms, self._last_ms, *[event.received_at_ms for event in fresh.values()])
        bodies = b"".join([body_sum(event).to_bytes(4) for event in fresh.values()]) if self.epochs else b""
        keys, cursor = b"".join(fresh), self._cursor_after_events()
        events = tuple(fresh.values())
        came_ms = None if self._came_ms is None or self._came_ms >= events[-1].received_at_ms else self._came_ms
        segment = Segment(self._next, self._fence, self._first, at_ms, keys, cursor, bodies, came_ms)
        return self._set_request(Put(segment, events))

    def _place_events(self, epochs: Epochs) -> dict[bytes, StreamEvent]:
        """Returns the new events, each under the first of its keys that is free; counts the others."""
        fresh: dict[bytes, StreamEvent] = {}
        self._epochs_after = epochs
        for count, event in enumerate(self._events, self._first):
            body, came_ms = body_sum(event), self._now_ms
            is_known = is_conflict = False
            other_ms = 0
            for key in chain((event.key,), alternative_keys(event.key) if epochs.begins else ()):
                digest = key_hash(key)
                known = (came_ms, body_sum(fresh[digest])) if digest in fresh else self._known.last_seen(digest)
                if known is None:
                    fresh[digest] = event._replace(key=key)
                    break
                is_current, is_same = epochs.is_in_newest(known[0]), known[1] in (0, body)
                if is_current and is_same:
                    came_ms, is_known = known[0], True
                    break
                is_conflict, other_ms = is_conflict or is_current, known[0]
            else:
                # If a kill comes before the record counts it, the next connection must receive it again.
                self._passed = min(self._passed, count - self._first)
            if is_conflict:
                epochs.record_conflict(count, event.key, came_ms, self._now_ms, other_ms)
                self._conflicts += not is_known
        return fresh

    def _cursor_after_events(self) -> Cursor | None:
        """Returns the cursor after the events; the log's own if none has one or a newer connection saved the log's."""
        passed = self._events[: self._passed]
        last = next((event for event in reversed(passed) if event.cursor is not None), None)
        if last is None or last.cursor is None or (self.cursor is not None and self.cursor.fence > self._fence):
            return self.cursor
        came_ms = last.received_at_ms if self._came_ms is None else min(last.received_at_ms, self._came_ms)
        return Cursor(self._fence, self._now_ms, last.cursor, came_ms)

    def _is_own(self, segment: Segment, number: int) -> bool:
        """Whether an earlier try of this append, whose answer was lost, wrote the segment."""
        return (segment.number, segment.fence, segment.first) == (number, self._fence, self._first)

    def _finish(self, keys: bytes) -> Appended:
        stored = len(keys) // HASH_BYTES
        appended = Appended(stored, len(self._events) - stored, self._conflicts)
        self._events, self._request, self.epochs = (), None, self._epochs_after
        return appended

    def _set_request(self, request: Request) -> Request:
        self._request = request
        return request

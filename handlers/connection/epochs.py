"""Recognizes an upstream whose ids start over, and chooses the keys of its events from then on.

A server that restarts and counts from 1 again gives new events the ids of old ones. A single known key with another
body may be a correction. Several in a row, over connections too, mean that the ids start over: a new *epoch* of keys
begins.

    stored are 1 to 57; on one connection come 1 2 3 with other bodies      the third begins an epoch
    1 -> "1#1"   2 -> "2#1"   3 -> "3#1"   …   57 -> "57#1"   58 -> "58"    each takes its first key that is free

Which key is the first free one depends only on what is stored, not on what a writer knows of epochs. So the events
before the third are stored where the new epoch will look for them. And if two writers know of different epochs, the
first stores the event and the second finds it.

An id that is a number shows more: new events whose ids are no larger than the cursor that was sent belong to a new
count; events that follow the cursor do not. So a connection that begins with such events (`RestartDetector`) proves
nothing about the time before it.

Pure. Invariant: an event counts as known only if its body is the same, and only since the newest epoch began.
"""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from handlers.connection.inputs import Written
from handlers.framing.events import MAX_KEY_BYTES, OnConflict, StreamEvent
from handlers.values import dataclass

# How many known keys in a row with other bodies begin an epoch.
IN_A_ROW = 3
# How far apart two writers' clocks may be.
SLACK_MS = 10_000
# How long a restart is shown after it was last recognized, and how often that is recorded.
SHOWN_MS, AGAIN_MS = 3_600_000, 60_000
# Text with as many digits is a name, not a number.
MOST_DIGITS = 40
# How many keys of one event may be taken already; beyond that the event is not stored.
MOST_KEYS = 1_000


class Epoch(NamedTuple):
    """How many epochs have begun, and since when the newest one's events come; `seen_ms` is when it was recognized.

    If the profile begins no epochs, a restart is recognized again and again. `is_stored` says whether such events are
    stored.
    """

    number: int = 0
    since_ms: int = 0
    seen_ms: int = 0
    is_stored: bool = False


NO_EPOCH = Epoch()


class Row(NamedTuple):
    """How many known keys came in a row with other bodies, and since when; `key` is the newest.

    `unreported` of these events are not stored, and no loss counts them yet.
    """

    length: int = 0
    since_ms: int = 0
    unreported: int = 0
    key: str = ""

    def to_text(self, from_ms: int) -> str:
        """Returns it as a text for `epochs_of`; "" for none. The first happened at `from_ms`, 0 if that is unknown."""
        since_ms = min(from_ms or self.since_ms, self.since_ms)
        return "/".join(map(str, self._replace(since_ms=since_ms))) if self.length else ""


NO_ROW = Row()


def describe_restart(epoch: Epoch, now_ms: int) -> str:
    """Returns what to report about a stream in this epoch; "" if its ids have not started over recently."""
    if not epoch.seen_ms or now_ms >= epoch.seen_ms + SHOWN_MS:
        return ""
    how = "are stored under new keys" if epoch.is_stored else 'are not stored unless on_conflict is "epoch"'
    return f"its ids start over: new events with known ids {how}"


def alternative_keys(key: str) -> Iterator[str]:
    """The keys that an event may get instead of its own, in the order in which they are tried."""
    if len(key.encode()) + len(f"#{MOST_KEYS}") > MAX_KEY_BYTES:
        key = hashlib.sha256(key.encode()).hexdigest()
    return (f"{key}#{number}" for number in range(1, MOST_KEYS + 1))


@dataclass
class Epochs:
    """The epochs that one connection knows; `begins` is whether its profile begins new ones, `is_stored` as in Epoch.

    `row` may have begun on an earlier connection: on a slow stream each one brings only an event or two. `depth` is how
    many keys of the last event were taken already: as many of the next event's are read together. `beside_ms` is when
    the connection before opened, if it may still be open: both may bring what came since. `is_beside` is whether they
    may have brought the last event that `record_conflict` recorded. `is_resumed` is whether the connection requested
    what came after a cursor.
    """

    epoch: Epoch
    begins: bool
    is_stored: bool
    depth: int = 0
    beside_ms: int | None = None
    is_beside: bool = False
    is_resumed: bool = True
    row: Row = NO_ROW
    _last: int = -1
    _lost: tuple[int, int] = (0, 0)

    def is_in_newest(self, at_ms: int) -> bool:
        """Whether an event that came at `at_ms` belongs to the newest epoch."""
        return not self.begins or at_ms >= self.epoch.since_ms - SLACK_MS

    def record_conflict(self, count: int, key: str, came_ms: int, now_ms: int, other_ms: int) -> None:
        """Records that the connection's event `count` has another body than one of this epoch with its key.

        The event first came at `came_ms`, the other one at `other_ms`. The last of several in a row begins an epoch, as
        of when the first of them came. An event that is repeated counts once.
        """
        # A restart ends every connection: what came before the other one opened is another event.
        self.is_beside = self.beside_ms is not None and other_ms >= self.beside_ms
        if self.begins and other_ms < self.epoch.since_ms:
            return  # the other one is from before the newest epoch, and is compared only because clocks may differ
        row, known = self.row if count == self._last + 1 else NO_ROW, self.epoch
        self._last = count
        # Without a cursor nothing is repeated: a server that fails after each first event numbers all of them 1.
        is_repeated = key == row.key and (self.is_resumed or count > 0)
        if not is_repeated:
            since_ms = min(row.since_ms or came_ms, came_ms)
            row = Row(row.length + 1, since_ms, row.unreported + (not self.is_stored), key)
        if row.length >= IN_A_ROW and self.begins:
            self.epoch, row = Epoch(known.number + 1, row.since_ms, now_ms, True), NO_ROW
        elif row.length >= IN_A_ROW and not self.is_beside and now_ms >= known.seen_ms + AGAIN_MS:
            goes_on = now_ms < known.seen_ms + SHOWN_MS
            since_ms = known.since_ms if goes_on else row.since_ms
            self.epoch = Epoch(known.number, since_ms, now_ms, self.is_stored)
        # Both connections of a handover may bring an event with other bodies, as of an upstream that writes its time
        # into each. The row ends with what both brought; if it goes on, all of it counts.
        if row.unreported and describe_restart(self.epoch, now_ms) and not self.is_beside:
            lost, from_ms = self._lost
            self._lost = lost + row.unreported, min(from_ms or row.since_ms, row.since_ms)
            row = row._replace(since_ms=0, unreported=0)
        self.row = row

    def take_lost(self, count: int) -> tuple[int, int]:
        """Returns how many events are known to be lost since the last call, and since when; `count` came in all."""
        lost, self._lost = self._lost, (0, 0)
        if self._last != count - 1:
            self.row = NO_ROW
        return lost


class RestartDetector:
    """Counts the events of a restarted count that come first on a connection which resumed after a cursor.

    `row` is their number: it is 0 again once an event comes that follows the cursor, unless enough came before that. A
    known event shows nothing: another connection of the new count may have brought it.
    """

    def __init__(self, cursor: str) -> None:
        self.row = 0
        self._is_over = False
        self._asked, self._last = _number(cursor), -1
        # For each unanswered write: how many of its events have no larger ids than the cursor, how many of those may be
        # repeated, and whether others have larger ids; None if they cannot be compared.
        self._before: deque[tuple[int, int, bool] | None] = deque()

    def record_sent(self, events: Sequence[StreamEvent], *, joins: bool) -> None:
        """Records the events of a write; with `joins` they are part of the newest one."""
        if self._is_over:
            return
        before, again, follows, is_number = 0, 0, False, self._asked is not None
        # In a batch only the last event has a cursor.
        for event in [event for event in events if event.cursor is not None] or events[-1:]:
            number = _number(event.cursor)
            is_number = is_number and number is not None
            follows = follows or (number or 0) > (self._asked or 0)
            if not follows:
                before, again = before + 1, again + ((number or 0) <= self._last)
                self._last = max(self._last, number or 0)
        if joins and (same := self._before.pop()) is not None:
            before, again, follows = before + same[0], again + same[1], follows or same[2]
        self._before.append((before, again, follows) if is_number else None)

    @property
    def is_clear(self) -> bool:
        """Whether nothing is doubtful, whatever comes."""
        return self._is_over and not self.row

    @property
    def is_doubtful(self) -> bool:
        """Whether nothing is proved: such events came, or some of which it is not known yet whether they are new."""
        waiting = () if self._is_over else (sent for sent in self._before if sent is not None)
        return self.row > 0 or any(before >= (IN_A_ROW if follows else 1) for before, _, follows in waiting)

    def record_stored(self, written: Written, *, drops: bool) -> None:
        """Records the answer to the oldest write; `drops` is whether other bodies under known keys are not stored."""
        if self._is_over:
            return
        count = written.stored + written.duplicates + written.dead_lettered
        sent = self._before.popleft()
        if sent is None:
            # Both connections of a handover may bring the same events with other bodies.
            row, follows = 0 if written.is_beside else written.conflicts, written.conflicts < count
        else:
            # At least this many of the events before the cursor are new, even if all others are. A repeated event is
            # stored once, but may conflict each time.
            before, again, follows = sent
            conflicts = max(0, written.conflicts - again) if drops else 0
            row = max(0, written.stored + written.dead_lettered + conflicts - (count - before))
        self._is_over = follows or self.row + row >= IN_A_ROW
        self.row = 0 if follows and self.row + row < IN_A_ROW else self.row + row


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < MOST_DIGITS else None


def epochs_of(on_conflict: OnConflict | None, epoch: Epoch = NO_EPOCH, row: str = "") -> Epochs:
    """Returns the epochs for a connection that opens in this epoch, by its profile; `row` is from `Row.to_text`."""
    parts = row.split("/", 3)
    is_row = len(parts) == len(Row._fields) and all(map(str.isdecimal, parts[:3]))
    before = Row(int(parts[0]), int(parts[1]), int(parts[2]), parts[3]) if is_row else NO_ROW
    return Epochs(epoch, on_conflict == "epoch", on_conflict != "first", row=before)

"""Recognizes an upstream whose ids start over, and chooses the keys of its events from then on.

A server that restarts and counts from 1 again gives new events the ids of old ones. A single known key with another
body may be a correction. Several in a row, on one connection, mean that the ids start over: a new *epoch* of keys
begins.

    stored are 1 to 57; on one connection come 1 2 3 with other bodies      the third begins an epoch
    1 -> "1#1"   2 -> "2#1"   3 -> "3#1"   …   57 -> "57#1"   58 -> "58"    each takes its first key that is free

Which key is the first free one depends only on what is stored, not on what a writer knows of epochs. So the events
before the third are stored where the new epoch will look for them. And if two writers know of different epochs, the
first stores the event and the second finds it.

Pure. Invariant: an event counts as known only if its body is the same, and only since the newest epoch began.
"""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from handlers.framing.events import MAX_KEY_BYTES, OnConflict
from handlers.values import dataclass

# How many known keys in a row with other bodies begin an epoch.
IN_A_ROW = 3
# How far apart two writers' clocks may be.
SLACK_MS = 10_000
# How long a restart is shown after it was last recognized, and how often that is recorded.
SHOWN_MS, AGAIN_MS = 3_600_000, 60_000
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


def words(epoch: Epoch, now_ms: int) -> str:
    """Returns what to report about a stream in this epoch; "" if its ids have not started over recently."""
    if not epoch.seen_ms or now_ms >= epoch.seen_ms + SHOWN_MS:
        return ""
    how = "are stored under new keys" if epoch.is_stored else 'are not stored unless on_conflict is "epoch"'
    return f"its ids start over: new events with known ids {how}"


def other_keys(key: str) -> Iterator[str]:
    """The keys that an event may get instead of its own, in the order in which they are tried."""
    if len(key.encode()) + len(f"#{MOST_KEYS}") > MAX_KEY_BYTES:
        key = hashlib.sha256(key.encode()).hexdigest()
    return (f"{key}#{number}" for number in range(1, MOST_KEYS + 1))


@dataclass
class Epochs:
    """The epochs that one connection knows; `begins` is whether its profile begins new ones, `is_stored` as in Epoch.

    `depth` is how many keys of the last event were taken already: as many of the next event's are read together.
    `is_beside` is whether the connection before may be open too: then both may bring the same events.
    """

    epoch: Epoch
    begins: bool
    is_stored: bool
    depth: int = 0
    is_beside: bool = False
    _row: int = 0
    _since_ms: int = 0
    _last: int = -1

    def has(self, at_ms: int) -> bool:
        """Whether an event that came at `at_ms` belongs to the newest epoch."""
        return not self.begins or at_ms >= self.epoch.since_ms - SLACK_MS

    def met(self, count: int, came_ms: int, now_ms: int) -> None:
        """Records that the connection's event `count` has another body than one of this epoch with its key.

        The event first came at `came_ms`. The last of several in a row begins an epoch, as of when the first of them
        came.
        """
        follows = self._row and count == self._last + 1
        self._row, self._since_ms = (self._row + 1, min(self._since_ms, came_ms)) if follows else (1, came_ms)
        self._last, known = count, self.epoch
        if self._row >= IN_A_ROW and self.begins:
            self.epoch, self._row = Epoch(known.number + 1, self._since_ms, now_ms, True), 0
        elif self._row >= IN_A_ROW and not self.is_beside and now_ms >= known.seen_ms + AGAIN_MS:
            goes_on = now_ms < known.seen_ms + SHOWN_MS
            since_ms = known.since_ms if goes_on else self._since_ms
            self.epoch = Epoch(known.number, since_ms, now_ms, self.is_stored)


def epochs_of(on_conflict: OnConflict | None, epoch: Epoch = NO_EPOCH) -> Epochs:
    """Returns the epochs for a connection that opens in this epoch, by its profile."""
    return Epochs(epoch, on_conflict == "epoch", on_conflict != "first")

"""Remembers the keys of the events within a window of time, each as eight bytes of its SHA-256, up to a number of keys.

A checksum of each body lets it recognize another body under a known key.

Eight bytes tell a hundred thousand keys apart: a new event is mistaken for one of them less than once in 10^14 events.
Keys are added in the order of the log, or in reverse order while a writer reads back. It knows no log and no clock.
Invariant: a key stays known until the caller forgets the time at which it was last added, unless more than `most_keys`
came since. `AllKeys` forgets none.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence

from handlers.framing.events import StreamEvent, canonical_json
from handlers.framing.oversize import Oversize
from handlers.values import dataclass

HASH_BYTES, SUM_BYTES = 8, 4
# The number that a function of 128 MB can hold: about 100 bytes each.
MOST_KEYS = 100_000
# The number that a function of 256 MB can hold without times: about 10 bytes each.
MOST_BARE_KEYS = 4_000_000


def key_hash(key: str) -> bytes:
    """Returns the hash by which a dedup key is remembered."""
    return hashlib.sha256(key.encode()).digest()[:HASH_BYTES]


def body_sum(event: StreamEvent) -> int:
    """Returns the checksum of the event's name and body, however its JSON is spelled; never 0, which means none."""
    data = event.data.sha256.encode() if isinstance(event.data, Oversize) else canonical_json(event.data)
    return zlib.crc32(data, zlib.crc32((event.name or "").encode())) or 1


def hashes(packed: bytes) -> Iterator[bytes]:
    return (packed[at : at + HASH_BYTES] for at in range(0, len(packed), HASH_BYTES))


def _place(packed: bytes | bytearray, key: bytes) -> int:
    """Returns where the hash is in `packed`; -1 if it is not there."""
    place = packed.find(key)
    while place > 0 and place % HASH_BYTES:  # the end of one hash and the beginning of the next
        place = packed.find(key, place + 1)
    return place


@dataclass(frozen=True, slots=True, eq=False)
class _Segment:
    """A segment's keys by their hashes, with four bytes of checksum for each body; none if it was written without."""

    at_ms: int
    keys: bytes
    bodies: bytes

    def body_sum(self, key: bytes) -> int:
        """Returns the checksum of the body of a key that the segment has; 0 if unknown."""
        begin = _place(self.keys, key) // HASH_BYTES * SUM_BYTES
        return int.from_bytes(self.bodies[begin : begin + SUM_BYTES])


class KnownKeys:
    """The keys of one writer's log, by when they were appended."""

    def __init__(self, most_keys: int = MOST_KEYS) -> None:
        self._most = most_keys
        # By key: the segment with which it came last. A value of its own for each key would take a third more memory.
        self._came: dict[bytes, _Segment] = {}
        self._segments: deque[_Segment] = deque()  # the oldest first

    def __contains__(self, key: bytes) -> bool:
        return key in self._came

    def last_seen(self, key: bytes) -> tuple[int, int] | None:
        """Returns when the key last came, and the checksum of its body (0 if unknown); None for an unknown key."""
        segment = self._came.get(key)
        return None if segment is None else (segment.at_ms, segment.body_sum(key))

    def select_unknown(self, events: Sequence[StreamEvent]) -> dict[bytes, StreamEvent]:
        """Returns the events with unknown keys, each once and in order, by the hash of its key."""
        digest = hashlib.sha256
        by_key = {digest(event.key.encode()).digest()[:HASH_BYTES]: event for event in events}
        if len(by_key) < len(events):
            by_key = {}
            for event in events:
                by_key.setdefault(key_hash(event.key), event)
        return {key: event for key, event in by_key.items() if key not in self} if self._has_any(by_key) else by_key

    def _has_any(self, keys: Iterable[bytes]) -> bool:
        return not self._came.keys().isdisjoint(keys)

    @property
    def is_full(self) -> bool:
        """Whether no older keys can be remembered."""
        return len(self._came) >= self._most

    def add(self, at_ms: int, packed: bytes, bodies: bytes = b"") -> None:
        """Remembers the keys of a segment that is newer than all before."""
        segment = _Segment(at_ms, packed, bodies)
        self._segments.append(segment)
        self._came.update(dict.fromkeys(hashes(packed), segment))
        while len(self._came) > self._most and len(self._segments) > 1:
            self._forget_oldest()

    def add_older(self, at_ms: int, packed: bytes, bodies: bytes = b"") -> None:
        """Remembers the keys of a segment that is older than all before."""
        segment = _Segment(at_ms, packed, bodies)
        self._segments.appendleft(segment)
        for key in hashes(packed):
            self._came.setdefault(key, segment)

    def forget(self, before_ms: int) -> None:
        """Forgets the keys that were appended before `before_ms`."""
        while self._segments and self._segments[0].at_ms < before_ms:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        segment = self._segments.popleft()
        for key in hashes(segment.keys):
            # A key that came again later is younger.
            if self._came.get(key) is segment:
                del self._came[key]


class AllKeys(KnownKeys):
    """The keys of a log without when they came, so that a function can hold all that came since a gap."""

    def __init__(self) -> None:
        super().__init__()
        self._hashes: defaultdict[bytes, bytearray] = defaultdict(bytearray)  # by their first bytes
        self._count = 0

    def __contains__(self, key: bytes) -> bool:
        return key[:2] in self._hashes and _place(self._hashes[key[:2]], key) >= 0

    def _has_any(self, keys: Iterable[bytes]) -> bool:
        return any(key in self for key in keys)

    @property
    def is_full(self) -> bool:
        """Whether no more keys can be remembered."""
        return self._count >= MOST_BARE_KEYS

    def add(self, _at_ms: int, packed: bytes, _bodies: bytes = b"") -> None:
        """Remembers the keys of a segment."""
        for key in hashes(packed):
            self._hashes[key[:2]] += key
        self._count += len(packed) // HASH_BYTES

    def add_older(self, at_ms: int, packed: bytes, bodies: bytes = b"") -> None:
        """Remembers the keys of a segment, in any order."""
        self.add(at_ms, packed, bodies)

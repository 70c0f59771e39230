"""Remembers which events came within a window: by eight bytes of each key's SHA-256, counted in time and bounded.

Eight bytes suffice to tell a hundred thousand keys apart: that a new event is taken for one of them is less likely than
once in 10^14 events. Keys come in the order of the log, or in its opposite order where a writer looks back. It knows no
log and no clock. Invariant: a key is known until it was last added longer ago than the caller wants to know of, unless
more than `most_keys` came since.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence

from handlers.framing.events import StreamEvent

HASH_BYTES = 8
# What a function of 128 MB has room for: about 100 bytes each.
MOST_KEYS = 100_000


def key_hash(key: str) -> bytes:
    """What is remembered of a dedup key."""
    return hashlib.sha256(key.encode()).digest()[:HASH_BYTES]


def hashes(packed: bytes) -> Iterator[bytes]:
    """The hashes that lie one behind the other in `packed`."""
    return (packed[at : at + HASH_BYTES] for at in range(0, len(packed), HASH_BYTES))


class KnownKeys:
    """The keys of one writer's log, by when they were appended."""

    def __init__(self, most_keys: int = MOST_KEYS) -> None:
        self._most = most_keys
        self._at_ms: dict[bytes, int] = {}
        self._segments: deque[tuple[int, bytes]] = deque()  # the oldest first

    def __contains__(self, key: bytes) -> bool:
        return key in self._at_ms

    def unknown(self, events: Sequence[StreamEvent]) -> dict[bytes, StreamEvent]:
        """Those whose keys are not known, each once and in their order, by what is remembered of its key."""
        known, digest = self._at_ms, hashlib.sha256
        by_key = {digest(event.key.encode()).digest()[:HASH_BYTES]: event for event in events}
        if len(by_key) < len(events):
            by_key = {}
            for event in events:
                by_key.setdefault(key_hash(event.key), event)
        if known.keys().isdisjoint(by_key):
            return by_key
        return {key: event for key, event in by_key.items() if key not in known}

    @property
    def is_full(self) -> bool:
        """Whether no older keys can be remembered."""
        return len(self._at_ms) >= self._most

    def add(self, at_ms: int, packed: bytes) -> None:
        """Remembers the keys of a segment that is newer than all before."""
        self._segments.append((at_ms, packed))
        self._at_ms.update(dict.fromkeys(hashes(packed), at_ms))
        while len(self._at_ms) > self._most and len(self._segments) > 1:
            self._forget_oldest()

    def add_older(self, at_ms: int, packed: bytes) -> None:
        """Remembers the keys of a segment that is older than all before."""
        self._segments.appendleft((at_ms, packed))
        for key in hashes(packed):
            self._at_ms.setdefault(key, at_ms)

    def forget(self, before_ms: int) -> None:
        """Forgets what was appended before then."""
        while self._segments and self._segments[0][0] < before_ms:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        at_ms, packed = self._segments.popleft()
        for key in hashes(packed):
            # One that came again behind the window is younger.
            if self._at_ms.get(key) == at_ms:
                del self._at_ms[key]

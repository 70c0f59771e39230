"""Decides which streams go over together: a few first, then as many again as have gone before.

A stream has a place, a hash of its id, so a wave is a range of places and nobody has to remember its members. It has
profiles as the stage has them, and a stream that comes meanwhile has its place too. For example of 1,000 streams

    [0, 43 M)       10 streams, a hundredth
    [43 M, 86 M)    10 more
    [86 M, 172 M)   20 more ... until all have gone

Pure. Invariants: the waves of an upgrade are next to each other and reach WHOLE; a wave that has a stream to take has
one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

# One past the last place.
WHOLE = 1 << 32
# So many streams go first, or a hundredth of all.
FEW, FIRST_PART = 3, 100


def place(stream_id: str) -> int:
    """Returns the stream's place, from 0 to WHOLE - 1."""
    return zlib.crc32(stream_id.encode())


def wave_end(places: Iterable[int], begin: int) -> int:
    """Returns where the wave that begins at place `begin` ends; `places` are those of all streams."""
    ordered = sorted(places)
    waiting = [one for one in ordered if one >= begin]
    gone = len(ordered) - len(waiting)
    size = max(FEW, gone if begin else len(ordered) // FIRST_PART)
    # Of two at one place both go.
    return waiting[size - 1] + 1 if size < len(waiting) else WHOLE

"""Decides when a connection leaves by itself: before its function's deadline, or earlier to get apart from another.

Two hot connections that began together, after an outage say, would reach their deadlines together, and nothing would
move them apart again. So the older leaves one life half-way: from then on they are half a life apart, and while one
starts again the other is in the middle of its life, however long that takes. The newer stays: of two connections one is
the older, by its fence, whenever both read the lease.

This module knows no clock: times are integer milliseconds that the caller passes. Invariant: what it answers for a
connection lies between its claim and its deadline.
"""

from __future__ import annotations

# Connections nearer than a quarter of a life are moved apart; half a life apart they stay so, whatever a start takes.
NEAR, APART = 4, 2


def parts_at_ms(claimed_ms: int, leave_at_ms: int, newer_ms: int) -> int | None:
    """Returns when the older of two hot connections leaves to get apart; None where its deadline comes before.

    It claimed at `claimed_ms`, would leave at `leave_at_ms` and first saw the newer one connected at `newer_ms`.
    """
    life_ms = leave_at_ms - claimed_ms
    if newer_ms - claimed_ms >= life_ms // NEAR:
        return None
    return newer_ms + life_ms // APART

"""Decides whether a connected stream is quiet: no new event has come for longer than expected.

    expect_every_s = 60        quiet after 60 s without a new event
    expect_every_s = "usual"   after twice the longest pause that was seen between two new events
    nothing                    the same, but nobody is alerted

A pause counts only if a connection was open throughout, over handovers too. It is forgotten gradually: a week after a
single silence of an hour, twice the usual pause is minutes again. Pure.
"""

from typing import NamedTuple

# No usual pause is shorter than this: the record of a stream in a group may be that far behind.
LEAST_MS = 120_000
# After how long without a connection it is unknown what came meanwhile; and how long until a pause is forgotten.
APART_MS, FORGOTTEN_MS = 60_000, 172_800_000


class Silence(NamedTuple):
    """When the last new event came, the longest pause that is known, and what the profile expects.

    `expect_ms` is 0 for "usual", None if the profile says nothing.
    """

    event_ms: int | None
    longest_ms: int | None
    expect_ms: int | None

    def limit_ms(self, *, is_late: bool = False) -> int | None:
        """Returns after how long the stream is quiet, None if unknown; half as long again if the record may be late."""
        limit_ms = self.expect_ms or (2 * max(self.longest_ms, LEAST_MS // 2) if self.longest_ms else None)
        return None if limit_ms is None else limit_ms * 3 // 2 if is_late else limit_ms

    def words(self, started_ms: int, now_ms: int, *, is_late: bool = False) -> str:
        """Returns what to report of the stream, which was started at `started_ms`; "" if it is not quiet."""
        limit_ms, silent_ms = self.limit_ms(is_late=is_late), now_ms - max(self.event_ms or 0, started_ms)
        if limit_ms is None or silent_ms < limit_ms:
            return ""
        expected = f"one is expected every {self.expect_ms / 1000:g} s" if self.expect_ms else "that is not usual"
        return f"quiet: nothing new for {silent_ms // 1000} s, and {expected}"


def remembered(longest_ms: int | None, since_ms: int) -> int | None:
    """Returns what is left of the longest pause after `since_ms`."""
    return None if longest_ms is None else longest_ms * max(0, FORGOTTEN_MS - since_ms) // FORGOTTEN_MS

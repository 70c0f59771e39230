"""What was done to repair a gap, and what is still to do: the part of the gap's record that the repair writes.

This module knows no table and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass

REPAIRED = "repaired"
# Some of it came, or none: what is open is tried again for as long as the address reaches back.
PARTLY, FAILED = "partly", "failed"
UP, DOWN, NO_ORDER = 1, -1, 2


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done for the gap [from_ms, to_ms), and what is still to do; instants are epoch milliseconds.

    `stored` events came by it, which happened from `first_ms` to `last_ms` where the profile names their time. Still
    open is [open_from_ms, open_to_ms), the whole gap where that is unknown. The next try is at `next_ms`, never where
    that is 0; until `rest_until_ms` the address accepts no requests. A walk that is under way continues at the address
    `at`, after `pages`; `walk` is its number. Its pages go up (`way` 1) or down (-1), which 0 leaves open and NO_ORDER
    denies; the last one went from the place `low` to `high`. `stamp` counts the writes.
    """

    from_ms: int = 0
    to_ms: int = 0
    state: str = "open"
    reason: str = ""
    stored: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    open_from_ms: int | None = None
    open_to_ms: int | None = None
    tries: int = 0
    next_ms: int = 0
    rest_until_ms: int = 0
    walk: int = 0
    at: str = ""
    pages: int = 0
    saw_before: bool = False
    saw_after: bool = False
    way: int = 0
    low: int | None = None
    high: int | None = None
    stamp: int = 0

    @property
    def span(self) -> tuple[int, int]:
        """The interval of the gap."""
        return self.from_ms, self.to_ms

    @property
    def is_over(self) -> bool:
        """Whether it is not tried again without a request."""
        return self.state == REPAIRED or (self.state in (PARTLY, FAILED) and not self.next_ms)

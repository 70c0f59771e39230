"""The repair's part of a gap's record: what was done to repair the gap, and what is still to do.

This module knows no table and no clock.
"""

from __future__ import annotations

from handlers.values import dataclass

REPAIRED = "repaired"
# Some of the gap came, or none: the open part is tried again for as long as the address reaches back.
PARTLY, FAILED = "partly", "failed"
UP, DOWN, NO_ORDER = 1, -1, 2


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done for the gap [from_ms, to_ms), and what is still to do; instants are epoch milliseconds.

    It has `stored` events, which happened from `first_ms` to `last_ms` if the profile names their time. The interval
    [open_from_ms, open_to_ms) is still open; the whole gap if that is unknown. The next try is at `next_ms`, 0 for
    never; until `rest_until_ms` the address accepts no requests. A walk that is under way continues at the address
    `at`, after `pages`; `walk` is its number. `way` is the direction of its pages: up (1), down (-1), unknown (0) or
    without an order (NO_ORDER); the last page went from the place `low` to `high`. `stamp` counts the writes.
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
        """Whether only a request makes it try again."""
        return self.state == REPAIRED or (self.state in (PARTLY, FAILED) and not self.next_ms)

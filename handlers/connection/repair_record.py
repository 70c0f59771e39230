"""What was done to repair one gap, and what is to be done: the part of the gap's record that the repair writes.

This module knows no table and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass

REPAIRED = "repaired"
# Some of it came, or none did: what is open is tried again for as long as the address reaches.
PARTLY, FAILED = "partly", "failed"


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done for the gap [from_ms, to_ms), and what is to be done; instants are epoch milliseconds.

    `stored` events came by it, which happened from `first_ms` to `last_ms` where the profile names their time. What is
    still open is [open_from_ms, open_to_ms), the whole gap where nobody knows. It is tried again at `next_ms`, never
    where that is 0; until `rest_until_ms` the address wants to be asked for nothing. A walk that is under way goes on
    at the address `at`, after `pages`; `walk` is its number. `stamp` counts the writes.
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
    stamp: int = 0

    @property
    def span(self) -> tuple[int, int]:
        """The interval that it is about."""
        return self.from_ms, self.to_ms

    @property
    def is_over(self) -> bool:
        """Whether nobody tries it again by himself."""
        return self.state == REPAIRED or (self.state in (PARTLY, FAILED) and not self.next_ms)

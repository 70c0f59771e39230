"""Decides which gaps follow from the ledger's records of connections.

A gap is an interval in which nothing was connected between two connections: events may have been missed in it. It ends
where the next connection was answered; whether that one asked the upstream for what came since the cursor is noted,
for then the cursor closed the gap, unless it is longer than the upstream can go back. A connection that was killed
left no record of its close: it covers until it was last seen, once it has been silent for long enough to count as
dead.

This module knows no table and no clock. Invariant: the gaps of more records of the same stream contain those of fewer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# No end was written down: the function was killed, or the table took no record any more.
UNRECORDED = "unrecorded"


@dataclass(frozen=True, slots=True)
class Record:
    """One connection that was answered; `closed_ms` is None while it is open, or where it was killed.

    `reach_ms` is how far back the upstream goes where it was asked for what came since; None where it does not say.
    """

    fence: int
    opened_ms: int
    seen_ms: int
    closed_ms: int | None
    ended_by: str
    resumed: bool
    reach_ms: int | None = None

    def closes(self, length_ms: int) -> bool:
        """Whether what was asked for when it began covers a gap of this length before it."""
        return self.resumed and (self.reach_ms is None or length_ms <= self.reach_ms)


@dataclass(frozen=True, slots=True)
class Gap:
    """[from_ms, to_ms) without a connection; connection `fence` ended it, `cause` is how the one before ended."""

    fence: int
    from_ms: int
    to_ms: int
    cause: str
    closed_by_cursor: bool


def gaps(records: Iterable[Record], now_ms: int, dead_after_ms: int) -> list[Gap]:
    """Returns the gaps between the records, oldest first, but none that an undecided connection may yet cover."""
    between: list[Gap] = []
    covered_ms: int | None = None
    cause = ""
    for record in sorted(records, key=lambda record: (record.opened_ms, record.fence)):
        if covered_ms is not None and record.opened_ms > covered_ms:
            closed = record.closes(record.opened_ms - covered_ms)
            between.append(Gap(record.fence, covered_ms, record.opened_ms, cause, closed))
        end_ms = record.closed_ms
        if end_ms is None and now_ms - record.seen_ms > dead_after_ms:
            end_ms = record.seen_ms
        if end_ms is None:
            return between  # it is open, so it covers all that follows; or it is dead and not yet known to be
        if covered_ms is None or end_ms >= covered_ms:
            covered_ms, cause = end_ms, record.ended_by or UNRECORDED
    return between

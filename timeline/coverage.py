"""Finds from connections the overlaps, the gaps with their causes, and which regular events were stored or lost.

A connection covers a half-open interval [from_ms, to_ms): an event at the instant of its close is not its own. This
module knows only the names of executions and lanes. Invariant: overlaps and gaps are disjoint, and both follow from the
connections alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

ENDS_FOR_GOOD = ("stopped", "ended")
"""The end of a connection after which no other is wanted."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One opening of the stream; `covers_to_ms` is earlier than `to_ms` if it was silent before it closed."""

    lane: str
    from_ms: int
    to_ms: int
    ended_by: str
    covers_to_ms: int | None = None

    @property
    def end_ms(self) -> int:
        """Returns the end of the time that it covers."""
        return self.to_ms if self.covers_to_ms is None else self.covers_to_ms


@dataclass(frozen=True, slots=True)
class Gap:
    """An interval without a connection; `cause` is how the connection before it ended.

    `state` is the ledger's word for it ("repaired", "open" …); a gap from a history has none.
    """

    from_ms: int
    to_ms: int
    cause: str
    state: str = ""

    @property
    def is_repaired(self) -> bool:
        """Returns whether a repair has fetched every event of the gap."""
        return self.state == "repaired"


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The outcome of regular events: each counts once as stored or lost; duplicates are the further deliveries."""

    stored: int
    duplicates: int
    lost: int


def gap_ms(gaps: Iterable[Gap]) -> int:
    """Returns the sum of the gaps' lengths."""
    return sum(gap.to_ms - gap.from_ms for gap in gaps)


def connected_percent(connections: Iterable[Connection], gaps: Iterable[Gap]) -> float:
    """Returns the connected share of all time with a connection or a gap, rounded down.

    It is computed like the figure of this name in the status (`handlers/api/figures.py`): time for which no connection
    was wanted does not count.
    """
    connected_ms = covered_ms = 0
    for connection in sorted(connections, key=lambda c: c.from_ms):
        connected_ms += max(0, connection.end_ms - max(connection.from_ms, covered_ms))
        covered_ms = max(covered_ms, connection.end_ms)
    return connected_ms * 1_000_000 // max(1, connected_ms + gap_ms(gaps)) / 10_000


def overlaps(connections: Iterable[Connection]) -> list[tuple[int, int]]:
    """Returns the intervals in which two or more connections were open, in order."""
    edges = sorted(edge for c in connections if c.end_ms > c.from_ms for edge in ((c.from_ms, 1), (c.end_ms, -1)))
    found, depth, since = list[tuple[int, int]](), 0, 0
    for at_ms, step in edges:
        depth += step
        if (step, depth) == (1, 2):
            since = at_ms
        elif (step, depth) == (-1, 1):
            found.append((since, at_ms))
    return found


def overlap_ms(connections: Iterable[Connection]) -> int:
    """Returns how long two or more connections were open at the same time."""
    return sum(to_ms - from_ms for from_ms, to_ms in overlaps(connections))


def gaps(connections: Iterable[Connection], until_ms: int) -> list[Gap]:
    """Returns the intervals between the first opening and `until_ms` without a connection that was wanted.

    No connection is wanted from a stop, or the stream's end, until the next opening.
    """
    ordered = sorted(connections, key=lambda c: (c.from_ms, c.end_ms))
    missed: list[Gap] = []
    covered_ms: int | None = None
    over_ms = -1
    cause = ""
    for connection, following in zip_longest(ordered, ordered[1:]):
        if covered_ms is None or connection.end_ms >= covered_ms:
            covered_ms, cause = connection.end_ms, connection.ended_by
        if connection.ended_by in ENDS_FOR_GOOD:
            over_ms = max(over_ms, connection.end_ms)
        next_ms = until_ms if following is None else min(following.from_ms, until_ms)
        # A connection that closes after the stop, even with an error, leaves no gap.
        if covered_ms < next_ms and over_ms < connection.from_ms:
            missed.append(Gap(covered_ms, next_ms, cause))
    return missed


def deliveries(connections: Sequence[Connection], every_ms: int, until_ms: int, *, resumes: bool = False) -> Deliveries:
    """Returns the outcome of events sent at 0, every_ms, 2 × every_ms … between the first opening and `until_ms`.

    An upstream that resumes sends a gap's events at the next opening, so only an unclosed last gap loses any.
    """
    if not connections:
        return Deliveries(0, 0, 0)
    missed = gaps(connections, until_ms)
    if resumes:
        missed = [gap for gap in missed if gap.to_ms == until_ms]
    lost = sum(_count(gap.from_ms, gap.to_ms, every_ms) for gap in missed)
    stored = _count(min(c.from_ms for c in connections), until_ms, every_ms) - lost
    delivered = sum(_count(c.from_ms, min(c.end_ms, until_ms), every_ms) for c in connections)
    closed = sum(_count(gap.from_ms, gap.to_ms, every_ms) for gap in gaps(connections, until_ms)) - lost
    return Deliveries(stored, delivered + closed - stored, lost)


def _count(from_ms: int, to_ms: int, every_ms: int) -> int:
    """Returns how many multiples of every_ms lie in [from_ms, to_ms)."""
    return max(0, -(-to_ms // every_ms) + (from_ms // -every_ms))

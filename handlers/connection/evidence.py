"""What the record of a connection proves, and the sum of what records prove, which the next connection begins with.

It follows from four instants:

    opened_ms   when the upstream answered it
    since_ms    when it requested what came after the cursor, everything until this instant was stored or lay in an open
                gap; so what it requested is no older than this, however old the cursor's own event is
    live_ms     when it has caught up: what the upstream sends from then on has just happened
    heard_ms    when the upstream last sent something

A connection that heard its upstream at `live_ms` or later, and has stored what came, has brought all that happened
since `since_ms`, or since `opened_ms` if the upstream does not go back that far (`reach_ms`). A connection that last
heard its upstream earlier has brought a part, and the next connection requests the rest. It makes no difference whether
it was closed, killed or stopped.

An idle upstream shows that a connection has caught up: then `record.py` brings `live_ms` forward. On a busy stream
nothing on the wire shows it. There we assume that an upstream sends its backlog at least twice as fast as it happened,
so a connection makes up for one missed second in each second.

A silent connection that has caught up counts as good until it is let go or counts as dead. But its peer may have died
unnoticed after it last sent something. Then the next connection also receives what that peer did not send, so it has
caught up only once it has lasted for as long as that silence in addition.

It is unknown whether an upstream obeys a default resume. An upstream that ignores it sends what happens from its answer
on. An upstream that obeys it is assumed to keep what it sent for at least `KEPT_MS`.

This module knows no table and no clock. Invariant: whatever some records prove, later records of the same connections
prove too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from handlers.values import dataclass

# No end was recorded: the function was killed, or the table accepted no more records.
UNRECORDED = "unrecorded"
STOPPED = "stopped"
CURSOR_EXPIRED = "cursor_expired"
CURSOR_UNKNOWN = "cursor_unknown"
# The least that an upstream is assumed to keep if it resumes from a cursor and the profile promises nothing.
KEPT_MS = 5_000
# An upstream that has ended the stream has sent all of it.
_WHOLE = "ended"


@dataclass(frozen=True, slots=True)
class Record:
    """One connection that was answered; `closed_ms` is None while it is open, or if it was killed.

    `reach_ms` is how far back the upstream goes if the connection resumed: None is to the cursor, 0 is unknown.
    `since_ms` is None if that was unknown. `joined_ms` is since when, until its answer, other connections were open
    without a pause; only `with_present_knowledge` knows it. `refused` is why earlier events cannot be requested: such
    an answer is a connection of no length (`records`). `saved_ms` is when it was last recorded, 0 if unknown;
    `heard_ms` when the upstream last sent something on it, None if unknown. `stopped_ms` is when the stop before its
    start was requested, `started_ms` when that start was; None if no stop was.
    """

    fence: int
    opened_ms: int
    seen_ms: int
    closed_ms: int | None
    ended_by: str
    resumed: bool
    reach_ms: int | None = None
    since_ms: int | None = None
    live_ms: int | None = None
    refused: str = ""
    joined_ms: int | None = None
    saved_ms: int = 0
    heard_ms: int | None = None
    stopped_ms: int | None = None
    started_ms: int | None = None

    @property
    def last_ms(self) -> int:
        """Until when the connection is known to have been good."""
        return self.seen_ms if self.closed_ms is None else self.closed_ms

    def end_ms(self, now_ms: int, dead_after_ms: int) -> int | None:
        """When it ended; None while it may still be open."""
        # While events wait to be stored it is not known good, but a record that was written shows that it is alive.
        if self.closed_ms is None and now_ms - max(self.seen_ms, self.saved_ms) <= dead_after_ms:
            return None
        return self.last_ms

    @property
    def read_ms(self) -> int:
        """Until when it read something; later than `last_ms` if a kill took what was not stored yet."""
        return max(self.last_ms, self.heard_ms or 0) if self.has_no_end else self.last_ms

    @property
    def has_no_end(self) -> bool:
        """Whether it is open, or was killed: its close may be known, but not from its own record."""
        return self.ended_by in ("", UNRECORDED)

    @property
    def from_ms(self) -> int:
        """From when on it brings everything that happened."""
        if not self.resumed or self.since_ms is None:
            return self.opened_ms
        if self.reach_ms == 0 and self.joined_ms is not None:
            return min(self.opened_ms, max(self.since_ms, self.joined_ms, self.opened_ms - KEPT_MS))
        if self.reach_ms is not None and self.opened_ms - self.since_ms > self.reach_ms:
            return self.opened_ms
        return min(self.since_ms, self.opened_ms)

    @property
    def answered_ms(self) -> int:
        """When the upstream answered it at the earliest, once it is over."""
        # A function that stood still notices an answer late. If it ended without being read further, what came
        # meanwhile is lost, unless the upstream had ended it.
        is_unread = self.last_ms <= self.opened_ms and self.ended_by != _WHOLE
        return self._last_byte_ms(self.opened_ms) if is_unread else self.opened_ms

    @property
    def silent_from_ms(self) -> int:
        """When the silence before its end began: its peer may have been dead since then, unnoticed."""
        # A function that stood still notices an answer late, and so counts it from an instant after that of its bytes.
        return max(self.opened_ms, self._last_byte_ms(self.last_ms))

    def _last_byte_ms(self, at_ms: int) -> int:
        return at_ms if self.heard_ms is None else min(at_ms, self.heard_ms)

    def behind_ms(self, at_ms: int) -> int:
        """How much longer it must last after `at_ms` to have caught up; 0 if it has."""
        return 0 if self.live_ms is None or self.ended_by == _WHOLE else max(0, self.live_ms - at_ms)

    @property
    def has_caught_up(self) -> bool:
        """Whether it has caught up, was still good then, and everything that had come by then is stored."""
        return not self.behind_ms(self._proved_until_ms)

    @property
    def delivered_until_ms(self) -> int:
        """Until when everything that it requested is stored."""
        # At the assumed speed, the time it still lacked is how far it was behind.
        return self.last_ms if self.has_caught_up else self._proved_until_ms - self.behind_ms(self._proved_until_ms)

    @property
    def _proved_until_ms(self) -> int:
        """Until when it proves anything: until it was let go, or else until the upstream last sent something."""
        # A kill or a stop proves nothing.
        is_let_go = self.closed_ms is not None and self.ended_by not in ("", UNRECORDED, STOPPED)
        return self.last_ms if is_let_go else self.silent_from_ms


def records(record: Record, opened_ms: int | None, forgot_ms: int | None) -> list[Record]:
    """Returns the records that a connection adds to the ledger; `opened_ms` is None if the upstream never answered.

    `forgot_ms` is when the upstream reported that it no longer has what came after the cursor.
    """
    shown = []
    if opened_ms is not None:
        is_unknown = forgot_ms is not None and record.ended_by != CURSOR_EXPIRED
        shown.append(replace(record, opened_ms=opened_ms, refused=CURSOR_UNKNOWN if is_unknown else ""))
    if forgot_ms is not None and record.ended_by == CURSOR_EXPIRED:
        refusal = replace(record, opened_ms=forgot_ms, seen_ms=forgot_ms, closed_ms=forgot_ms, resumed=False)
        shown.append(replace(refusal, live_ms=None, heard_ms=None, refused=CURSOR_EXPIRED))
    return shown


@dataclass(frozen=True, slots=True)
class Known:
    """The sum of the records up to connection `fence`, in the order of their fencing tokens, for the later connections.

    Everything that happened until `at_ms` is stored or lies in an open gap; None without a record. From `connected_ms`
    to `until_ms` some connection was open without a pause. `waits` has, for each connection that no later one has
    outdone, its fencing token, when it was last heard, and how much longer it would have needed to catch up.
    """

    fence: int = 0
    at_ms: int | None = None
    connected_ms: int = 0
    until_ms: int = -1
    waits: tuple[tuple[int, int, int], ...] = ()

    def with_stored_until(self, fence: int, came_ms: int) -> Known:
        """Returns the sum if everything that came on connection `fence` until `came_ms` is stored.

        It may stay open beside its successor for long, and only the record of its end, which is in no sum yet, says so.
        """
        for place, (one, heard_ms, behind_ms) in enumerate(self.waits):
            if one == fence and heard_ms < came_ms:
                behind_ms = max(0, behind_ms - (came_ms - heard_ms))
                waits = (*self.waits[:place], (fence, came_ms, behind_ms), *self.waits[place + 1 :])
                at_ms, until_ms = max(self.at_ms or 0, came_ms - behind_ms), max(self.until_ms, came_ms)
                return replace(self, at_ms=at_ms, until_ms=until_ms, waits=waits)
        return self

    def behind_ms(self, cursor_fence: int, now_ms: int) -> int | None:
        """The longest time after which a connection that resumes from the cursor now has caught up.

        Connection `cursor_fence` saved the cursor, and later ones did not move it. None if none of them has a record.
        """
        waits = [
            behind_ms + max(0, now_ms - heard_ms) for fence, heard_ms, behind_ms in self.waits if fence >= cursor_fence
        ]
        return min(waits, default=None)


# How many of `Known.waits` are kept; if one is forgotten, a connection only counts as caught up later.
MOST_WAITS = 4


def _add_record(known: Known, record: Record, joined_ms: int | None) -> tuple[Record, Known]:
    """Returns the record with what was known before it, and what is known after it.

    The knowledge that a connection had of its predecessors when it asked is replaced by the present knowledge. A
    predecessor that was open then may turn out to have been dead since it was last heard, or to have caught up in its
    last moments.
    """
    connected_ms = record.opened_ms if joined_ms is None else joined_ms
    since_ms = record.since_ms if known.at_ms is None else known.at_ms
    now = replace(record, joined_ms=joined_ms, since_ms=since_ms)
    at_ms = max(now.from_ms, now.delivered_until_ms, known.at_ms or 0)
    # A connection that resumes from its cursor also receives what a dead peer did not send, so it catches up later.
    heard_ms, behind_ms = record.silent_from_ms, record.behind_ms(record.silent_from_ms)
    waits = [wait for wait in known.waits if wait[1] - heard_ms > wait[2] - behind_ms]
    waits.append((record.fence, heard_ms, behind_ms))
    until_ms = max(known.until_ms, record.last_ms)
    return now, Known(record.fence, at_ms, connected_ms, until_ms, tuple(waits[-MOST_WAITS:]))


def sum_of_records(records: Iterable[Record], before: Known | None = None) -> Known:
    """Returns the sum of `before` and of the records after it, in the order of their fencing tokens."""
    after = before or Known()
    for record in sorted(records, key=fence_order):
        if before is None or record.fence > before.fence:
            is_joined = record.opened_ms <= after.until_ms
            after = _add_record(after, record, after.connected_ms if is_joined else None)[1]
    return after


def fence_order(record: Record) -> tuple[int, int]:
    return record.fence, record.opened_ms


def with_present_knowledge(records: Iterable[Record]) -> list[Record]:
    """Returns the records in the order of their fencing tokens, each with what is known now of those before it."""
    ordered, known_now, after = sorted(records, key=fence_order), list[Record](), Known()
    joined = _covered_since_ms(ordered)
    for record in ordered:
        one, after = _add_record(after, record, joined[record])
        known_now.append(one)
    return known_now


def _covered_since_ms(records: Iterable[Record]) -> dict[Record, int | None]:
    """Returns for each record since when others were open without a pause until its answer; None if none were.

    Two that open at once may be answered in another order than that of their tokens.
    """
    joined: dict[Record, int | None] = {}
    connected_ms, until_ms = 0, -1
    for record in sorted(records, key=lambda record: (record.opened_ms, record.fence)):
        is_joined = record.opened_ms <= until_ms
        joined[record] = connected_ms if is_joined else None
        connected_ms, until_ms = connected_ms if is_joined else record.opened_ms, max(until_ms, record.last_ms)
    return joined

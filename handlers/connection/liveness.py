"""Decides until when a connection is known good, whether it is quiet, and when a resumed one has caught up.

A connection is known good until an instant if everything that the upstream had sent by then is stored. A quiet stream
is connected too. But bytes that were read and are not stored, or that have arrived and are not read, are lost if the
function dies. After a break it is unknown what the upstream sent after the last byte. And half a frame is a missing
event unless its end comes.

    1.0 s  two events arrive        known good until 1.0 s while they are on their way to the store
    1.4 s  they are stored          known good until 1.4 s
    5.0 s  nothing has arrived      known good until 5.0 s
    5.1 s  the connection breaks    known good until 1.0 s, when it was last heard

    6.0 s  an event arrives, whole
    9.0 s  half an event arrives    known good until 6.0 s, whenever and however it ends, until the other half is there

A connection that resumed from a cursor has caught up once everything that the upstream sent before has come. Unless
something proves it sooner, that takes as long as the connection was behind. An idle upstream proves it sooner:
nothing came for `IDLE_MS` but signs of life, and then one more sign of life. Silence alone proves nothing: a dead peer
is silent too, and so is one that still searches for the first event to send. An event's own time is the other proof: it
shows how far behind the connection is (`judging.py`).

    0.0 s  opened, 60 s behind       caught up at 60 s, unless the upstream shows it sooner
    1.0 s  the last event comes
    4.0 s  a comment
    6.5 s  a comment                 caught up at 6 s, once all that came until then is stored

Invariant: no connection is known good after the arrival of what is not stored.
"""

from __future__ import annotations

from typing import NamedTuple

from handlers.connection.inputs import Resumption

# After these ends it is unknown what the upstream sent after the last byte.
BROKEN = frozenset({"stalled", "reset", "truncated", "tls", "protocol"})
# No usual pause is shorter than this: the record of a stream in a group may be that far behind.
LEAST_MS = 120_000
# After how long without a connection it is unknown what came meanwhile; and how long until a pause is forgotten.
APART_MS, FORGOTTEN_MS = 60_000, 172_800_000
# While an upstream sends its backlog (page by page from a table, for example), its pauses are shorter than this.
IDLE_MS = 5_000
# The profile says how far back the upstream goes at least. The upstream may keep, and send, this many times as much.
KEEPS = 2


class Liveness:
    """When one connection last heard something, and until when it is known good."""

    def __init__(self) -> None:
        self.heard_ms = 0  # when the upstream last sent something; 0 before its answer
        # Set by the manager for each input: when it arrived, and when the oldest arrival that still waits came.
        self.arrived_ms = 0
        self.unread_ms: int | None = None
        # When the upstream was last heard before the unfinished frame began; None if no frame is unfinished.
        self._whole_until_ms: int | None = None
        self._read_until_ms: int | None = None  # when reading ended; earlier if the connection broke
        self._forgotten_from_ms: int | None = None  # from when on the upstream has forgotten what it should have sent

    def record_input(self) -> int:
        """Records that the current input came from the upstream; returns when the one before it came."""
        before_ms, self.heard_ms = self.heard_ms, self.arrived_ms
        return before_ms

    def record_framing(self, before_ms: int, *, ended_some: bool, is_inside: bool) -> None:
        """Records whether the bytes ended frames, and end inside one; the bytes before them came at `before_ms`."""
        if not is_inside:
            self._whole_until_ms = None
        elif ended_some or self._whole_until_ms is None:
            self._whole_until_ms = before_ms

    def record_forgotten(self, from_ms: int) -> None:
        """Records that the upstream has forgotten what it should have sent from `from_ms` on."""
        self._forgotten_from_ms = from_ms

    def record_close(self, ended_by: str, opened_ms: int) -> None:
        """Records that reading has ended; a second call records that the upstream closed too, perhaps earlier."""
        until_ms = self.heard_ms if ended_by in BROKEN else self.arrived_ms
        # Arrivals are handled later, the first answer too: a close that came with that answer is no earlier than it.
        until_ms = max(until_ms, opened_ms)
        self._read_until_ms = until_ms if self._read_until_ms is None else min(self._read_until_ms, until_ms)

    def closed_ms(self, opened_ms: int | None) -> int | None:
        """Returns until when it was good; None while it reads. Bytes that had arrived may still end a frame."""
        if self._read_until_ms is None or opened_ms is None:
            return None
        ends = (self._read_until_ms, self._forgotten_from_ms, self._whole_until_ms)
        return max(opened_ms, min(ms for ms in ends if ms is not None))

    def seen_ms(self, now_ms: int, before_ms: int, unstored: tuple[int, ...]) -> int:
        """Returns until when an open connection is known good; so far it was known good until `before_ms`.

        `unstored` has the arrivals of the events that are on their way to the store.
        """
        waiting = [ms for ms in (*unstored, self.unread_ms, self._whole_until_ms) if ms is not None]
        return max(before_ms, min([now_ms, *waiting]))


class Silence(NamedTuple):
    """When the last new event came, the longest pause that is known, and what the profile expects.

        expect_every_s = 60        quiet after 60 s without a new event
        expect_every_s = "usual"   after twice the longest pause that was seen between two new events
        nothing                    the same, but nobody is alerted

    A pause counts only if a connection was open throughout, over handovers too. It is forgotten gradually: a week after
    a single silence of an hour, twice the usual pause is minutes again.

    `expect_ms` is 0 for "usual", None if the profile says nothing.
    """

    event_ms: int | None
    longest_ms: int | None
    expect_ms: int | None

    def limit_ms(self, *, is_late: bool = False) -> int | None:
        """Returns after how long the stream is quiet, None if unknown; half as long again if the record may be late."""
        limit_ms = self.expect_ms or (2 * max(self.longest_ms, LEAST_MS // 2) if self.longest_ms else None)
        return None if limit_ms is None else limit_ms * 3 // 2 if is_late else limit_ms

    def describe(self, started_ms: int, now_ms: int, *, is_late: bool = False) -> str:
        """Returns what to report of the stream, which was started at `started_ms`; "" if it is not quiet."""
        limit_ms, silent_ms = self.limit_ms(is_late=is_late), now_ms - max(self.event_ms or 0, started_ms)
        if limit_ms is None or silent_ms < limit_ms:
            return ""
        expected = f"one is expected every {self.expect_ms / 1000:g} s" if self.expect_ms else "that is not usual"
        return f"quiet: nothing new for {silent_ms // 1000} s, and {expected}"


def decay_pause(longest_ms: int | None, since_ms: int) -> int | None:
    """Returns what is left of the longest pause after `since_ms`."""
    return None if longest_ms is None else longest_ms * max(0, FORGOTTEN_MS - since_ms) // FORGOTTEN_MS


class Backlog:
    """How far one connection is behind its upstream; `resumed` is whether it requested what came after the cursor."""

    def __init__(self) -> None:
        self.resumed = False
        self.reach_ms: int | None = None  # how far back the upstream goes; None: to the cursor
        self.since_ms: int | None = None  # everything until then was known when it resumed
        self.live_ms: int | None = None  # when it has caught up
        self.forgot_ms: int | None = None  # when the upstream reported that it had forgotten what came after the cursor
        self.idle_from_ms = 0  # nothing but signs of life has come since then
        self._behind_ms = 0  # it has caught up this long after `_asked_ms`
        self._asked_ms = 0
        # The best proof: from when on it counts, and when the connection has caught up according to it.
        self._proof: tuple[int, int] | None = None

    def record_resumption(self, now_ms: int, at: Resumption, is_asked: bool, reach_ms: int | None) -> None:
        """Records from where the upstream is asked to resume."""
        self.resumed, self.reach_ms, self._asked_ms = is_asked, reach_ms, now_ms
        # Without records of connections, the cursor is all that is known of the time before.
        since_ms = at.saved_ms if at.known_ms is None else at.known_ms
        self.since_ms = None if since_ms is None else min(since_ms, now_ms)
        # The answer that names the instant may have waited, so it counts from that instant, not from the answer.
        behind_from_ms = self.since_ms if at.backlog_from_ms is None else at.backlog_from_ms
        self._behind_ms = 0 if behind_from_ms is None else now_ms - behind_from_ms

    def record_opened(self, now_ms: int) -> None:
        """Records that the upstream has answered with the stream."""
        behind_ms = self._behind_ms + now_ms - self._asked_ms if self.resumed else 0
        if self.reach_ms:  # an upstream sends no more than it keeps
            behind_ms = min(behind_ms, KEEPS * self.reach_ms)
        self.live_ms, self.idle_from_ms = now_ms + behind_ms, now_ms

    def record_idle(self, arrived_ms: int) -> None:
        """Records a sign of life: it proves that the connection has caught up, if nothing else came for `IDLE_MS`."""
        live_ms = self.idle_from_ms + IDLE_MS
        if arrived_ms >= live_ms:
            self._set_proof(live_ms, live_ms)

    def record_delivery(self, arrived_ms: int, delivered_until_ms: int) -> None:
        """Records that all that happened until `delivered_until_ms` had come once the event of `arrived_ms` arrived.

        The rest is assumed to come at twice the speed at which it happened.
        """
        # The connection is known good until after the arrival only once the event is stored.
        self._set_proof(arrived_ms + 1, 2 * arrived_ms - delivered_until_ms)

    def _set_proof(self, from_ms: int, live_ms: int) -> None:
        if self._proof is None or live_ms < self._proof[1]:
            self._proof = from_ms, live_ms

    @property
    def earliest_event_ms(self) -> int | None:
        """The earliest instant of which events may come while the connection catches up; None if it is unknown."""
        # A silent predecessor counts as good, but may have been dead since it was last heard.
        return None if self.since_ms is None else min(self.since_ms, self._asked_ms - self._behind_ms)

    def has_caught_up_at(self, at_ms: int) -> bool:
        """Returns whether the connection had caught up at that instant, as far as is recorded."""
        return self.live_ms is not None and self.live_ms <= at_ms

    def accept_proof(self, stored_until_ms: int | None) -> None:
        """Accepts the proof once everything before it is stored: all until `stored_until_ms`, or simply all (None)."""
        if self._proof is None or self.live_ms is None:
            return
        if stored_until_ms is None or stored_until_ms >= self._proof[0]:
            self.live_ms = min(self.live_ms, self._proof[1])

    def record_continuity(self) -> None:
        """Records that the numbers go on after the cursor, even if the profile promises less.

        The upstream went back to it; or, if it was not asked to, nothing happened in between.
        """
        self.reach_ms = None
        self.resumed = self.resumed or self.forgot_ms is None

    def record_unknown_cursor(self, now_ms: int) -> None:
        """Records that the answer does not begin after the cursor: what came in between can no longer be requested."""
        self.resumed = False
        self.forgot_ms = self.live_ms = now_ms

    def record_expired_cursor(self, now_ms: int, *, has_moved: bool) -> None:
        """Records that the upstream has forgotten what came after the cursor, unless it `has_moved` since."""
        self.forgot_ms = now_ms
        self.resumed = self.resumed and has_moved

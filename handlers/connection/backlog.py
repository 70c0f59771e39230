"""Decides when a connection that resumed from a cursor has caught up: everything that the upstream sent before has
come.

Unless something proves it sooner, that takes as long as the connection was behind. An idle upstream proves it sooner:
nothing came for `IDLE_MS` but signs of life, and then one more sign of life. Silence alone proves nothing: a dead peer
is silent too, and so is one that still searches for the first event to send. An event's own time is the other proof: it
shows how far behind the connection is (`judging.py`).

    0.0 s  opened, 60 s behind       caught up at 60 s, unless the upstream shows it sooner
    1.0 s  the last event comes
    4.0 s  a comment
    6.5 s  a comment                 caught up at 6 s, once all that came until then is stored
"""

from __future__ import annotations

from handlers.connection.inputs import Resumption

# While an upstream sends its backlog (page by page from a table, for example), its pauses are shorter than this.
IDLE_MS = 5_000
# The profile says how far back the upstream goes at least. The upstream may keep, and send, this many times as much.
KEEPS = 2


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

    def resumes(self, now_ms: int, at: Resumption, is_asked: bool, reach_ms: int | None) -> None:
        """Records from where the upstream is asked to resume."""
        self.resumed, self.reach_ms, self._asked_ms = is_asked, reach_ms, now_ms
        # Without records of connections, the cursor is all that is known of the time before.
        since_ms = at.saved_ms if at.known_ms is None else at.known_ms
        self.since_ms = None if since_ms is None else min(since_ms, now_ms)
        behind_ms = now_ms - (now_ms if self.since_ms is None else self.since_ms)
        self._behind_ms = behind_ms if at.behind_ms is None else at.behind_ms

    def opened(self, now_ms: int) -> None:
        """Records that the upstream has answered with the stream."""
        behind_ms = self._behind_ms + now_ms - self._asked_ms if self.resumed else 0
        if self.reach_ms:  # an upstream sends no more than it keeps
            behind_ms = min(behind_ms, KEEPS * self.reach_ms)
        self.live_ms, self.idle_from_ms = now_ms + behind_ms, now_ms

    def was_idle(self, arrived_ms: int) -> None:
        """Records a sign of life: it proves that the connection has caught up, if nothing else came for `IDLE_MS`."""
        live_ms = self.idle_from_ms + IDLE_MS
        if arrived_ms >= live_ms:
            self._proves(live_ms, live_ms)

    def brings(self, arrived_ms: int, brought_ms: int) -> None:
        """Records that everything that happened until `brought_ms` had come once the event of `arrived_ms` arrived.

        The rest is assumed to come at twice the speed at which it happened.
        """
        # The connection is known good until after the arrival only once the event is stored.
        self._proves(arrived_ms + 1, 2 * arrived_ms - brought_ms)

    def _proves(self, from_ms: int, live_ms: int) -> None:
        if self._proof is None or live_ms < self._proof[1]:
            self._proof = from_ms, live_ms

    @property
    def comes_from_ms(self) -> int | None:
        """Since when, at the earliest, happened what comes while it catches up; None if that is unknown."""
        # A silent predecessor counts as good, but may have been dead since it was last heard.
        return None if self.since_ms is None else min(self.since_ms, self._asked_ms - self._behind_ms)

    def is_live(self, at_ms: int) -> bool:
        """Returns whether the connection had caught up at that instant, as far as is recorded."""
        return self.live_ms is not None and self.live_ms <= at_ms

    def settles(self, stored_until_ms: int | None) -> None:
        """Accepts the proof once everything before it is stored: all until `stored_until_ms`, or simply all (None)."""
        if self._proof is None or self.live_ms is None:
            return
        if stored_until_ms is None or stored_until_ms >= self._proof[0]:
            self.live_ms = min(self.live_ms, self._proof[1])

    def reaches_cursor(self) -> None:
        """Records that the upstream went back to the cursor: its numbers show it, even if the profile promises less."""
        self.reach_ms = None

    def unknown(self, now_ms: int) -> None:
        """Records that the answer does not begin after the cursor: what came in between can no longer be requested."""
        self.resumed = False
        self.forgot_ms = self.live_ms = now_ms

    def restarted(self, opened_ms: int) -> None:
        """Records that the upstream's ids started over: nothing proves that it sent what came after the cursor."""
        self.resumed, self.live_ms = False, opened_ms

    def expired(self, now_ms: int, *, has_moved: bool) -> None:
        """Records that the upstream has forgotten what came after the cursor, unless it `has_moved` since."""
        self.forgot_ms = now_ms
        self.resumed = self.resumed and has_moved

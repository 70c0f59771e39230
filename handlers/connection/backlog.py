"""Decides when a connection that resumed from a cursor has caught up: all that was sent before has come by then.

It is assumed to take as long as the connection was behind. Sooner, it has caught up when the upstream was idle: for
`IDLE_MS` nothing came but signs of life, and then another one. Silence alone is no proof: a dead peer is silent too,
and so is one that is still looking for the first event to send. And an event's own time shows how far the connection
is behind (`own_time.py`).

    0.0 s  opened, 60 s behind       caught up at 60 s, unless the upstream shows it sooner
    1.0 s  the last event comes
    4.0 s  a comment
    6.5 s  a comment                 caught up at 6 s, once all that came until then is stored
"""

from __future__ import annotations

from handlers.connection.inputs import Resumption

# While an upstream sends its backlog, page by page of a table say, its pauses are shorter than this.
IDLE_MS = 5_000
# The profile says how far back the upstream goes at least. It may keep, and send, this many times as much.
KEEPS = 2


class Backlog:
    """What one connection is behind, from the cursor on; `resumed` is whether it requested that."""

    def __init__(self) -> None:
        self.resumed = False
        self.reach_ms: int | None = None  # how far back it goes; None: to the cursor, or as its numbers show
        self.since_ms: int | None = None  # until when all was known when it resumed
        self.live_ms: int | None = None  # when it has caught up
        self.forgot_ms: int | None = None  # when the upstream had forgotten what came after the cursor
        self.idle_from_ms = 0  # since when nothing came but signs of life
        self._behind_ms = 0  # how long it must have lasted to have caught up, as of `_asked_ms`
        self._asked_ms = 0
        # From when on the best proof counts, and when the connection has caught up by it.
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
        """Records that with the event that arrived then, all has come that happened until `brought_ms`.

        We assume that it makes up for what it still lacks at twice the speed at which that happened.
        """
        # Once it is known good until later than the arrival, the event is stored.
        self._proves(arrived_ms + 1, 2 * arrived_ms - brought_ms)

    def _proves(self, from_ms: int, live_ms: int) -> None:
        if self._proof is None or live_ms < self._proof[1]:
            self._proof = from_ms, live_ms

    def is_live(self, at_ms: int) -> bool:
        """Returns whether the connection had caught up at that instant, as far as is written down."""
        return self.live_ms is not None and self.live_ms <= at_ms

    def settles(self, stored_until_ms: int | None) -> None:
        """Accepts the proof once what came before it is stored: all until `stored_until_ms`, or all at None."""
        if self._proof is None or self.live_ms is None:
            return
        if stored_until_ms is None or stored_until_ms >= self._proof[0]:
            self.live_ms = min(self.live_ms, self._proof[1])

    def reaches_cursor(self) -> None:
        """Records that the upstream went back to the cursor: its numbers show it, whatever the profile vouches for."""
        self.reach_ms = None

    def unknown(self, now_ms: int) -> None:
        """Records that the answer does not begin after the cursor: what came in between can no longer be requested."""
        self.resumed = False
        self.forgot_ms = self.live_ms = now_ms

    def expired(self, now_ms: int, *, has_moved: bool) -> None:
        """Records that the upstream has forgotten what came after the cursor, unless it `has_moved` since."""
        self.forgot_ms = now_ms
        self.resumed = self.resumed and has_moved

"""Decides which of a group's streams a function keeps, when the function itself ends, and with which outcome.

The members are read anew whenever the version in the group's lease differs from that of the last reading. A reading
counts for the version that was known *before* it began, so no stream that joins is missed. The newest function begins
the wanted streams. An older one begins none, and keeps each of its streams until a newer connection takes it over.

    apply_lease(version 4)   is_behind: read them   set_members(4, {a, b})   streams_to_open: a, b
    apply_lease(version 5)   is_behind: read them   set_members(5, {b, c})   streams_to_open: c   former_members: a

Times are integer milliseconds that the caller passes. Invariants: a function ends only when none of its streams runs;
it waits for its next turn only if a newer one lives; a member that is over is not begun unless it joins again.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from handlers.connection.effects import Outcome
from handlers.connection.ends import EXPIRED, STOPPED, SUPERSEDED
from handlers.group.group_lease import GroupLease, is_newer_alive
from handlers.group.next_step import NextStep


class Roster:
    """The streams of one function: function `token` of `execution`. It begins nothing from `last_ms` on."""

    def __init__(self, token: int, execution: str, last_ms: int) -> None:
        self._token = token
        self._execution = execution
        self.last_ms = last_ms
        self._lease = GroupLease()
        self._has_newer = False
        self.is_ended = False  # another function marked it as ended: it must close everything
        self._newer_since_ms: int | None = None
        self._is_unseen = False  # a stream was relieved, and the lease has not been read since
        self._members_version: int | None = None
        self._members: dict[str, str] = {}  # when each joined
        self._next_steps: dict[str, NextStep | None] = {}  # None while it runs; AGAIN if it should be begun

    # --- what it learns -----------------------------------------------------------------------------------------------

    def apply_lease(self, lease: GroupLease, now_ms: int) -> None:
        """Records the group's lease from the answer to a heartbeat."""
        self._lease = lease
        self.is_ended = any(
            heartbeat.token == self._token and heartbeat.is_ended for heartbeat in lease.heartbeats.values()
        )
        self._has_newer = is_newer_alive(lease, self._token, now_ms)
        if not self._has_newer:
            self._newer_since_ms = None
        elif self._newer_since_ms is None:
            self._newer_since_ms = now_ms
        self._is_unseen = False
        if lease.token == self._token:
            # Something outside of the group took a stream from this function. The function tries again once a
            # heartbeat, not at once.
            self._next_steps |= {
                one: NextStep.AGAIN for one, part in self._next_steps.items() if part is NextStep.RELIEVED
            }

    def set_members(self, version: int, members: Mapping[str, str]) -> None:
        """Records the members, each with when it joined; they were read after `version` was known."""
        for stream, joined in members.items():
            has_rejoined = self._members.get(stream) != joined
            if stream not in self._next_steps or (
                has_rejoined and self._next_steps[stream] in (NextStep.OVER, NextStep.UNREAD)
            ):
                self._next_steps[stream] = NextStep.AGAIN
        self._members_version, self._members = version, dict(members)
        for stream in [one for one, part in self._next_steps.items() if one not in members and part is not None]:
            del self._next_steps[stream]

    def mark_begun(self, stream: str) -> None:
        """Records that the stream was begun."""
        self._next_steps[stream] = None

    def mark_ended(self, stream: str, next_step: NextStep) -> None:
        """Records that the stream no longer runs, and what follows.

        An older function never gets a stream back that a newer one has claimed, unless no newer one lives any more.
        """
        self._is_unseen = self._is_unseen or next_step is NextStep.RELIEVED
        if stream in self._members:
            self._next_steps[stream] = next_step
        else:
            del self._next_steps[stream]

    def mark_removed(self, stream: str) -> None:
        """Records that the stream is no longer a member: it was over, and has not joined again."""
        self._members.pop(stream, None)
        self._next_steps.pop(stream, None)

    # --- what it decides ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._next_steps)

    def count_away(self, connected: Set[str]) -> int:
        """Returns how many of the members are not among these streams."""
        return len(self._members.keys() - connected)

    @property
    def running(self) -> list[str]:
        """Returns the streams that were begun and have not ended."""
        return [stream for stream, part in self._next_steps.items() if part is None]

    @property
    def awaiting_profile(self) -> list[str]:
        """Returns the streams whose profile is being requested."""
        return [stream for stream, part in self._next_steps.items() if part is NextStep.UNREAD]

    @property
    def is_behind(self) -> bool:
        """Whether the members must be read again, according to the last lease."""
        return self._members_version != self._lease.version

    @property
    def can_reconnect(self) -> bool:
        """Whether this function reconnects a stream whose connection was lost."""
        return not (self._has_newer or self.is_ended or self._lease.stop or self._is_superseded)

    def overlap_ms(self, now_ms: int) -> int:
        """Returns for how long a newer function has lived beside it, without a break."""
        return 0 if self._newer_since_ms is None else now_ms - self._newer_since_ms

    def streams_to_open(self, now_ms: int) -> list[str]:
        """Returns the streams that should be begun now, in the order of their names."""
        if not self.can_reconnect or now_ms >= self.last_ms:
            return []
        return sorted(stream for stream, part in self._next_steps.items() if part is NextStep.AGAIN)

    @property
    def former_members(self) -> list[str]:
        """Returns the running streams that are no longer members."""
        return [stream for stream in self.running if stream not in self._members]

    def is_kept(self, stream: str) -> bool:
        """Returns whether the stream is a member that should be connected again if its connection is lost."""
        return self.can_reconnect and stream in self._members

    def join_time(self, stream: str) -> str | None:
        """Returns when the member joined; None if the stream is not a member."""
        return self._members.get(stream)

    def removal_of(self, stream: str) -> str | None:
        """Returns when the member that is over had joined, so that it can be removed; None if it is not over."""
        return self._members.get(stream) if self._next_steps.get(stream) is NextStep.OVER else None

    @property
    def empty_version(self) -> int | None:
        """Returns the version at which the group may be ended; None if it is not empty, or not this execution's."""
        is_empty = not self._members and not self._next_steps and self._members_version is not None
        return self._lease.version if is_empty and self.can_reconnect and not self.is_behind else None

    def outcome(self, now_ms: int) -> Outcome | None:
        """Returns how the function ends; None while it goes on."""
        parts = self._next_steps.values()
        if None in parts or self._members_version is None:
            return None
        if self._is_superseded:
            return SUPERSEDED
        if self._lease.stop:
            return STOPPED
        if self._has_newer:
            relieved = Outcome("StreamTakenOver", "", "a newer function keeps the group's streams connected")
            return EXPIRED if NextStep.STANDBY in parts else relieved
        # The function that relieved a stream may be newer than the last reading of the lease: then await the next one.
        return EXPIRED if self.is_ended or (now_ms >= self.last_ms and not self._is_unseen) else None

    @property
    def _is_superseded(self) -> bool:
        """Whether another execution has claimed the group since."""
        return bool(self._lease.execution) and self._lease.execution != self._execution

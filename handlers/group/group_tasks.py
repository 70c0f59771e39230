"""Decides what a function requests for its group as a whole, beside the steps of its streams: one request at a time.

    heartbeat   every so often: it is alive; answered by the group's lease
    check       between two heartbeats that are far apart: has a stream joined or left? Answered by the version of the
                membership as it was a moment ago. A later one brings the next heartbeat forward; it does not replace
                the known lease, because this read is half the price and may be older
    members     if the lease's version is not that of the last reading: the members, each with when it joined
    records     after that, and when another function has claimed or marked one: the records of all its streams
    remove      a stream that is over: its record lets it go, and then its place is free
    end         when no member is left; answered by the lease, with a stop unless a stream has joined since

A heartbeat comes before everything else, because a function that is late with it counts as dead. Pure: times are
integer milliseconds that the caller passes. Invariants: one request is under way at a time; a reading of the members
counts for a version that was known before it began.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from handlers.group.group_lease import GroupLease, is_newer_alive, turns_of_others
from handlers.group.roster import Roster


class GroupTask(NamedTuple):
    """One request; `version` is the one that the members count for, or at which the group has no member.

    `stream` is over and is to be removed; it had joined at `joined`.
    """

    kind: Literal["heartbeat", "check", "members", "records", "remove", "end"]
    version: int = 0
    stream: str = ""
    joined: str = ""


# A check comes half-way between two heartbeats if it is at least this far from both: it costs a tenth of one.
CHECK_LEAST_MS = 1_000
NEVER_MS = 2**63


class GroupTasks:
    """The tasks of function `token`: a heartbeat every `every_ms`, or every `often_ms` while a newer one lives."""

    def __init__(self, roster: Roster, token: int, every_ms: int, often_ms: int) -> None:
        self._roster = roster
        self._token = token
        self._every_ms = every_ms
        self._often_ms = often_ms
        self._heartbeat_due_ms = 0
        self._check_due_ms = NEVER_MS
        self._lease = GroupLease()
        self._turns: frozenset[tuple[int, int]] | None = None  # of others, as of the last reading of the records
        self._over: list[str] = []
        self.retry_at_ms = 0  # after a refusal of the store
        self._under_way: GroupTask | None = None

    @property
    def due_ms(self) -> int:
        """Returns when the next heartbeat or check is due, or when a request that the store refused is repeated."""
        return max(min(self._heartbeat_due_ms, self._check_due_ms), self.retry_at_ms)

    def record_claim(self, lease: GroupLease, now_ms: int) -> None:
        """Records the lease as the function's claim found it."""
        self._apply_lease(lease, now_ms)
        self._heartbeat_due_ms = now_ms

    def add_over(self, stream: str) -> None:
        """Records that a stream is over, so that its place is freed."""
        self._over.append(stream)

    def next_task(self, now_ms: int) -> GroupTask | None:
        """Returns the next request; None if there is none, or one is under way."""
        if self._under_way is None:
            self._under_way = self._due_task(now_ms)
            return self._under_way
        return None

    def record_answer(self, now_ms: int, value: Any) -> None:
        """Records the answer to the request under way; None if the store refused, and then it is repeated."""
        group_task, self._under_way = self._under_way, None
        assert group_task is not None
        match group_task.kind:
            case "check":
                # A failed check is not repeated: the heartbeat comes soon.
                self._check_due_ms = NEVER_MS
                if value is not None and value > self._lease.version:
                    self._heartbeat_due_ms = now_ms
            case _ if value is None:
                self.retry_at_ms = now_ms + self._often_ms
            case "heartbeat":
                self._apply_lease(value, now_ms)
                newer = is_newer_alive(value, self._token, now_ms)
                self._heartbeat_due_ms = now_ms + (self._often_ms if newer else self._every_ms)
                half_ms = self._every_ms // 2
                self._check_due_ms = NEVER_MS if newer or half_ms < CHECK_LEAST_MS else now_ms + half_ms
            case "members":
                self._roster.set_members(group_task.version, value)
                self._turns = None
            case "records":  # they were read after the lease became known
                self._turns = turns_of_others(self._lease, self._token)
            case "remove":
                self._over.remove(group_task.stream)
                self._roster.mark_removed(group_task.stream)
            case "end":
                self._apply_lease(value, now_ms)

    def _apply_lease(self, lease: GroupLease, now_ms: int) -> None:
        self._lease = lease
        self._roster.apply_lease(lease, now_ms)

    def _due_task(self, now_ms: int) -> GroupTask | None:
        roster = self._roster
        if now_ms < self.retry_at_ms:
            return None
        if now_ms >= self._heartbeat_due_ms:
            return GroupTask("heartbeat")
        if roster.is_behind:
            return GroupTask("members", self._lease.version)
        if now_ms >= self._check_due_ms:
            return GroupTask("check")
        if self._turns != turns_of_others(self._lease, self._token):
            return GroupTask("records")
        for stream in [*self._over]:
            joined = roster.removal_of(stream)
            if joined is not None:
                return GroupTask("remove", stream=stream, joined=joined)
            self._over.remove(stream)  # it has joined again
        version = roster.empty_version
        return None if version is None else GroupTask("end", version)

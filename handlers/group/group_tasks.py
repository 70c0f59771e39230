"""Decides what a function asks for its group as a whole, beside the steps of its streams: one request at a time.

    SendHeartbeat()      every so often: it is alive, and the answer is the group's lease
    CheckVersion()       between two heartbeats that are far apart: has anybody joined or left?
    ReadMembers(5)       where the lease's version is another than that of the last reading
    ReadRecords()        of all its streams, after that, and where another function has claimed or marked one
    Remove("a", "…")     a stream that is over: its record lets it go, and then its place is free
    EndGroup(5)          where there is no member left at version 5

A heartbeat comes before all else, for whoever is late with it counts as dead. Pure: times are integer milliseconds that
the caller passes. Invariants: nothing is asked for while another request is under way; the version that a reading of
the members counts for is one that was known before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from handlers.group.group_lease import GroupLease, newer_lives, turns_of_others
from handlers.group.roster import Roster


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Answered by the group's lease."""


@dataclass(frozen=True, slots=True)
class CheckVersion:
    """Answered by the version of the membership, as it was a moment ago: a later one brings the next heartbeat forward.

    The lease is not taken from it, for a read that is half as dear may be older than what is known.
    """


@dataclass(frozen=True, slots=True)
class ReadMembers:
    """Answered by the members, each with when it joined; `version` is what they count for."""

    version: int


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Answered by nothing: the records of the function's streams were read, and who is concerned was told."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Answered by nothing: the stream that had joined then is over, and is no member any more."""

    stream: str
    joined: str


@dataclass(frozen=True, slots=True)
class EndGroup:
    """Answered by the group's lease; it says stop where nobody has joined since `version`."""

    version: int


# A look is half way between two heartbeats, where it is so far from either: a heartbeat is a write, a look a tenth of
# its price.
CHECK_LEAST_MS = 1_000
NEVER_MS = 2**63

GroupTask = SendHeartbeat | CheckVersion | ReadMembers | ReadRecords | Remove | EndGroup


class GroupTasks:
    """Those of function `token`: a heartbeat every `every_ms`, and every `often_ms` while a newer function lives."""

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
        self.rests_until_ms = 0  # after the store has refused
        self._under_way: GroupTask | None = None

    @property
    def due_ms(self) -> int:
        """Returns when the next heartbeat or look is due, or what the store refused is asked for again."""
        return max(min(self._heartbeat_due_ms, self._check_due_ms), self.rests_until_ms)

    def claimed(self, lease: GroupLease, now_ms: int) -> None:
        """Records the lease as the function's claim found it."""
        self._saw(lease, now_ms)
        self._heartbeat_due_ms = now_ms

    def over(self, stream: str) -> None:
        """Records that a stream is over, so that its place is to be freed."""
        self._over.append(stream)

    def next(self, now_ms: int) -> GroupTask | None:
        """Returns what is to be asked for now; None where nothing is, or something is under way."""
        if self._under_way is None:
            self._under_way = self._due(now_ms)
            return self._under_way
        return None

    def answered(self, now_ms: int, value: GroupLease | Mapping[str, str] | int | None) -> None:
        """Records the answer to what is under way; None where the store refused, and it is asked for again."""
        group_task, self._under_way = self._under_way, None
        match group_task, value:
            case SendHeartbeat(), GroupLease():
                self._saw(value, now_ms)
                newer = newer_lives(value, self._token, now_ms)
                self._heartbeat_due_ms = now_ms + (self._often_ms if newer else self._every_ms)
                half_ms = self._every_ms // 2
                self._check_due_ms = NEVER_MS if newer or half_ms < CHECK_LEAST_MS else now_ms + half_ms
            case CheckVersion(), int() | None:
                # One that failed is not made again: the heartbeat comes soon.
                self._check_due_ms = NEVER_MS
                if value is not None and value > self._lease.version:
                    self._heartbeat_due_ms = now_ms
            case EndGroup(), GroupLease():
                self._saw(value, now_ms)
            case ReadMembers(version), Mapping():
                self._roster.listed(version, value)
                self._turns = None
            case _:
                self.rests_until_ms = now_ms + self._often_ms

    def removed(self, stream: str) -> None:
        """Records that the place of a stream is free."""
        self._under_way = None
        self._over.remove(stream)
        self._roster.removed(stream)

    def read(self) -> None:
        """Records that the records of the streams were read, after the lease that is known."""
        self._under_way = None
        self._turns = turns_of_others(self._lease, self._token)

    def _saw(self, lease: GroupLease, now_ms: int) -> None:
        self._lease = lease
        self._roster.sees(lease, now_ms)

    def _due(self, now_ms: int) -> GroupTask | None:
        roster = self._roster
        if now_ms < self.rests_until_ms:
            return None
        if now_ms >= self._heartbeat_due_ms:
            return SendHeartbeat()
        if roster.is_behind:
            return ReadMembers(self._lease.version)
        if now_ms >= self._check_due_ms:
            return CheckVersion()
        if self._turns != turns_of_others(self._lease, self._token):
            return ReadRecords()
        for stream in [*self._over]:
            joined = roster.removes(stream)
            if joined is not None:
                return Remove(stream, joined)
            self._over.remove(stream)  # it has joined anew
        version = roster.empty_version
        return None if version is None else EndGroup(version)

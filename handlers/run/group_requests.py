"""Decides which requests to the store the tasks of a group's function take: its heartbeats, its members, its end.

Invariant: a stream that is over is recorded before its place in the group is free.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Set
from typing import Any

from handlers.connection.effects import Outcome
from handlers.group.group_lease import GroupHeartbeat, GroupLease
from handlers.group.group_tasks import GroupTask
from handlers.group.roster import Roster
from handlers.run.group_ports import GroupPorts, GroupTables
from handlers.store import typed_values
from handlers.store.control_table import Table
from handlers.store.grouped_store import GroupedStore
from handlers.store.known_streams import GroupFunction


class GroupRequests:
    """The requests of the function `who`, which has claimed the group; `store` is that of its streams."""

    def __init__(self, who: GroupFunction, tables: GroupTables, store: GroupedStore, ports: GroupPorts) -> None:
        self._who, self._groups, self._store = who, tables.group_store(who.group), store
        self._clock, self._reports = ports.clock, ports.report_end
        self._table = Table(tables.dynamodb, tables.control_table)

    def first_heartbeat(self) -> tuple[bool, GroupLease]:
        """Makes the function count as alive; returns whether the execution still has the group, and the lease."""
        # Until it has read the members it cannot know that all are connected.
        now_ms = self._clock.now_ms()
        heartbeat = GroupHeartbeat(self._who.token, now_ms, now_ms + self._who.lag_ms, away=1)
        return self._groups.first_heartbeat(self._who.request_id, self._who.execution, heartbeat)

    def mark_ended(self) -> None:
        """Marks its heartbeat as ended, so that no function waits for it; tries twice, as a heartbeat's answer may be
        lost.

        It also repeats the releases that failed: a function that takes a stream out of the group does not read its
        heartbeat.
        """
        self._store.retry_releases()
        lease = self._store.lease
        for _ in range(2):
            heartbeat = lease.heartbeats.get(self._who.request_id)
            if heartbeat is None or heartbeat.is_ended:
                return
            is_done, lease = self._groups.mark_ended(self._who.request_id, heartbeat)
            if is_done:
                return

    def make(
        self, task: GroupTask, roster: Roster, connected: Set[str], causes: Mapping[str, Outcome]
    ) -> Callable[[], Any]:
        """Returns the request of `task`; `connected` are the connected streams, `causes` how the others have ended."""
        groups = self._groups
        match task.kind:
            case "heartbeat":
                away = roster.count_away(connected) + self._store.unwell_count()
                return functools.partial(self._send, self._heartbeat(away), self._store.lease)
            case "check":
                return groups.version
            case "members":
                return functools.partial(self._members, task.version, self._store.lease.size)
            case "records":
                keys = [
                    typed_values.item_key(stream, "lease") for stream in [*roster.running, *roster.awaiting_profile]
                ]
                return lambda: list(self._table.batch_get(keys, consistent=True))
            case "remove":
                return functools.partial(self._remove, task.stream, task.joined, causes[task.stream])
            case "end":
                return functools.partial(groups.end_group, self._who.execution, task.version)

    def _heartbeat(self, away: int) -> GroupHeartbeat:
        until_ms = self._clock.now_ms() + self._who.lag_ms
        return GroupHeartbeat(self._who.token, self._store.heartbeat_at_ms(), until_ms, self._store.turns, away=away)

    def _send(self, heartbeat: GroupHeartbeat, known: GroupLease) -> tuple[bool, GroupLease]:
        answer = self._groups.heartbeat(self._who.request_id, heartbeat, known)
        self._store.retry_releases()
        return answer

    def _members(self, version: int, size: int) -> Mapping[str, str]:
        members = self._groups.members()
        if len(members) != size:
            self._groups.record_size(version, len(members), frees_places=len(members) < size)
        return members

    def _remove(self, stream: str, joined: str, outcome: Outcome) -> bool:
        """Records how the stream has ended, then frees its place; before both it reports a rejection to a person.

        A stream that has joined anew keeps its place: that POST may have got no further, and the next one finds the
        stream in its group.
        """
        if outcome.error:
            self._reports(stream, self._who.execution, outcome)
        cause = outcome.message if outcome.error else outcome.status
        if anew := self._store.record_stream_end(stream, joined, outcome.error or "StreamEnded", cause):
            self._groups.add_member(stream, anew)
            self._groups.raise_version()
            return False
        return self._groups.remove_member(stream, joined, self._clock.now_ms())

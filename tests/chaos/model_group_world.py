"""One state of the model of a group: the group's lease, the streams' records, the functions and the requests.

It decides which states are the same (`World.key`): only the order of tokens, stamps and versions counts. It has no
clock: a heartbeat has expired or has not. Transitions are elsewhere. Invariant: a World never changes; a step copies
it, with the rosters that it feeds.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from handlers.connection.lease import Lease
from handlers.group.group_lease import GroupHeartbeat, GroupLease, is_newer_alive
from handlers.group.roster import Roster
from tests.chaos.explorer import Violation, ranks

NOW_MS, ALIVE_MS, PAST_MS, LAST_MS = 1_000, 2_000, 500, 10_000
NO_LEASE = Lease()
LIMIT = {"evicts": 1, "forbids": 1, "tolerates": 2}


@dataclass(frozen=True, slots=True)
class Record:
    """A stream's record: its counters, the function that claimed it last, and the requests for it.

    `joined` is the stamp of the POST by which it is in the group, 0 for none; `stop_at` that of the last stop request.
    """

    lease: Lease = NO_LEASE
    token: int = 0
    joined: int = 0
    stop_at: int = 0


@dataclass(frozen=True, slots=True)
class Conn:
    """A connection: "claimed", "open" (answered), "connected" (marked), "closed" (by the upstream) or "released".

    After a takeover it reads on for its overlap and is "overlapping".
    """

    fence: int
    phase: str

    @property
    def is_open(self) -> bool:
        """Whether the upstream has it open."""
        return self.phase in ("open", "connected", "overlapping")


@dataclass(frozen=True)
class Function:
    """A running function. `is_unread`: it must read its streams' records, because the membership has changed.

    `died` is its knowledge of a dead function. `is_late`: its deadline has come.
    """

    token: int
    lane: int
    roster: Roster
    conns: Mapping[str, Conn]
    is_unread: bool = False
    died: str = ""
    is_late: bool = False

    @property
    def request(self) -> str:
        """Returns the id of Lambda's request."""
        return f"r{self.token}"

    @property
    def now_ms(self) -> int:
        """Returns its clock, which reaches its deadline when it is late."""
        return LAST_MS if self.is_late else NOW_MS

    def with_conn(self, stream: str, conn: Conn | None) -> Function:
        """Returns a copy with this connection of the stream, or without one."""
        conns = {name: one for name, one in self.conns.items() if name != stream}
        return replace(self, conns=conns if conn is None else conns | {stream: conn})

    def with_own_roster(self) -> Function:
        """Returns a copy whose roster may be fed."""
        roster = copy.copy(self.roster)
        for name in ("_next_steps", "_members"):
            roster.__dict__[name] = dict(self.roster.__dict__[name])
        return replace(self, roster=roster)


@dataclass(frozen=True, slots=True)
class Asked:
    """A POST or a DELETE in progress: its next write, and its stamp."""

    kind: str
    stream: str
    stamp: int
    stage: int = 0


@dataclass(frozen=True)
class World:
    """One state. `lanes` are those of the running execution, none if none runs; `budget` has the remaining faults."""

    budget: tuple[tuple[str, int], ...]
    records: Mapping[str, Record]
    members: Mapping[str, int]
    group: GroupLease
    lanes: tuple[str, ...]
    functions: tuple[Function, ...] = ()
    asked: tuple[Asked, ...] = ()
    told: tuple[str, ...] = ("", "")  # what the machine tells the next function of each lane
    stamps: int = 1
    executions: int = 1

    def left(self, fault: str) -> int:
        """Returns how many of these faults are left."""
        return dict(self.budget).get(fault, 0)

    def spend(self, fault: str) -> World:
        """Returns the world with one of these faults less."""
        return replace(self, budget=tuple((name, count - (name == fault)) for name, count in self.budget))

    def with_function(self, function: Function) -> World:
        """Returns the world with the function in its new state."""
        functions = tuple(function if one.token == function.token else one for one in self.functions)
        return replace(self, functions=functions)

    def with_record(self, stream: str, record: Record) -> World:
        """Returns the world with the written record; raises Violation if a counter went back."""
        before, after = self.records[stream].lease, record.lease
        for name in ("fence", "connected_token", "released_token"):
            if getattr(after, name) < getattr(before, name):
                raise Violation("only forward", f"{name} of {stream} went back")
        if record.token < self.records[stream].token:
            raise Violation("only forward", f"an older function claimed {stream} after a newer one")
        return replace(self, records={**self.records, stream: record})

    def with_heartbeat(self, request: str, heartbeat: GroupHeartbeat | None) -> World:
        """Returns the world with a heartbeat in the group's lease, or without it."""
        heartbeats = {name: one for name, one in self.group.heartbeats.items() if name != request}
        return replace(
            self,
            group=replace(
                self.group, heartbeats=heartbeats if heartbeat is None else heartbeats | {request: heartbeat}
            ),
        )

    def is_wanted(self, stream: str) -> bool:
        """Returns whether the stream should be connected by the last requests."""
        return self.records[stream].joined > 0 and not self.records[stream].lease.stop

    def key(self) -> tuple[Any, ...]:
        """Returns a value that distinguishes the state from others."""
        rosters = [one.roster.__dict__ for one in self.functions]
        leases = [self.group, *(roster["_lease"] for roster in rosters)]
        functions: list[Any] = [*self.records.values(), *self.functions, self.group, *self.group.heartbeats.values()]
        tokens = ranks(one.token for one in functions)
        versions = ranks(
            [*(lease.version for lease in leases), *(roster["_members_version"] or 0 for roster in rosters)]
        )
        stamps = ranks(
            [
                *(one.stamp for one in self.asked),
                *self.members.values(),
                *(value for one in self.records.values() for value in (one.joined, one.stop_at)),
                *(int(value) for roster in rosters for value in roster["_members"].values()),
            ]
        )
        fences = {stream: _fence_ranks(self, stream) for stream in self.records}

        def function_key(one: Function) -> tuple[Any, ...]:
            inner = one.roster.__dict__
            return (
                one.lane,
                tokens[one.token],
                versions[inner["_lease"].version],
                self.conclusions_from(one, inner["_lease"])[1:],
                inner["_members_version"] is not None and versions[inner["_members_version"]],
                tuple(sorted((name, stamps[int(value)]) for name, value in inner["_members"].items())),
                inner["_has_newer"],
                inner["_lease"].token == one.token,
                tuple(sorted((name, part.value if part else "") for name, part in inner["_next_steps"].items())),
                tuple(sorted((name, fences[name][conn.fence], conn.phase) for name, conn in one.conns.items())),
                (one.is_unread, tokens[self._names(one.died)], one.is_late),
            )

        return (
            self.budget,
            tuple(
                (
                    name,
                    *(
                        fences[name][getattr(one.lease, mark)]
                        for mark in ("fence", "connected_token", "released_token")
                    ),
                    one.lease.stop,
                    tokens[self._names(one.lease.connected_by)],
                    tokens[one.token],
                    stamps[one.joined],
                    stamps[one.stop_at],
                )
                for name, one in sorted(self.records.items())
            ),
            tuple(sorted((name, stamps[stamp]) for name, stamp in self.members.items())),
            (tokens[self.group.token], self.group.stop, versions[self.group.version], bool(self.group.execution)),
            tuple(sorted((tokens[one.token], one.until_ms, one.is_ended) for one in self.relevant_heartbeats())),
            self.lanes,
            tuple(sorted(function_key(one) for one in self.functions)),
            tuple(sorted((one.kind, one.stream, stamps[one.stamp], one.stage) for one in self.asked)),
            tuple(tokens[self._names(text)] for text in self.told),
        )

    def relevant_heartbeats(self) -> list[GroupHeartbeat]:
        """Returns the heartbeats that may still matter: of living functions, or of those in a stream's record."""
        shown = {one.lease.connected_by for one in self.records.values()} | {one.request for one in self.functions}
        return [
            heartbeat
            for name, heartbeat in self.group.heartbeats.items()
            if heartbeat.is_alive(NOW_MS) or name in shown
        ]

    def conclusions_from(self, one: Function, lease: GroupLease) -> tuple[Any, ...]:
        """Returns a function's conclusions from the group's lease; nothing else of the lease matters."""
        own = lease.heartbeats.get(one.request)
        shown = [lease.heartbeats.get(record.lease.connected_by) for _, record in sorted(self.records.items())]
        waits = any(conn.phase == "claimed" for conn in one.conns.values())
        return (
            lease.version,
            lease.token == one.token,
            lease.stop,
            lease.execution == self.group.execution,
            is_newer_alive(lease, one.token, NOW_MS),
            own is not None and own.is_ended,
            tuple(heartbeat and (heartbeat.until_ms, heartbeat.is_ended) for heartbeat in shown) if waits else (),
        )

    def _names(self, text: str) -> int:
        """Returns the token of the function in the text if it is in a stream's record, else 0."""
        shown = sorted({one.lease.connected_by for one in self.records.values()} & self.group.heartbeats.keys())
        return next((self.group.heartbeats[name].token for name in shown if name in text.split()), 0)


def _fence_ranks(world: World, stream: str) -> dict[int, int]:
    lease = world.records[stream].lease
    conns = [one.conns[stream].fence for one in world.functions if stream in one.conns]
    return ranks([*conns, lease.fence, lease.connected_token, lease.released_token])

"""Decides what the lease of a group and the record of one of its streams mean together to a connection of that stream.

    the group's lease   the token of the newest function, the life of each function, and the membership's version
    a stream's record   the stream's own counters (`handlers/connection/lease.py`), and its own stop request

A connection gets one lease composed of the two: the counters and the stop request are the stream's, the execution is
the group's, and the connected holder lives as long as its function's heartbeat says. So one heartbeat of a function
renews all of its streams.

    stream: connected 7 by r1, until 12:14     its function's limit: nothing renews the record
    group:  r1 heartbeats until 12:00:20       connection 7 counts as connected until 12:00:20

A function whose heartbeat has run out may still run. So before another takes the turn of one of its connections, it
marks the function as *ended*: by one conditional write, which is refused if the function has sent a heartbeat
meanwhile. An ended function closes everything as soon as it learns that.

Times are integer milliseconds that the caller passes. Invariant: a connection whose function is not marked as ended
counts as over only once that function's own limit has passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from handlers.connection.lease import Lease, is_holder_dead
from handlers.values import dataclass


@dataclass(frozen=True, slots=True)
class GroupHeartbeat:
    """A function as the group's lease shows it: its `token`, its last heartbeat, and until when it counts as alive.

    `turns` counts its claims and marks of streams: when it grows, other functions read the records again. `away` is how
    many of its streams are not connected, as far as it knows, or should be checked.
    """

    token: int
    at_ms: int
    until_ms: int
    turns: int = 0
    is_ended: bool = False
    away: int = 0

    def is_alive(self, now_ms: int) -> bool:
        """Returns whether it counts as alive."""
        return not self.is_ended and now_ms < self.until_ms


@dataclass(frozen=True, slots=True)
class GroupLease:
    """The record as it was read. Each function's claim raises `token`; the function that raised it to n is function n.

    `execution` is the one that claimed the group, "" for none. `stop` is whether the group should end. `version` grows
    with each stream that joins or is asked to stop. `size` counts the taken places. `heartbeats` are those of its
    functions, by Lambda's request ids.
    """

    token: int = 0
    execution: str = ""
    stop: bool = False
    version: int = 0
    size: int = 0
    heartbeats: Mapping[str, GroupHeartbeat] = field(default_factory=dict)


def compose_lease(own: Lease, group: GroupLease) -> Lease:
    """Returns the lease that a connection of the stream gets; `own` is from the stream's record."""
    heartbeat = group.heartbeats.get(own.connected_by)
    expires_at_ms = own.expires_at_ms
    if heartbeat is not None and own.connected_by:
        expires_at_ms = heartbeat.at_ms if heartbeat.is_ended else min(expires_at_ms, heartbeat.until_ms)
    execution = group.execution or own.execution
    return replace(own, execution=execution, stop=own.stop or group.stop, expires_at_ms=expires_at_ms)


def is_newer_alive(group: GroupLease, token: int, now_ms: int) -> bool:
    """Returns whether a function that claimed the group after function `token` counts as alive."""
    return any(heartbeat.token > token and heartbeat.is_alive(now_ms) for heartbeat in group.heartbeats.values())


def is_all_connected(group: GroupLease, now_ms: int) -> bool:
    """Returns whether all streams of the group are connected, by its newest living function, so no record need be read.

    False if no function lives.
    """
    living = [heartbeat for heartbeat in group.heartbeats.values() if heartbeat.is_alive(now_ms)]
    return bool(living) and max(living, key=lambda heartbeat: heartbeat.token).away == 0


def alive_until_ms(group: GroupLease) -> int:
    """Returns until when a function of the group is known to have lived; 0 if none ever did."""
    return max(
        (heartbeat.at_ms if heartbeat.is_ended else heartbeat.until_ms for heartbeat in group.heartbeats.values()),
        default=0,
    )


def is_away(lease: Lease, now_ms: int) -> bool:
    """Returns whether a stream of the group is not connected, by its composed lease."""
    is_open = lease.connected_token > lease.released_token
    return not lease.stop and not (is_open and now_ms < lease.expires_at_ms)


def function_to_mark_ended(own: Lease, group: GroupLease, fence: int, now_ms: int, died: str = "") -> str:
    """Returns which function must be marked as ended before connection `fence` takes its turn; "" if none can be.

    It is one whose heartbeat has run out, or whose end is proved by `died`, Lambda's message about a function.
    """
    heartbeat = group.heartbeats.get(own.connected_by)
    open_before = own.released_token < own.connected_token < fence
    if heartbeat is None or heartbeat.is_ended or not open_before:
        return ""
    return own.connected_by if now_ms >= heartbeat.until_ms or is_holder_dead(own, died) else ""


def known_ended_turn(own: Lease, group: GroupLease) -> int:
    """Returns the connected token if its function is marked as ended, so that its turn is over; else 0."""
    heartbeat = group.heartbeats.get(own.connected_by)
    return own.connected_token if heartbeat is not None and heartbeat.is_ended else 0


def turns_of_others(group: GroupLease, token: int) -> frozenset[tuple[int, int]]:
    """Returns a value that changes whenever a function other than `token` may have claimed or marked a stream."""
    return frozenset(
        (heartbeat.token, heartbeat.turns) for heartbeat in group.heartbeats.values() if heartbeat.token != token
    )


def good_until_ms(seen_ms: int, lag_ms: int | None, heartbeat: GroupHeartbeat | None) -> int:
    """Returns until when a stream's connection is known to be good; its record has `seen_ms`.

    If the record has a `lag_ms`, its function's heartbeats cover it: it was good until that long before the heartbeat.
    With None only `seen_ms` counts, because some of its events are not stored.
    """
    if heartbeat is None or lag_ms is None:
        return seen_ms
    return max(seen_ms, heartbeat.at_ms - lag_ms)

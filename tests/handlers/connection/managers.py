"""Managers without a socket, a table or a clock, and readers of their effects."""

import json
from typing import Any

from handlers.connection.effects import (
    CloseUpstream,
    Effect,
    Finish,
    Heartbeat,
    Outcome,
    Release,
    ReplaceCursor,
    SaveRecord,
    Write,
)
from handlers.connection.inputs import Chunk, Claimed, Closed, LeaseRead, Opened, Resumption
from handlers.connection.lease import LEASE_TTL_READS, Lease
from handlers.connection.liveness import Liveness
from handlers.connection.manager import Manager
from handlers.connection.steps import Invocation
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse

DEADLINE_MS = 100_000
MARGIN_MS = 5_000
FENCE = 3
# The effects that may save a cursor, and those that write a record that grows.
SAVES = (Heartbeat, Release, ReplaceCursor)
RECORDS = (Heartbeat, SaveRecord)


def profile(overlap: str = "evicts", **more: Any) -> Profile:
    """Return a profile of server-sent events, unless `more` says otherwise."""
    table = {"address": "https://example.org/s", "framing": "sse", "overlap": overlap, **more}
    if table["framing"] == "sse":
        table["end"] = {"event": "end"}
    return parse("example", table, {})


def fresh(overlap: str = "evicts", overlap_max_ms: int = 10_000, died: str = "", **more: Any) -> Manager:
    """Return a manager that has not begun."""
    invocation = Invocation("demo", "A", "mine", "r1", DEADLINE_MS, MARGIN_MS, 1_000, 5_000, overlap_max_ms, died=died)
    return Manager(profile(overlap, **more), invocation)


# Where most managers resume, and the lease that they have claimed.
SEVEN, MINE = Resumption("7"), Lease(fence=FENCE, execution="mine")
# Its lease once it has its turn, taken at 20 ms.
TURN = Lease(fence=FENCE, connected_token=FENCE, execution="mine", expires_at_ms=20 + LEASE_TTL_READS * 5_000)


def claimed(
    overlap: str = "evicts", at: Resumption = SEVEN, lease: Lease = MINE, partitions: int = 1, **more: Any
) -> Manager:
    """Return a manager whose claim was granted at 20 ms."""
    manager = fresh(overlap, **more)
    manager.start(0)
    manager.handle(20, Claimed(lease, at, partitions=partitions))
    return manager


def connected(overlap: str = "evicts", **more: Any) -> Manager:
    """Return a manager that was answered at 30 ms."""
    manager = claimed(overlap, **more)
    if overlap == "forbids":
        manager.handle(20, LeaseRead(TURN, Resumption("7")))
    manager.handle(30, Opened(200))
    return manager


def outcome(effects: list[Effect]) -> Outcome:
    """Return the outcome of the Finish, which is the last effect."""
    assert isinstance(effects[-1], Finish)
    return effects[-1].outcome


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


def keys(effects: list[Effect]) -> list[str]:
    return [event.key for effect in effects if isinstance(effect, Write) for event in effect.events]


def chunk(manager: Manager, now_ms: int, *frames: Any) -> list[Effect]:
    """Return the effects of a chunk with these frames."""
    return manager.handle(now_ms, Chunk("".join(json.dumps(frame) + "\n" for frame in frames).encode()))


def drain(manager: Manager, now_ms: int, effects: list[Effect]) -> list[Effect]:
    """Return the effects after the upstream's close; the only one of `effects` must be the request to close it."""
    assert kinds(effects) == [CloseUpstream]
    return manager.handle(now_ms, Closed("closed_here"))


def event(number: int) -> bytes:
    """Return one server-sent event."""
    return b"id: %d\ndata: x\n\n" % number


def set_arrival(liveness: Liveness, now_ms: int, arrived_ms: int | None, unread_ms: int | None) -> None:
    """Set when the current input came, as the manager does."""
    liveness.arrived_ms = now_ms if arrived_ms is None else min(arrived_ms, now_ms)
    liveness.unread_ms = unread_ms

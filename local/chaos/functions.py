"""The functions of a run: the product's own, whose requests take time, and which may die inside one.

One keeps a stream, or a group of them. Invariant: what a function of one version finds of a stream is that version's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from handlers.connection.effects import Outcome
from handlers.connection.steps import Invocation
from handlers.errors import InvalidRequest
from handlers.group.next_step import Delays
from handlers.profile.behaviour import Profile
from handlers.run.group_ports import GroupTables, Needs, ReadProfiles, Reports
from handlers.run.group_profiles import PROFILES
from local.chaos.chaotic_upstream import ChaoticUpstream
from local.chaos.links import NotedSlot
from local.simulation.slots import group_needs
from local.simulation.slow_requests import SlowRequests, VirtualPool
from local.simulation.unreliable_tables import UnreliableDynamoDB
from local.simulation.virtual_function import Task, VirtualFunction, Waits
from states_language.clock import VirtualClock

# How long a function takes to start that is asked for a profile, in milliseconds.
STARTS_MS = (100, 1_500)


class ChaosFunction(VirtualFunction):
    """A function whose requests take time, and may fail."""

    def __init__(
        self, clock: VirtualClock, dynamodb: UnreliableDynamoDB, task: Task, on_end: Callable[[Outcome], None]
    ) -> None:
        super().__init__(clock, task, on_end)
        self.requests = self.slow = SlowRequests(clock, dynamodb, self)

    @property
    def links_by_fence(self) -> dict[int, Any]:
        """The openings of all its streams, by their fencing tokens."""
        return {fence: link for slot in self.slots.values() for fence, link in slot.links_by_fence.items()}


@dataclass(frozen=True, slots=True)
class Place:
    """What a function finds of a stream: its profile as deployed now, its upstream, and the slots of it."""

    profile: Profile
    upstream: ChaoticUpstream
    slots: list[NotedSlot]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every function of the groups finds; `place` is what one of a version finds of a stream.

    `newest` is the number of the version that is deployed now.
    """

    tables: GroupTables
    delays: Delays
    reports: Reports
    place: Callable[[str, int], Place | None]
    newest: Callable[[], int]


def needs_of_group(clock: VirtualClock, function: ChaosFunction, around: Surroundings) -> Needs:
    """What a function of a group needs; returns its outcome."""
    own = function.task.version
    read_by: dict[str, int] = {}  # of streams whose profile was asked for as it is deployed: the version that answered

    def starts_another(request: Callable[[], Any]) -> Waits[Any]:
        """The answer of the function as it is deployed now, which has to start for that."""
        yield clock.now_ms() + function.draws.randrange(*STARTS_MS), False
        return request()

    def pool(threads: int, name: str) -> VirtualPool:
        return VirtualPool(clock, function, threads, name, starts_another if name == PROFILES else None)

    def read(stream: str, version: int) -> Profile:
        place = around.place(stream, version)
        if place is None:
            raise InvalidRequest(f"there is no stream {stream!r}")
        return place.profile

    def deployed(stream: str) -> Profile:
        read_by[stream] = around.newest()
        return read(stream, read_by[stream])

    def slot_of(_profile: Profile, who: Invocation) -> NotedSlot:
        place = around.place(who.stream_id, read_by.get(who.stream_id, own))
        assert place is not None, "its profile was read"
        slot = NotedSlot(clock, function, who, place.upstream)
        place.slots.append(slot)
        return slot

    profiles = ReadProfiles(lambda stream: read(stream, own), deployed)
    return group_needs(function, slot_of, around.tables, around.delays, profiles, pool=pool, reports=around.reports)

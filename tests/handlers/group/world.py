"""Functions of one group in virtual time, on tables in memory, with upstreams that keep to their policies.

A function is the product's own (`handlers/run/group_function.py`), and its requests take no time. An upstream answers
at once, continues after the cursor, and sends each event to all connected functions. Invariant: the same actions give
the same run.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from handlers.connection.effects import Outcome
from handlers.connection.inputs import IN_A_LOG, Chunk, Closed, Layout, Opened
from handlers.connection.steps import Invocation
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.store import typed_values
from handlers.store.control_table import Table
from handlers.store.event_reader import SETTLES_MS, EventReader
from handlers.store.group_store import GroupStore
from handlers.store.ledger_records import GAP, gap_of
from handlers.store.stream_records import StreamRecords
from handlers.store.typed_values import Item
from local.simulation.groups import Group
from local.simulation.tables import MemoryDynamoDB
from local.simulation.virtual_function import Task, VirtualFunction
from local.simulation.virtual_ports import Client
from states_language.clock import VirtualClock
from tests.handlers.scripted import DELAYS, numbered

EVENTS, CONTROL, GROUP, EXECUTION = "events", "control", "#1", "E1"
START_MS = 1_000_000
LIFE_MS, MARGIN_MS, EVERY_MS = 60_000, 4_000, 2_000
# No function is taken over late, unless a test sets a bound.
NEVER_LATE_MS = LIFE_MS
MOST_AT_ONCE = 50
LIMIT = {"evicts": 1, "forbids": 1, "tolerates": 2}


@dataclass
class Link:
    """One opening; `who` is the function's request."""

    who: Invocation
    client: Client


@dataclass
class Upstream:
    """The upstream of a stream: `most` connections were open at once, and during `gaps` none was."""

    policy: str
    now_ms: Callable[[], int]
    is_down: bool = False
    emitted: int = 0
    links: list[Link] = field(default_factory=list)
    most: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    bare_since: int | None = START_MS

    def open(self, who: Invocation, client: Client, cursor: str | None) -> Link:
        """Return a link that delivers the events after the cursor; under "evicts" a newer link closes the older one."""
        link, now_ms = Link(who, client), self.now_ms()
        if self.is_down:
            client.take_arrival(link, Closed("refused"))
            return link
        if self.policy == "evicts":
            for other in [*self.links]:
                self.drop(other, "ended_by_upstream")
        self.links.append(link)
        self.most = max(self.most, len(self.links))
        if self.bare_since is not None and self.bare_since < now_ms:
            self.gaps.append((self.bare_since - START_MS, now_ms - START_MS))
        self.bare_since = None
        client.take_arrival(link, Opened(200))
        for number in range(int(cursor or 0) + 1, self.emitted + 1):
            client.take_arrival(link, Chunk(numbered(number)))
        return link

    def emit(self) -> None:
        """Send the next event on each open link."""
        self.emitted += 1
        for link in [*self.links]:
            link.client.take_arrival(link, Chunk(numbered(self.emitted)))

    def close(self, link: Link) -> None:
        """Close a link from the client's side."""
        if link in self.links:
            self.links.remove(link)
            if not self.links:
                self.bare_since = self.now_ms()

    def drop(self, link: Link, reason: str = "reset") -> None:
        """Close a link from the upstream's side."""
        self.close(link)
        link.client.take_arrival(link, Closed(reason))


@dataclass(frozen=True)
class Door:
    """An upstream as one function opens it."""

    upstream: Upstream
    who: Invocation

    def open(self, client: Client, cursor: str | None) -> Link:
        return self.upstream.open(self.who, client, cursor)

    def close(self, link: Link) -> None:
        self.upstream.close(link)


class World:
    """The tables, the upstreams by stream, and the functions that run."""

    def __init__(self, policies: dict[str, str], **profile: Any) -> None:
        self.clock = VirtualClock(START_MS)
        self.profile = profile
        self.tables = MemoryDynamoDB(EVENTS, CONTROL)
        self.overlap_max_ms, self.every_ms = NEVER_LATE_MS, EVERY_MS
        self.cycles = self.renew_after = 0
        self.upstreams = {
            f"{policy}:{name}": Upstream(policy, lambda: self.now_ms) for name, policy in policies.items()
        }
        self.functions: list[VirtualGroup] = []
        self.outcomes: dict[str, Outcome] = {}
        self.draws = random.Random(1)
        self.groups = GroupStore(self.tables, CONTROL, GROUP)
        self._control = Table(self.tables, CONTROL)
        self._control.set_attributes(typed_values.item_key(GROUP, "lease"), {"execution": EXECUTION})

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.clock.now_ms()

    # --- joins, leaves, starts and kills ------------------------------------------------------------------------------

    def at(self, after_ms: int, act: Callable[[], object]) -> None:
        """Call `act` so long after the start."""
        self.clock.call_at(START_MS + after_ms, act)

    def join(self, *streams: str) -> None:
        """Write what a POST writes, in the same order."""
        for stream in streams:
            self.groups.add_member(stream, self.begin_join(stream))
        self.groups.raise_version()

    def begin_join(self, stream: str) -> str:
        """Write what a POST writes first; return when the stream joined."""
        joined = f"{self.now_ms}"
        self._control.set_attributes(
            typed_values.item_key(stream, "lease"), {"joined": joined, "group": GROUP}, remove=["stop"]
        )
        return joined

    def leave(self, stream: str) -> None:
        """Write what a DELETE writes, in the same order."""
        self._control.set_attributes(typed_values.item_key(stream, "lease"), {"stop": True})
        self.groups.raise_version()

    def start(self, request_id: str, died: str = "") -> None:
        self.functions.append(VirtualGroup(self, request_id, died))
        self.functions[-1].advance()

    def record_end(self, one: "VirtualGroup", outcome: Outcome) -> None:
        """Note how a function has ended."""
        self.outcomes[one.who.request_id] = outcome
        self.functions.remove(one)

    def kill(self, request_id: str) -> None:
        """End a function as SIGKILL does."""
        for one in [one for one in self.functions if one.who.request_id == request_id]:
            one.kill()
            self.functions.remove(one)

    def emit(self, *streams: str) -> None:
        """Let the upstreams send an event each."""
        for stream in streams:
            self.upstreams[stream].emit()

    # --- results ------------------------------------------------------------------------------------------------------

    def stored(self, stream: str) -> list[int]:
        """Return the numbers of the stored events, those of a log in their order."""
        layout = StreamRecords(self.tables, CONTROL).layout(stream) or Layout()
        reader = EventReader(self.tables, EVENTS, lambda _key: None)
        entries = reader.entries(stream, layout, self.now_ms + SETTLES_MS, "", 100_000)
        numbers = [int(entry.event.key) for entry in entries if entry.event is not None]
        return numbers if layout == IN_A_LOG else sorted(numbers)

    def uncovered(self, stream: str) -> list[tuple[int, int]]:
        """Return the intervals without a connection that no recorded gap covers."""
        recorded = map(gap_of, self._control.records_after(stream, GAP, "", 1_000))
        known = sorted((gap.from_ms - START_MS, gap.to_ms - START_MS) for gap in recorded)
        missing = []
        for from_ms, to_ms in self.upstreams[stream].gaps:
            place_ms = from_ms
            for begins_ms, ends_ms in known:
                place_ms = max(place_ms, ends_ms) if begins_ms <= place_ms else place_ms
            # The gap is recorded once the next connection has lasted for as long as a silent one may live.
            is_due = to_ms + 8 * EVERY_MS < self.now_ms - START_MS
            if from_ms and is_due and place_ms < to_ms:
                missing.append((from_ms, to_ms))
        return missing

    def record(self, stream: str) -> Item:
        item: Item = self.tables.get_item(TableName=CONTROL, Key=typed_values.item_key(stream, "lease"))["Item"]
        return item

    def longest_gap_ms(self, stream: str) -> int:
        """Return the longest time without a connection after the first one."""
        return max((to_ms - from_ms for from_ms, to_ms in self.upstreams[stream].gaps[1:]), default=0)

    def holders(self, stream: str) -> list[str]:
        """Return the requests of the connected functions."""
        return [link.who.request_id for link in self.upstreams[stream].links]

    def run(self, until_ms: int) -> None:
        """Let time pass until `until_ms` after the start."""

        async def comes() -> None:
            await self.clock.sleep_until(START_MS + until_ms)
            for _ in range(MOST_AT_ONCE):
                await asyncio.sleep(0)  # so that requests of that instant are answered at it

        self.clock.run(comes())


class VirtualGroup(VirtualFunction):
    """One function of the group: the product's own code."""

    def __init__(self, world: World, request_id: str, died: str) -> None:
        self.world = world
        self.who = Invocation(
            GROUP, "A", EXECUTION, request_id, world.now_ms + LIFE_MS, MARGIN_MS, 1_000, world.every_ms,
            world.overlap_max_ms, died=died, cycles=world.cycles, renew_after=world.renew_after,
        )  # fmt: skip
        super().__init__(
            world.clock, Task(1, self.who), lambda outcome: world.record_end(self, outcome), is_prompt=True
        )
        self.draw = lambda least, most: least + (most - least) * world.draws.random()

    def advance(self) -> None:
        """Begin: claim the group, and end at once if that is refused."""
        upstreams = {stream: Door(upstream, self.who) for stream, upstream in self.world.upstreams.items()}
        settings = {name: getattr(DELAYS, name) for name in DELAYS.__slots__} | {"ledger_keep_days": 0}
        names = {"events_table": EVENTS, "control_table": CONTROL}
        self.start(Group(self._profile, upstreams, settings, names, self.world.tables).needs(self))

    def _profile(self, stream_id: str) -> Profile:
        policy = self.world.upstreams[stream_id].policy
        table = {"address": "https://upstream.invalid/{streamId}", "framing": "sse", "overlap": policy, "overlap_s": 1}
        table |= self.world.profile
        return parse(policy, {**table, "resume": {"header": "Last-Event-ID"}, "connect_timeout_s": 2}, {})

"""Performs one invocation on the ports of a replay and on those of chaos, with the same wire.

The clocks stand still while a step is performed, so both can have the same steps at the same instants; `compare`
asserts that. A replay may leave out readings of the lease that show nothing new (`Await`), and its store never fails.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from handlers.connection.effects import Heartbeat, Outcome, ReadLease, RecordGaps, Release, SaveRecord
from handlers.connection.reconnection import attempts
from handlers.connection.steps import Await, Ended, Invocation, Report, Step, Steps
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.store import control_record
from handlers.store.connection_store import Store
from local.simulation.skipping import SkippingSlot
from local.simulation.slots import Slot, stream_needs
from local.simulation.tables import MemoryDynamoDB
from local.simulation.unreliable_clients import UnreliableDynamoDB
from local.simulation.virtual_function import Task, VirtualFunction
from states_language.clock import EPOCH_2026_MS, VirtualClock
from tests.handlers.scripted import Script, noted

STREAM = "demo"
LIFE_MS, MARGIN_MS = 30_000, 4_000


@dataclass(frozen=True)
class Wire:
    """What an invocation meets: the script of each opening, and what others do to the tables, and when."""

    openings: tuple[Script, ...]
    others: tuple[tuple[int, str], ...] = ()
    profile: dict[str, Any] = field(default_factory=dict)


# The longest frame of these wires.
MOST_BYTES = 60


def event(number: int, name: str = "") -> bytes:
    return b"id: %d\n%sdata: %d\n\n" % (number, b"event: %s\n" % name.encode() if name else b"", number)


def too_long(number: int) -> bytes:
    """An event that no decoder keeps."""
    return b"id: %d\ndata: %b\n\n" % (number, b"x" * MOST_BYTES)


def profile_of(wire: Wire) -> Profile:
    table = {"address": "https://upstream.invalid", "framing": "sse", "resume": {"header": "Last-Event-ID"}}
    marks = {"loss": {"event": "lost"}, "end": {"event": "end"}}
    return parse(STREAM, {**table, **marks, "overlap_s": 1, "max_frame_bytes": MOST_BYTES, **wire.profile}, {})


INVOCATION = Invocation(
    STREAM, "A", "", "r1", EPOCH_2026_MS + LIFE_MS, MARGIN_MS, lease_every_ms=1_000, progress_every_ms=2_000,
    overlap_max_ms=60_000,
)  # fmt: skip


class World:
    """The tables of one run on a clock, the changes by others, and the steps that a performer was asked for."""

    def __init__(self, wire: Wire, clock: Any, on_change: Callable[[str], None] = lambda _key: None) -> None:
        self._clock = clock
        self._scripts = iter(wire.openings)
        self._others = wire.others
        self.tables = MemoryDynamoDB("events", "control", on_change=lambda _table, key, _item: on_change(key[1]))
        self.dynamodb = UnreliableDynamoDB(clock, self.tables)
        self.store, self._theirs = (self._store(client) for client in (self.dynamodb, self.tables))
        self.steps: list[Step] = []
        self.dead_letters: list[Any] = []

    def send_message(self, **message: str) -> None:
        """Take a dead-letter message as the queue does."""
        self.dead_letters.append(json.loads(message["MessageBody"]))

    def _store(self, client: Any) -> Store:
        return Store(
            client,
            lambda: self,
            events_table="events",
            control_table="control",
            dead_letter_queue_url="",
            sleep=lambda _seconds: None,
        )

    def play(self) -> Script:
        """Return the script of the next opening; without one, nobody answers."""
        return next(self._scripts, [])

    def actions(self) -> list[tuple[int, Callable[[], object]]]:
        """Return what others do, and when."""
        return [(EPOCH_2026_MS + at_ms, lambda what=what: self._act(what)) for at_ms, what in self._others]  # type: ignore[misc]

    def _act(self, what: str) -> None:
        if what == "claim":
            self._theirs.claim(STREAM, execution="", holder="B/r2")
        elif what == "connect":
            self._theirs.mark_connected(STREAM, self._theirs.read_lease(STREAM).fence, EPOCH_2026_MS + 10**6)
        elif what == "release":
            self._theirs.release(STREAM, self._theirs.read_lease(STREAM).connected_token, {})
        elif what == "save":
            fence = self._theirs.read_lease(STREAM).fence
            shown = control_record.cursor("7", fence, EPOCH_2026_MS)
            self._theirs.heartbeat(STREAM, fence, EPOCH_2026_MS + 10**6, shown)
        elif what == "outage":
            self.dynamodb.throttle(self._clock.now_ms() + 1_500)
        else:
            self.tables.update_item(
                TableName="control",
                Key={"PK": {"S": STREAM}, "SK": {"S": "lease"}},
                UpdateExpression="SET stop = :yes",
                ExpressionAttributeValues={":yes": {"BOOL": True}},
            )

    def traced(self, profile: Profile, invocation: Invocation, now_ms: int, _draw: object) -> Steps[Report]:
        """Yield the steps and note each; a drawn number is the greatest."""
        return noted(attempts(profile, invocation, now_ms, lambda _least, most: most), self.steps)

    def contents(self) -> list[Any]:
        """Return what the tables and the queue hold."""
        keys = {":stream": {"S": STREAM}}
        return [
            self.tables.query(TableName=table, KeyConditionExpression="PK = :stream", ExpressionAttributeValues=keys)
            for table in ("events", "control")
        ] + self.dead_letters


# --- the performers ---------------------------------------------------------------------------------------------------


class ScriptedUpstream:
    """The upstream of a replay and of chaos, with a script in place of behaviour."""

    def __init__(self, clock: VirtualClock, world: World) -> None:
        self._clock = clock
        self._world = world

    def open(self, client: Any, _cursor: str | None = None) -> "Link":
        """Return a link that brings the next script."""
        link = Link()
        for after_ms, arrival in self._world.play():
            self._clock.call_at(
                self._clock.now_ms() + after_ms,
                lambda arrival=arrival: link.closed_ms is None and client.arrived(link, arrival),  # type: ignore[misc]
            )
        return link

    def close(self, link: "Link") -> None:
        """Bring nothing more."""
        link.closed_ms = self._clock.now_ms()


class Link:
    """One opening of the upstream."""

    closed_ms: int | None = None


def in_a_replay(wire: Wire, patched: pytest.MonkeyPatch) -> World:
    """Run a function in virtual time, which leaves out what a replay does not need."""
    is_watched = wire.profile.get("overlap") == "forbids" or wire.profile.get("standby") == "hot"
    return _in_virtual_time(
        wire, patched, lambda function, upstream: SkippingSlot(function, upstream, is_watched=is_watched)
    )


def in_chaos(wire: Wire, patched: pytest.MonkeyPatch) -> World:
    """Run a function that leaves nothing out, and makes its requests itself."""
    return _in_virtual_time(wire, patched, Slot)


def _in_virtual_time(
    wire: Wire, patched: pytest.MonkeyPatch, slot_of: Callable[[VirtualFunction, ScriptedUpstream], Slot]
) -> World:
    clock = VirtualClock(start_ms=EPOCH_2026_MS - 1)
    outcomes: list[Outcome] = []
    slots: list[Slot] = []

    def changed(key: str) -> None:
        for one in slots:
            if key == "lease":
                one.lease_changed()

    world = World(wire, clock, changed)
    patched.setattr("local.simulation.slots.attempts", world.traced)

    async def run() -> None:
        for at_ms, act in world.actions():
            clock.call_at(at_ms, act)
        await clock.sleep_until(EPOCH_2026_MS)
        function = VirtualFunction(clock, Task(1, INVOCATION), outcomes.append, is_prompt=slot_of is not Slot)
        slots.append(slot_of(function, ScriptedUpstream(clock, world)))
        pool = function.own_thread if slot_of is Slot else None
        function.start(stream_needs(function, slots[0], profile_of(wire), world.store, pool))
        await clock.sleep_until(INVOCATION.deadline_ms)

    clock.run(run())
    assert len(outcomes) == 1
    return world


def run(perform: Callable[[Wire, pytest.MonkeyPatch], World], wire: Wire) -> World:
    """Return the world after the wire was performed."""
    with pytest.MonkeyPatch.context() as patched:
        return perform(wire, patched)


def without_readings(steps: list[Step]) -> list[Any]:
    """The steps but those that a replay leaves out where nobody has changed the lease, and what it saves meanwhile."""
    kept: list[Any] = []
    for step in steps:
        match step:
            case Await() | ReadLease() | Heartbeat() | RecordGaps():
                continue
            case Release():
                kept.append(Release)  # what the heartbeats before it had not saved differs
            case SaveRecord(progress):
                if progress.closed_ms is not None:
                    kept.append((progress.closed_ms, progress.ended_by, progress.frames, progress.stored))
            case Ended(report):
                kept.append((report.outcome, report.connect_ms))
            case _:
                kept.append(step)
    return kept


def compare(wire: Wire, *, is_generated: bool = False) -> list[Step]:
    """The steps where nothing is left out, which are those of a replay.

    A replay that leaves readings of the lease out reads it with the next arrival, which may be sooner than a real one
    does: of generated wires it is compared where nobody else changes the lease, or where it leaves nothing out.
    """
    steps = run(in_chaos, wire).steps
    if "outage" not in [what for _, what in wire.others]:
        replayed = run(in_a_replay, wire).steps
        if wire.profile.get("overlap") == "forbids" or wire.profile.get("standby") == "hot":
            assert replayed == steps
        elif not (is_generated and wire.others):
            assert without_readings(replayed) == without_readings(steps)
    return steps

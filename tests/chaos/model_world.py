"""One state of the model: the lease, the upstream, two lanes of up to two executions, and real managers.

It decides which states are the same (`World.key`): times count from now, only the order of fences counts, and the two
lanes of an execution may change places; `model_managers.py` decides about managers. Time is a grid of `TICK_MS`: the
steps within a tick happen in every order, and a tick passes only when nothing due is left. Transitions are elsewhere.
Invariant: a World never changes; a step copies it, with the managers that it feeds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from handlers.connection.effects import Claim, Effect, Heartbeat, Release, TakeTurn
from handlers.connection.inputs import Chunk, Closed, Input, Opened
from handlers.connection.lease import Lease
from handlers.connection.manager import Manager
from handlers.connection.phases import Phase
from handlers.profile.parse import parse
from tests.chaos.explorer import ranks

TICK_MS = 1_000
START_MS = 1_000_000
NO_LEASE = Lease()
# In ticks: the manager leaves after 16, gives up after 17, is killed after 18; a lane waits 8. The order of these and
# the room between them are those of env/prod.yml.
FUNCTION_TICKS, MARGIN_TICKS, WAIT_TICKS, LATE_TICKS = 18, 2, 8, 3
# A frozen function comes back, or is killed, before its lease ends.
FROZEN_TICKS = 2
EXECUTIONS = ("E1", "E2")
POLICIES = ("evicts", "tolerates", "forbids", "hot")
PROFILES = {
    policy: parse(
        "model",
        {
            "address": "http://127.0.0.1/",
            "framing": "ndjson",
            "key": "$.id",
            "cursor": "$.id",
            "resume": {"query": "since"},
            "overlap": "tolerates" if policy == "hot" else policy,
            "standby": "hot" if policy == "hot" else "cold",
            "overlap_s": 1,
            "connect_timeout_s": 1,
        },
        {},
    )
    for policy in POLICIES
}


def connected_by(lease: Lease) -> int:
    """Returns the request of the connected function, 0 for none; the lease has it as text."""
    return int(lease.connected_by.removeprefix("r") or 0)


def died_text(died: frozenset[int]) -> str:
    """Returns Lambda's messages about functions that are over, one after the other, as the machine passes them on."""
    return "\n".join(f"RequestId: r{request} Error: Runtime exited" for request in sorted(died))


class Process(NamedTuple):
    """A running function. `link` is its connection at the upstream: none, asked, open or gone.

    `seen` is the summary of its manager.
    """

    name: int
    execution: int
    lane: int
    manager: Manager
    effects: tuple[Effect, ...]
    deadline_ms: int
    seen: tuple[tuple[int | None, ...], int]
    heard: bool = True  # whether the machine still waits for its answer
    link: str = "none"
    asked_until_ms: int = 0
    inbox: tuple[Input, ...] = ()
    request: int = 0  # Lambda's, which all connections of a function have in common
    frozen_until_ms: int = 0
    told: frozenset[int] = frozenset()  # the requests that it knows to be over

    @property
    def label(self) -> str:
        return f"E{self.execution + 1}{'AB'[self.lane]}#{self.name}"


class Lane(NamedTuple):
    """The machine's position in a branch, when it may go on, and when it must: off, waiting, starting, running.

    If a renewal is due, it also reads the lease, or requests a successor, "then" waiting or starting.
    """

    state: str = "off"
    from_ms: int = 0
    until_ms: int = 0


class Late(NamedTuple):
    """A write whose answer was lost, and which has not arrived yet."""

    kind: str
    fence: int
    at_ms: int
    cursor: int | None = None
    execution: str = ""
    request: int = 0
    over: int = 0


class World(NamedTuple):
    """One state: `budget` has the remaining faults, `answered` the highest fence that the upstream ever accepted.

    `died` has the requests of which each lane's machine has proof that they are over.
    """

    now_ms: int
    budget: tuple[tuple[str, int], ...]
    lease: Lease = NO_LEASE
    cursor: int = 0
    cursor_fence: int = 0
    emitted: int = 0
    stored: frozenset[int] = frozenset()
    executions: tuple[str, str] = ("claiming", "off")
    lanes: tuple[Lane, ...] = (Lane(), Lane(), Lane(), Lane())
    processes: tuple[Process, ...] = ()
    late: tuple[Late, ...] = ()
    answered: int = 0
    stopped: bool = False
    started: int = 0
    died: tuple[frozenset[int], ...] = (frozenset(),) * 4

    @property
    def is_over(self) -> bool:
        """Returns whether no function should connect: a stop is requested, or the upstream has ended the stream."""
        is_told = self.has("end") and not self.left("end")
        return self.stopped or (is_told and bool(self.lease.ended_at_ms))

    def left(self, fault: str) -> int:
        """Returns how many faults of this kind may still happen."""
        for name, count in self.budget:
            if name == fault:
                return count
        return 0

    def has(self, fault: str) -> bool:
        """Returns whether this kind was among the faults, used up or not."""
        return any(name == fault for name, _ in self.budget)

    def spend(self, fault: str) -> World:
        """Returns the world with one fault of this kind used up."""
        return self._replace(budget=tuple((name, count - (name == fault)) for name, count in self.budget))

    def with_process(self, process: Process) -> World:
        """Returns the world with `process` in its new form."""
        processes = tuple(process if p.name == process.name else p for p in self.processes)
        return self._replace(processes=processes)

    def with_lane(self, execution: int, lane: int, position: Lane) -> World:
        """Returns the world with one lane in its new state."""
        at = execution * 2 + lane
        return self._replace(lanes=(*self.lanes[:at], position, *self.lanes[at + 1 :]))

    def with_died(self, execution: int, lane: int, died: frozenset[int]) -> World:
        """Returns the world in which a lane's machine has proof of these deaths."""
        at = execution * 2 + lane
        return self._replace(died=(*self.died[:at], died, *self.died[at + 1 :]))

    def key(self, intern: dict[Any, int]) -> tuple[Any, ...]:
        """Returns a value that equal states have in common; `intern` replaces parts of it by numbers."""
        now = self.now_ms
        lease = self.lease
        rank = _ranks(self)
        by_lane: list[list[int]] = [[], [], [], []]
        for process in self.processes:
            part = (*_process_key(process, now, rank, lease.connected_token), *_proof_key(self, process))
            by_lane[process.execution * 2 + process.lane].append(intern.setdefault(part, len(intern)))
        lanes = []
        for lane, processes, died in zip(self.lanes, by_lane, self.died, strict=True):
            times = (max(lane.from_ms - now, 0), max(lane.until_ms - now, 0)) if lane.state != "off" else ()
            part = (lane.state, times, tuple(sorted(processes)), _still_named(self, died))
            lanes.append(intern.setdefault(part, len(intern)))
        late = tuple(
            [
                (w.kind, rank[w.fence], max(w.at_ms - now, -TICK_MS), w.cursor, w.execution, rank[w.over])
                for w in self.late
            ]
        )
        return (
            (
                rank[lease.fence],
                rank[lease.connected_token],
                rank[lease.released_token],
                lease.execution,
                lease.stop,
                lease.ended_at_ms,
            ),
            max(lease.expires_at_ms - now, 0),
            (self.cursor, rank[self.cursor_fence], self.emitted, self.stored),
            self.executions,
            (*sorted(lanes[:2]), *sorted(lanes[2:])),
            intern.setdefault(late, len(intern)),
            rank[self.answered],
            self.stopped,
            self.budget,
        )


def _ranks(world: World) -> dict[int, int]:
    lease = world.lease
    fences = {lease.fence, lease.connected_token, lease.released_token, world.cursor_fence, world.answered}
    for write in world.late:
        fences.update((write.fence, write.over))
    for process in world.processes:
        fences.add(process.manager.fence)
        for effect in process.effects:
            if isinstance(effect, Claim):
                fences.add(effect.after_fence)
            elif isinstance(effect, TakeTurn):
                fences.add(effect.over)
    return ranks(fences)


def _process_key(process: Process, now: int, rank: dict[int, int], connected: int) -> tuple[Any, ...]:
    asked = max(process.asked_until_ms - now, 0) if process.link == "asked" else 0
    instants, rest = process.seen
    return (
        process.heard,
        process.link,
        asked,
        process.deadline_ms - now,
        process.inbox and tuple([_input_key(input_) for input_ in process.inbox]),
        process.effects and tuple([_effect_key(effect, now, rank) for effect in process.effects]),
        rank[process.manager.fence],
        process.manager.__dict__["_lifetime"].__dict__["_beside"] == connected,
        tuple([None if at is None else at - now if at > now - TICK_MS else -TICK_MS for at in instants]),
        rest,
    )


def _proof_key(world: World, process: Process) -> tuple[Any, ...]:
    """Returns the part of a function's state about known deaths; nothing if no function died."""
    is_shown = process.request == connected_by(world.lease)
    late = tuple([at for at, write in enumerate(world.late) if write.request == process.request])
    is_opening = process.manager.phase in (Phase.CLAIMING, Phase.AWAITING_RELEASE)
    told = _still_named(world, process.told) if is_opening else ()
    frozen = process.frozen_until_ms and max(process.frozen_until_ms - world.now_ms, 0) + 1
    return frozen, is_shown, late, told


def _still_named(world: World, died: frozenset[int]) -> tuple[int, ...]:
    """Returns the dead functions that are still named: by the lease (-1), or by a write that may arrive."""
    if not died:
        return ()
    shown = (-1,) if connected_by(world.lease) in died else ()
    return (*shown, *(at for at, write in enumerate(world.late) if write.request in died))


def _input_key(input_: Input) -> Any:
    match input_:
        case Chunk(data):
            return data
        case Opened(status):
            return status
        case Closed(reason):
            return reason
    return repr(input_)


def _effect_key(effect: Effect, now: int, rank: dict[int, int]) -> Any:
    name = type(effect).__name__
    if isinstance(effect, Claim):
        return (name, rank[effect.after_fence], effect.expires_at_ms - now) if effect.expires_at_ms else name
    if isinstance(effect, TakeTurn):
        return name, effect.expires_at_ms - now, rank[effect.over]
    if isinstance(effect, Heartbeat):
        return name, effect.cursor, effect.expires_at_ms - now
    if isinstance(effect, Release):
        return name, effect.cursor
    if hasattr(effect, "expires_at_ms"):
        return name, effect.expires_at_ms - now
    if hasattr(effect, "events"):
        return name, tuple(event.data for event in effect.events)
    if hasattr(effect, "outcome"):
        return name, effect.outcome.error, effect.outcome.status
    return name

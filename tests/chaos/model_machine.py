"""The steps of the machine and of its callers in the model: lanes, executions, POSTs, renewals, the stop request.

Invariants: an execution that has ended never acts again; the steps of a state come in the same order each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from handlers.connection.effects import Outcome
from handlers.connection.ends import with_renewal_due
from handlers.connection.steps import Invocation
from tests.chaos.explorer import Step, Violation
from tests.chaos.model_managers import summary
from tests.chaos.model_parts import end_execution, is_connected, with_state
from tests.chaos.model_rules import Rules
from tests.chaos.model_world import (
    EXECUTIONS,
    FUNCTION_TICKS,
    LATE_TICKS,
    MARGIN_TICKS,
    PROFILES,
    TICK_MS,
    WAIT_TICKS,
    Lane,
    Process,
    World,
    died_text,
)

# How soon after its start a function must have died to pass on what it knew.
SOON_TICKS = 2
# After these errors the lane passes on no knowledge of dead functions.
FORGETS = frozenset({"", "StreamTakenOver", "ConnectionExpired", "RenewalDue"})


class Machine:
    """The machine under one policy and one set of rules."""

    def __init__(self, policy: str, rules: Rules) -> None:
        self.policy = policy
        self.rules = rules

    def steps(self, world: World) -> Iterator[Step]:
        """Yields every step of the machine, and of its callers, in `world`."""
        for execution, state in enumerate(world.executions):
            own_name = EXECUTIONS[execution]
            if state in ("claiming", "renewing", "stop requested"):
                yield Step(f"{own_name} claims the stream", self._begin(world, execution, state))
            elif state == "releasing":
                own = world.lease.execution == own_name
                lease = replace(world.lease, execution="", ending="StreamEnded", ended_at_ms=1) if own else world.lease
                yield Step(f"{own_name} has ended", with_state(world, execution, "over")._replace(lease=lease))
            for lane in (0, 1):
                yield from self._lane(world, execution, lane)
        if world.left("stop") and not world.stopped:
            lease = replace(world.lease, stop=True)
            # The request is later than the POST of an execution that has not claimed the stream yet.
            first, second = ("stop requested" if state == "claiming" else state for state in world.executions)
            requested = world.spend("stop")._replace(lease=lease, stopped=True, executions=(first, second))
            yield Step("the stop is requested", requested, False)
        if world.left("post"):
            yield Step("a second POST", self._post(world.spend("post")), False)
        if world.left("orphan"):
            for process in world.processes:
                if process.heard:
                    yield Step(
                        f"the machine loses {process.label}", self.lose_process(world.spend("orphan"), process), False
                    )

    def _begin(self, world: World, execution: int, state: str) -> World:
        me = EXECUTIONS[execution]
        renews = EXECUTIONS[0] if state == "renewing" else ""
        lease = self.rules.begin(world.lease, me, renews, state == "stop requested")
        if lease is None:
            return with_state(world, execution, "over")
        now = world.now_ms
        waits = now + TICK_MS * WAIT_TICKS
        world = world.with_lane(execution, 0, Lane("waiting", waits, waits))
        world = world.with_lane(execution, 1, Lane("starting", now, now + TICK_MS))
        return with_state(world, execution, "running")._replace(
            lease=lease, stopped=world.stopped and state != "claiming"
        )

    def _lane(self, world: World, execution: int, lane: int) -> Iterator[Step]:
        position, label = world.lanes[execution * 2 + lane], f"{EXECUTIONS[execution]}{'AB'[lane]}"
        now = world.now_ms
        what, _, then = position.state.partition(", then ")
        if what == "reading":
            # In an outage of the table the lane goes on without the lease.
            asks = world.with_lane(execution, lane, Lane(f"asking, then {then}"))
            lease = world.lease
            is_over = lease.stop or lease.ended_at_ms or lease.execution not in ("", EXECUTIONS[execution])
            yield Step(f"{label} cannot read the lease", asks)
            yield Step(f"{label} reads the lease", end_execution(world, execution) if is_over else asks)
        elif what == "asking":
            yield Step(f"{label} starts no execution", self._wait_or_start(world, execution, lane, then))
            is_first = world.executions[1] == "off"
            if world.left("renew") or not is_first:
                asked = with_state(world.spend("renew"), 1, "renewing") if is_first else world
                rests = self._wait_or_start(asked, execution, lane, "waiting" if then == "waiting" else "holding back")
                yield Step(f"{label} starts the next execution", rests, not is_first)
        if position.state in ("waiting", "starting") and now >= position.from_ms:
            if position.state == "waiting":
                start = Lane("starting", now, now + TICK_MS)
                yield Step(f"{label} has waited", world.with_lane(execution, lane, start))
                return
            yield Step(f"{label}'s function starts", self._start(world, execution, lane))
            if world.left("late") and now >= position.until_ms:
                late = Lane("starting", now + TICK_MS * LATE_TICKS, now + TICK_MS * LATE_TICKS)
                yield Step(
                    f"{label}'s function starts late", world.spend("late").with_lane(execution, lane, late), False
                )

    def _start(self, world: World, execution: int, lane: int) -> World:
        world = self._connect(world, execution, lane, world.now_ms + TICK_MS * FUNCTION_TICKS)
        return world.with_lane(execution, lane, Lane("running"))

    def _connect(
        self, world: World, execution: int, lane: int, deadline_ms: int, again: Process | None = None
    ) -> World:
        """Returns the world with a function that begins to connect, or connects `again`."""
        told = world.died[execution * 2 + lane] if again is None else again.told
        if lying := told & {process.request for process in world.processes}:
            raise Violation(
                "who is said to be over is over", f"request {lying} runs, and its lane is told that it died"
            )
        invocation = Invocation(
            "model", "AB"[lane], EXECUTIONS[execution], "", deadline_ms, TICK_MS * MARGIN_TICKS, TICK_MS, TICK_MS,
            overlap_max_ms=TICK_MS, died=died_text(told),
        )  # fmt: skip
        manager = self.rules.manager(PROFILES[self.policy], invocation)
        effects = tuple(manager.start(world.now_ms, 0 if again is None else again.manager.fence))
        name = world.started + 1
        process = Process(name, execution, lane, manager, effects, deadline_ms, summary(manager), told=told)
        request, heard = (name, True) if again is None else (again.request, again.heard)
        process = process._replace(request=request, heard=heard)
        return world._replace(processes=(*world.processes, process), started=name)

    def _pass_on_death(self, world: World, process: Process, how: str) -> World:
        """Returns the world after a function's end without an answer; the lane's next function gets proof of its death.

        A function that died soon after its start passes on what it knew. If two connections are allowed, no function
        needs proof.
        """
        if self.policy != "forbids" or not self.rules.proves(how):
            return world
        is_soon = process.deadline_ms - world.now_ms > TICK_MS * (FUNCTION_TICKS - SOON_TICKS)
        died = frozenset({process.request}) | (process.told if is_soon else frozenset())
        return world.with_died(process.execution, process.lane, died)

    def _post(self, world: World) -> World:
        """Returns the world after a POST, which does nothing while an execution runs, else starts the next one.

        A POST that comes while the stream stops waits for the end and writes nothing until then, like a later one.
        """
        running = "running" in world.executions
        if world.executions[1] != "off" or (running and self.rules.begin(world.lease, "E2", "") is None):
            return world
        if running and world.lease.execution:
            raise Violation("one execution", "a second POST took the stream from an execution that runs")
        return with_state(world, 1, "claiming")

    def remove_process(self, world: World, process: Process, outcome: Outcome | None, how: str = "") -> World:
        """Returns the world without the process, whose sockets close, with its lane's next step.

        `how` is the machine's notice in place of an outcome. After a drop the function reconnects by itself, if it may
        and if more time is left than leaving takes.
        """
        world = world._replace(processes=tuple(p for p in world.processes if p.name != process.name))
        has_time = process.deadline_ms - world.now_ms > 3 * TICK_MS * MARGIN_TICKS
        if outcome is not None and outcome.error == "StreamDropped" and has_time and world.left("again"):
            return self._connect(world.spend("again"), process.execution, process.lane, process.deadline_ms, process)
        if not process.heard:
            return world
        execution, lane = process.execution, process.lane
        if outcome is None:
            world = self._pass_on_death(world, process, how)
        elif outcome.error in FORGETS:
            world = world.with_died(execution, lane, frozenset())
        if outcome is not None and execution == 0 and world.has("renew"):
            outcome = with_renewal_due(outcome)
        state = self.rules.after(outcome)
        if state == "over":
            return end_execution(world, execution)
        if state == "waiting" and world.answered <= process.manager.fence:
            raise Violation("who waits is relieved", f"{process.label} waits, and no newer connection was answered")
        if outcome is not None and outcome.error == "RenewalDue":
            return world.with_lane(execution, lane, Lane(f"reading, then {state}"))
        return self._wait_or_start(world, execution, lane, state)

    def lose_process(self, world: World, process: Process) -> World:
        """Returns the world after the machine got an error from a function that goes on: its lane starts another."""
        world = world.with_process(process._replace(heard=False))
        again = Lane("starting", world.now_ms, world.now_ms + TICK_MS)
        return self._pass_on_death(world.with_lane(process.execution, process.lane, again), process, "lost")

    def _wait_or_start(self, world: World, execution: int, lane: int, state: str) -> World:
        """Returns the world with a lane that waits, or starts at once or once its successor could connect."""
        first, last = (0, 1) if state == "starting" else (WAIT_TICKS, WAIT_TICKS)
        times = (world.now_ms + TICK_MS * first, world.now_ms + TICK_MS * last)
        world = world.with_lane(execution, lane, Lane("waiting" if state == "waiting" else "starting", *times))
        other = world.lanes[execution * 2 + 1 - lane].state
        if state == other == "waiting" and not any(is_connected(p) for p in world.processes):
            raise Violation("who waits is relieved", "both lanes wait and nothing is connected")
        return world

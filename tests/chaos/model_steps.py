"""The transition relation of the model: the steps that a state allows, and the invariants of each.

A step is one act of one process, of the upstream, of the machine or of the surroundings; a manager's effect and the
input that answers it are one step, because no other process can see between them. Faults and requests cost budget;
every other step is free and must, together with the passing of ticks, lead to a connected stream (`explorer.py`).
Invariant: the steps of a state come in the same order each time, so a trace is a list of numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from handlers.connection import inputs
from handlers.connection.effects import (
    Claim,
    CloseUpstream,
    Effect,
    Finish,
    Heartbeat,
    MarkConnected,
    Open,
    Outcome,
    ReadLease,
    RecordGaps,
    Release,
    RenewTurn,
    SaveRecord,
    TakeTurn,
    Write,
)
from handlers.connection.lease import Lease, LeaseView, lease_view
from handlers.connection.phases import LIVE, Phase
from tests.chaos import explorer, model_parts
from tests.chaos.explorer import Step, Violation
from tests.chaos.model_machine import Machine
from tests.chaos.model_managers import clone, summary
from tests.chaos.model_rules import Rules
from tests.chaos.model_world import FROZEN_TICKS, FUNCTION_TICKS, START_MS, TICK_MS, Late, Process, World

LIMIT = {"evicts": 1, "forbids": 1, "tolerates": 2, "hot": 2}
LOSABLE = (Claim, TakeTurn, RenewTurn, MarkConnected, Heartbeat, Release)
# Effects of which the model keeps no record.
UNHEEDED = (RecordGaps, SaveRecord)


# The most ticks until the stream has settled: the most that each sound model needs, less than a whole turn of a lane.
# Two hot connections that started together part at their deadlines; a function that the machine has lost lives on.
REST_TICKS, HOT_REST_TICKS = 12, 24
# The most ticks until a stream with the policy "forbids" is connected, if each end of a function is proved or comes by
# itself: no more than after a drop. A lease lasts four ticks.
PROVED_TICKS = 2
PROVED = frozenset({"kill", "drop", "again", "event", "refuse", "renew"})


class Model(explorer.Model[World]):
    """The steps under one policy and one set of rules, within a budget of faults.

    The goal is a stable stream (one connection that no other is taking over, the other lane waiting), or quiet after a
    stop. An eviction war never reaches it. If a connection may outlast the opening of the next, no state without a
    connection may recur.
    """

    def __init__(self, policy: str, budget: Mapping[str, int], rules: Rules | None = None) -> None:
        self.policy, self.budget, self.rules = policy, dict(budget), rules or Rules()
        self.machine = Machine(policy, self.rules)
        self._intern: dict[Any, int] = {}
        self.most_connected_ticks = PROVED_TICKS if policy == "forbids" and self.budget.keys() <= PROVED else 0
        # A function that is connected when another one gets the stream's end, or that the machine lost, stays to its
        # end.
        stays = sum(self.budget.get(fault, 0) for fault in ("orphan", "end"))
        self.most_stable_ticks = (HOT_REST_TICKS if policy == "hot" else REST_TICKS) + FUNCTION_TICKS * stays

    def first(self) -> World:
        """Returns the first state."""
        return World(START_MS, tuple(sorted(self.budget.items())))

    def key(self, world: World) -> Hashable:
        """Returns a value that equal states have in common."""
        return world.key(self._intern)

    def is_connected(self, world: World) -> bool:
        """Returns whether the stream is connected, or should not be."""
        return _is_quiet(world) or world.is_over or any(model_parts.is_connected(p) for p in world.processes)

    def is_stable(self, world: World) -> bool:
        """Returns whether the stream is connected and no takeover is near, or everything is quiet."""
        return _is_quiet(world) or (not world.is_over and _has_settled(world, self.policy))

    def may_not_recur(self, world: World) -> bool:
        """Returns whether no connection is open although one should be."""
        is_due = not (_is_quiet(world) or world.is_over)
        return is_due and self.policy != "forbids" and all(p.link != "open" for p in world.processes)

    def line(self, world: World, step: Step) -> str:
        """Returns the step with the time since the start."""
        return f"{(world.now_ms - START_MS) / 1000:4.0f} s  {step.label}"

    def steps(self, world: World) -> Iterator[Step]:
        """Yields every step of `world`; raises Violation if one breaks an invariant."""
        for process in world.processes:
            if process.frozen_until_ms:
                if process.deadline_ms <= world.now_ms:
                    timed_out = self.machine.remove_process(world, process, None, "died")
                    yield Step(f"{process.label} comes to its limit and is killed", timed_out)
                    continue
                if process.frozen_until_ms <= world.now_ms:
                    yield Step(f"{process.label} goes on", world.with_process(process._replace(frozen_until_ms=0)))
            elif process.effects:
                yield from self._perform(world, process)
            else:
                yield from self._inputs_for(world, process)
            yield from self._upstream(world, process)
            yield from self._faults(world, process)
        yield from self.machine.steps(world)
        yield from self._surroundings(world)
        if not model_parts.is_urgent(world):
            yield Step("a tick passes", self._tick(world), ticks=1)

    def _faults(self, world: World, process: Process) -> Iterator[Step]:
        """Yields a function's faults: it ends, with the machine's notice or without, or stands still for a while."""
        if world.left("kill"):
            died = self.machine.remove_process(world.spend("kill"), process, None, "died")
            yield Step(f"{process.label} is killed", died, False)
        if world.left("vanish"):
            vanished = self.machine.remove_process(world.spend("vanish"), process, None, "vanished")
            yield Step(f"{process.label} is killed, and nothing proves it", vanished, False)
        if process.frozen_until_ms:
            return
        frozen = process._replace(frozen_until_ms=world.now_ms + TICK_MS * FROZEN_TICKS)
        if world.left("freeze"):
            yield Step(f"{process.label} is frozen", world.spend("freeze").with_process(frozen), False)
        if world.left("unheard") and process.heard and process.link == "open":
            unheard = self.machine.lose_process(world.spend("unheard"), frozen)
            yield Step(f"{process.label} is frozen, and the machine hears of it no more", unheard, False)

    # --- a function ---------------------------------------------------------------------------------------------------

    def _perform(self, world: World, process: Process) -> Iterator[Step]:
        """Performs the first effect of `process` and what follows at once; or its answer is lost, written or not."""
        effect, rest = process.effects[0], process.effects[1:]
        label = f"{process.label} {model_parts.signal_name(effect)}"
        process = process._replace(effects=rest)
        world = world.with_process(process)
        after, answer = self._effect(world, process, effect)
        if isinstance(effect, Finish):
            if rest:
                raise Violation("one Finish, and last", f"{process.label} has {rest} behind its Finish")
            yield Step(f"{label}: {effect.outcome.error or effect.outcome.status}", after)
            return
        yield Step(
            f"{label}{model_parts.answer_text(answer)}", after if answer is None else self._feed(after, process, answer)
        )
        if world.left("lost") and isinstance(effect, LOSABLE):
            lost = inputs.StoreFailed("the answer was lost")
            for text, made in (("made", after), ("not made", world)):
                yield Step(f"{label}: answer lost, {text}", self._feed(made.spend("lost"), process, lost), False)
            late = world._replace(late=(*world.late, model_parts.late_write(process, effect)))
            yield Step(f"{label}: answer lost, lands late", self._feed(late.spend("lost"), process, lost), False)

    def _effect(self, world: World, process: Process, effect: Effect) -> tuple[World, inputs.Input | None]:
        """Returns the world after an effect, and the input that answers it."""
        if isinstance(effect, LOSABLE):
            return self._write(world, model_parts.late_write(process, effect))
        if isinstance(effect, Open | CloseUpstream):
            return world.with_process(_with_link(world.now_ms, process, effect)), None
        match effect:
            case ReadLease():
                return world, inputs.LeaseRead(world.lease)
            case Write(_, _, events):
                numbers = frozenset(int(event.key) for event in events)
                new = len(numbers - world.stored)
                return world._replace(stored=world.stored | numbers), inputs.Written(new, len(events) - new)
            case Finish(outcome):
                return self.machine.remove_process(world, process, outcome), None
        raise TypeError(effect)

    def _write(self, world: World, write: Late) -> tuple[World, inputs.Input | None]:
        """Returns the world after a conditional write, and its answer."""
        lease, rules = world.lease, self.rules
        if write.kind == "Claim":
            claimed = rules.claim(lease, write.execution, write.fence, write.at_ms)
            if claimed is None:
                return world, inputs.ClaimRefused(lease)
            if world.stopped:
                raise Violation("a stop is final", "a claim was granted while the stop request stands")
            if lease.ended_at_ms:
                raise Violation(
                    "an end is final", "a claim was granted after the execution that held the stream ended it"
                )
            if claimed.fence <= lease.fence:
                raise Violation("fences are unique", f"two connections hold the fence {claimed.fence}")
            if claimed.connected_token == claimed.fence:
                claimed = replace(claimed, connected_by=f"r{write.request}")
                world = world._replace(answered=max(world.answered, claimed.fence))
            return model_parts.with_lease(world, claimed), inputs.Claimed(claimed, model_parts.resumption(world))
        if write.kind == "MarkConnected":
            world = world._replace(answered=max(world.answered, write.fence))
            marked = _with_holder(rules.mark_connected(lease, write.fence, write.at_ms), write)
            return model_parts.with_lease(world, marked), None
        if write.kind == "TakeTurn":
            lease = _with_holder(rules.take_turn(lease, write.fence, write.at_ms, world.now_ms, write.over), write)
            world = model_parts.with_lease(world._replace(answered=max(world.answered, lease.connected_token)), lease)
            return world, inputs.LeaseRead(
                lease, model_parts.resumption(world) if lease.connected_token == write.fence else None
            )
        # The cursor is written with the lease, under one condition.
        if write.kind == "Release":
            is_holder, lease = rules.release(lease, write.fence)
        else:
            is_holder, lease = rules.heartbeat(lease, write.fence, write.at_ms)
        world = model_parts.with_lease(world, lease)
        if write.cursor is not None and is_holder:
            world = model_parts.with_cursor(world, write.cursor, write.fence)
        return world, inputs.LeaseRead(lease)

    def _feed(self, world: World, process: Process, input_: inputs.Input) -> World:
        """Returns the world after the manager of `process` got an input.

        Its effects come in the order of `handlers/connection/loop.py`: new ones before those that were waiting, which a
        failing store drops.
        """
        manager = clone(process.manager)
        finished = manager.phase is Phase.FINISHED
        following = tuple(effect for effect in manager.handle(world.now_ms, input_) if not isinstance(effect, UNHEEDED))
        if process.manager.phase in LIVE and manager.phase is Phase.DRAINING:
            _check_relief(world, process, manager.outcome_so_far)
        if finished and following:
            raise Violation("one Finish, and last", f"{process.label} goes on after its Finish")
        rest = () if isinstance(input_, inputs.StoreFailed) and following else process.effects
        now = next((p for p in world.processes if p.name == process.name), process)
        return world.with_process(now._replace(manager=manager, effects=(*following, *rest), seen=summary(manager)))

    def _inputs_for(self, world: World, process: Process) -> Iterator[Step]:
        """Yields the inputs that an idle process may get: a message of the upstream, an alarm, the lease."""
        manager = process.manager
        if process.inbox:
            input_, rest = process.inbox[0], process.inbox[1:]
            link = "none" if isinstance(input_, inputs.Closed) else process.link
            heard = process._replace(inbox=rest, link=link)
            label = f"{process.label} hears {model_parts.signal_name(input_)}{model_parts.arrival_text(input_)}"
            yield Step(label, self._feed(world.with_process(heard), heard, input_))
        # Its own alarms come in order, Woken first if both are due at once, as in the driver.
        wake_at_ms, due_ms = manager.wake_at_ms, manager.lease_due_ms
        reads_first = due_ms is not None and (wake_at_ms is None or due_ms < wake_at_ms)
        if wake_at_ms is not None and world.now_ms >= wake_at_ms and not reads_first:
            yield Step(f"{process.label} wakes", self._feed(world, process, inputs.Woken()))
        if due_ms is not None and world.now_ms >= due_ms and reads_first:
            asking = clone(manager)
            effects = tuple(effect for effect in asking.ask_lease(world.now_ms) if not isinstance(effect, UNHEEDED))
            asks = process._replace(manager=asking, effects=effects, seen=summary(asking))
            yield from self._perform(world.with_process(asks), asks)

    # --- the upstream -------------------------------------------------------------------------------------------------

    def _upstream(self, world: World, process: Process) -> Iterator[Step]:
        if process.link == "asked":
            yield Step(f"the upstream answers {process.label}", self._accept(world, process))
            if world.left("refuse"):
                refused = process._replace(link="gone", inbox=(inputs.Opened(503),))
                yield Step(f"the upstream refuses {process.label}", world.spend("refuse").with_process(refused), False)
            if world.left("forbid"):
                refused = process._replace(link="gone", inbox=(inputs.Opened(403),))
                yield Step(f"the upstream forbids {process.label}", world.spend("forbid").with_process(refused), False)
            if world.left("end"):
                ended = process._replace(link="gone", inbox=(inputs.Opened(204),))
                yield Step(f"the upstream tells {process.label} the end", world.spend("end").with_process(ended), False)
        if process.link == "open" and world.left("drop"):
            dropped = process._replace(link="gone", inbox=(*process.inbox, inputs.Closed("reset")))
            yield Step(f"the upstream drops {process.label}", world.spend("drop").with_process(dropped), False)

    def _accept(self, world: World, process: Process) -> World:
        others = [p for p in world.processes if p.link == "open"]
        if self.policy == "evicts":
            for other in others:
                ended = other._replace(link="gone", inbox=(*other.inbox, inputs.Closed("ended_by_upstream")))
                world = world.with_process(ended)
        elif len(others) + 1 > self._allowed(world):
            names = ", ".join(p.label for p in (*others, process))
            raise Violation("connections allowed", f"{names} are connected, {self._allowed(world)} allowed")
        since = int(process.manager.__dict__["_record"].pending.sent_cursor or 0)
        replayed = tuple(model_parts.chunk(number) for number in range(since + 1, world.emitted + 1))
        accepted = process._replace(link="open", inbox=(*process.inbox, inputs.Opened(200), *replayed))
        answered = max(world.answered, process.manager.fence)
        return world.with_process(accepted)._replace(answered=answered)

    def _allowed(self, world: World) -> int:
        """Returns the number of allowed connections: the policy's, plus, if it is two, one for each lost function.

        The lane of a lost function has another by then, and the lost one closes only when it reads the lease.
        """
        lost = sum(not process.heard for process in world.processes)
        return LIMIT[self.policy] + (lost if self.policy in ("tolerates", "hot") else 0)

    # --- the surroundings ---------------------------------------------------------------------------------------------

    def _surroundings(self, world: World) -> Iterator[Step]:
        if world.left("event"):
            sent = world.spend("event")._replace(emitted=world.emitted + 1)
            for process in world.processes:
                if process.link == "open":
                    sent = sent.with_process(process._replace(inbox=(*process.inbox, model_parts.chunk(sent.emitted))))
            yield Step(f"the upstream sends {sent.emitted}", sent, False)
        for at, write in enumerate(world.late):
            rest = world._replace(late=(*world.late[:at], *world.late[at + 1 :]))
            yield Step(f"a late {write.kind} of fence {write.fence} lands", self._write(rest, write)[0])

    def _tick(self, world: World) -> World:
        now_ms = world.now_ms + TICK_MS
        for process in world.processes:
            if now_ms >= process.deadline_ms and not process.frozen_until_ms:
                raise Violation("in time", f"{process.label} reaches its deadline")
        return world._replace(now_ms=now_ms)


def _with_link(now_ms: int, process: Process, effect: Open | CloseUpstream) -> Process:
    """Returns the process after it has opened its upstream, or has closed it."""
    if isinstance(effect, Open):
        return process._replace(link="asked", asked_until_ms=now_ms + TICK_MS, inbox=())
    if process.link == "none" or any(isinstance(input_, inputs.Closed) for input_ in process.inbox):
        return process
    return process._replace(link="gone", inbox=(*process.inbox, inputs.Closed("closed_here")))


def _check_relief(world: World, process: Process, ending: Outcome) -> None:
    """Raises Violation if a connection leaves as relieved although the lease says that no newer one is connected."""
    is_relieved = ending.error == "StreamTakenOver" or ending.status == "superseded"
    view = lease_view(world.lease, process.manager.fence)
    if is_relieved and view is not LeaseView.TAKEN_OVER and not world.lease.ended_at_ms:
        raise Violation("who leaves is relieved", f"{process.label} leaves, and no newer connection is connected")


def _with_holder(lease: Lease, write: Late) -> Lease:
    """Returns the lease with the connected function's request, if this write has marked it as connected."""
    return replace(lease, connected_by=f"r{write.request}") if lease.connected_token == write.fence else lease


def _is_quiet(world: World) -> bool:
    """Returns whether nothing runs any more, as after a stop request or the stream's end."""
    return world.is_over and not world.processes and all(state in ("off", "over") for state in world.executions)


def _has_settled(world: World, policy: str) -> bool:
    """Returns whether the stream is connected and no takeover is near."""
    holders = [p for p in world.processes if p.link == "open" and p.manager.phase.value == "connected"]
    if len(holders) != len(world.processes):
        return False
    fences = {p.manager.fence for p in holders}
    if policy == "hot":
        return len(holders) == 2 and world.lease.fence in fences
    lanes = sorted(lane.state for lane in world.lanes if lane.state != "off")
    # The claim of a dead function matters only if the upstream forbids two: there it is a reason to let go.
    last = world.lease.fence if policy == "forbids" else world.lease.connected_token
    return fences == {world.lease.connected_token} == {last} and lanes == ["running", "waiting"]

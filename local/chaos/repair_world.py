"""Repairs the gaps of a run with the product's own function, and carries out the faults of the repair.

Invariants: the end of a gap, or the watch, starts the function; the same plan in the same world has the same effect.
"""

from __future__ import annotations

import functools
from typing import Any

from handlers.connection.effects import Outcome
from handlers.connection.gap_record import Gap, Repair
from handlers.errors import StoreUnavailable
from handlers.repair.function import repair_streams
from handlers.repair.gap_ports import Deps
from handlers.repair.work import RepairWork, start_due
from handlers.run.group_ports import Needs
from handlers.run.stream_invocation import read_invocation
from handlers.store.event_reader import EventReader
from handlers.store.stream_records import StreamRecords
from local.chaos.plans import Fault, RepairPlan
from local.simulation.slow_requests import SlowRequests
from local.simulation.virtual_function import Task, VirtualFunction
from local.simulation.virtual_rest import VirtualRest

# The deployed watch comes every minute, beside functions of 15 minutes; the functions here live for 24 s.
CHECK_EVERY_MS = 15_000
LIMIT_MS, MARGIN_MS, START_MS = 60_000, 10_000, 150
NUMBERS = 100_000


class Repairers:
    """The functions that repair the gaps of a stream, whose World is `world`.

    `rest` is the address, `alerts` are the sent alerts, and `struck_ms` is the end of the last fault that hit one of
    the functions.
    """

    def __init__(self, world: Any, plan: RepairPlan) -> None:
        self._world, self._clock = world, world.clock
        self.plan = plan
        self.functions: list[VirtualFunction] = []
        self.alerts: list[tuple[Gap, Repair]] = []
        self._due: list[Fault] = []  # faults that wait for the next function
        self.struck_ms = 0
        emitted = world.upstream.emitted_ms
        self.rest = VirtualRest(plan.rest, self._clock.now_ms, emitted, world.wire.body)
        self._work = RepairWork(world.dynamodb, world.control_table)
        for fault in plan.faults:
            self._clock.call_at(world.origin_ms + fault.at_ms, functools.partial(self._strike, fault))
        self._clock.call_at(self._clock.now_ms() + CHECK_EVERY_MS, self._watch)

    def start(self, _stream_id: str = "") -> bool:
        """Invokes the function, which starts a moment later; returns whether Lambda accepts the invocation."""
        if self._world.account.is_lasting("no functions"):
            return False
        self._clock.call_at(self._clock.now_ms() + START_MS, self._begin)
        return True

    def _watch(self) -> None:
        try:
            start_due(self._work, self._clock.now_ms(), self.start)
        except StoreUnavailable:
            self._world.say("the watch: the table does not say which repairs are due")
        self._clock.call_at(self._clock.now_ms() + CHECK_EVERY_MS, self._watch)

    def _begin(self) -> None:
        world, number = self._world, NUMBERS + len(self.functions)
        asked = {"pathParameters": {"streamId": world.stream}}
        now_ms, settings = self._clock.now_ms(), world.version.function
        who = read_invocation(asked, settings, f"repair-{number}", now_ms=now_ms, remaining_ms=LIMIT_MS)
        task = Task(number, who, world.version.number, LIMIT_MS)
        function = VirtualFunction(self._clock, task, functools.partial(self._record_end, number))
        function.requests = SlowRequests(self._clock, world.dynamodb, function)
        self.functions.append(function)
        limit_ms = self._clock.now_ms() + LIMIT_MS
        self._clock.call_at(limit_ms, function.kill)
        if self._due:
            self._strike(self._due.pop(0))
        function.start(self._needs(function, limit_ms))

    def _needs(self, function: VirtualFunction, limit_ms: int) -> Needs:
        world = self._world
        deps = Deps(
            work=self._work,
            records=StreamRecords(world.dynamodb, world.control_table, world.account.events_table),
            store=world.account.store_of(world.stream),
            reader=EventReader(world.dynamodb, world.account.events_table, lambda _key: None),
            profile_of=lambda _stream: world.version.profile,
            secrets_of=lambda _profile: {},
            fetch=self.rest.fetch,
            alert=lambda _stream, gap, repair: self.alerts.append((gap, repair)),
            now_ms=function.now_ms,
            left_ms=lambda: limit_ms - MARGIN_MS - self._clock.now_ms(),
            holder=f"repair-{function.task.number}",
        )
        return repair_streams(deps, world.stream)

    def _record_end(self, number: int, outcome: Outcome) -> None:
        self._world.say(f"repair-{number} ends: {outcome.error or outcome.status} ({outcome.message})")

    def _strike(self, fault: Fault) -> None:
        until_ms = self._clock.now_ms() + fault.for_ms
        if fault.kind == "rest down":
            self.rest.down_until_ms = max(self.rest.down_until_ms, until_ms)
            return
        alive = [function for function in self.functions if function.is_alive]
        if not alive:
            self._due.append(fault)
            return
        self._world.say(f"fault: {fault.kind} of a repair")
        self.struck_ms = max(self.struck_ms, until_ms)
        function = alive[-1]
        if fault.kind == "freeze":
            function.freeze(until_ms)
        elif fault.kind == "kill":
            function.kill()
        else:
            function.requests.dies_in = fault.value % 20

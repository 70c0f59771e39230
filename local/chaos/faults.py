"""Carries out the faults of a schedule in the world of a run.

It chooses the function that a fault affects; the world, the store and the upstream carry out the effect. Invariant: the
same fault in the same world has the same effect.
"""

import functools
import random

from handlers.store.leases import Leases
from handlers.watching.orphan_recovery import Orphans, StepFunctions
from local.chaos.account import MACHINE_ARN
from local.chaos.group_schedule import FLOOD, FLOOD_EVERY_MS
from local.chaos.group_world import Group
from local.chaos.plans import Fault
from local.chaos.schedule import requests_of
from local.chaos.world import World
from local.simulation.started_executions import StatesClient
from local.simulation.virtual_function import VirtualFunction

# How often the deployed watch checks for executions that a person stopped.
CHECK_EVERY_MS = 60_000
# The bounds of how long a function without CPU stands still, and of how long it then runs.
STARVED_MS, RUNS_MS = (100, 1_500), (1, 80)


def strike(world: World, fault: Fault) -> None:
    """Lets the fault begin."""
    world.say(f"fault: {fault.kind}" + (f" for {fault.for_ms / 1000:.3f} s" if fault.for_ms else ""))
    until_ms = world.clock.now_ms() + fault.for_ms
    draws = random.Random(fault.value)
    match fault.kind:
        case "kill" | "vanish" | "orphan" | "freeze" | "starvation" | "kill in the store" | "kill between steps":
            _strike_function(world, fault, until_ms)
        case "slow starts":
            world.account.starts_late = (until_ms, fault.value)
        case "redeploy":
            for one in (world, *world.beside):
                one.deploy()
            world.say(f"  version {world.version.number}, other than the first in {', '.join(world.version.changes)}")
        case "no successors" | "no functions" | "no descriptions":
            world.account.until_ms[fault.kind] = until_ms
        case "queue refuses":
            world.account.queue.refuse(until_ms, draws)
        case "rejection" | "the end":
            world.upstream.hold("refusals", until_ms, fault.value)
        case "throttles":
            world.dynamodb.throttle(until_ms)
        case "unknown outcomes":
            world.dynamodb.unsettle(until_ms, draws)
        case "slow store":
            world.dynamodb.slow_down(fault.value, until_ms)
        case "reset":
            world.upstream.reset()
        case "hang-up":
            world.upstream.hang_up()
        case "restart":
            world.upstream.restart(fault.value)
        case "truncation":
            world.upstream.truncate(draws)
        case "stall":
            world.upstream.stall()
        case "pause":
            world.upstream.pause(until_ms)
        case "burst":
            world.upstream.burst(fault.value)
        case "flood":
            for at_ms in range(world.clock.now_ms(), until_ms, FLOOD_EVERY_MS):
                world.clock.call_at(at_ms, lambda: world.upstream.burst(FLOOD))
        case "silence" | "refusals" | "no listener" | "no answers" | "duplicates" | "reorders" | "losses":
            world.upstream.hold(fault.kind, until_ms, fault.value if fault.kind == "refusals" else 0)
        case "token server away" | "ticket server away":
            away, name = world.guard.away, fault.kind.partition(" ")[0]
            away[name] = max(away.get(name, 0), until_ms)
        case "ticket refused":
            world.guard.refuses_until_ms = max(world.guard.refuses_until_ms, until_ms)
        case "token revoked":
            world.guard.auth.revoke()
        case _:
            _strike_execution(world, fault)


def _strike_function(world: World, fault: Fault, until_ms: int) -> None:
    alive = [function for function in world.functions if function.is_alive]
    if not alive:
        return
    function = alive[(fault.value + fault.at_ms) % len(alive)]
    world.say(f"  it meets {world.name_of(function)}")
    if fault.kind == "freeze":
        function.freeze(until_ms)
    elif fault.kind == "starvation":
        _starve(world, function, until_ms, random.Random(fault.value))
    elif fault.kind == "vanish":
        function.kill(fault.value)
    elif fault.kind == "orphan":
        world.lose_track_of(function)
    elif fault.kind == "kill":
        # If the socket lingers at the upstream, the function's end cannot be proved.
        world.kill(function, fault.value, "Lambda.Unknown" if fault.value else "Runtime.ExitError")
    else:
        if fault.kind == "kill in the store":
            function.requests.dies_in = fault.value % 12
        else:
            function.dies_after = fault.value % 8
        function.on_kill = lambda: world.kill(function, 0, "Runtime.ExitError")


def _starve(world: World, function: VirtualFunction, until_ms: int, draws: random.Random) -> None:
    """Freezes the function until `until_ms`, except for short moments, as a host without free CPU does."""
    now_ms = world.clock.now_ms()
    if now_ms >= until_ms or not function.is_alive:
        return
    function.freeze(still_until_ms := min(until_ms, now_ms + draws.randrange(*STARVED_MS)))
    runs_until_ms = still_until_ms + draws.randrange(*RUNS_MS)
    world.clock.call_at(runs_until_ms, functools.partial(_starve, world, function, until_ms, draws))


def _strike_execution(world: World, fault: Fault) -> None:
    if "abort" in fault.kind:
        for execution in world.executions:
            execution.stop("Aborted", "somebody stopped the execution")
    if fault.kind == "abort" and isinstance(world, Group):
        OrphanWatch(world).begin(fault.value)
    # After the executions of a group were stopped, either all of its streams are requested again or none.
    for one in world.members if isinstance(world, Group) else (world,):
        for at_ms, method in requests_of(fault):
            world.clock.call_at(world.origin_ms + at_ms, functools.partial(one.ask, method))


class OrphanWatch:
    """Checks the groups of a run as the deployed watch does, with the product's own rule for what is orphaned."""

    def __init__(self, group: Group) -> None:
        self._group = group
        leases = Leases(group.tables, group.control_table)
        client = StatesClient(
            lambda arn: group.account.executions.get(arn) or group.successors.get(arn.rpartition(":")[2]),
            lambda name, data: group.group_of(data["pathParameters"]["streamId"]).successor(
                {"Name": name, "Input": data}
            ),
        )
        states = StepFunctions(lambda: client, MACHINE_ARN, lambda: None)
        self._read_lease = leases.read
        self._orphans = Orphans(states, leases.read, states.newest_successor, may_start=lambda _group: True)

    def begin(self, after_ms: int) -> None:
        """Checks for the first time after `after_ms`, and then every minute until the run is over."""
        clock = self._group.clock
        clock.call_at(clock.now_ms() + after_ms, self._check)

    def _check(self) -> None:
        for name in sorted(self._group.all):
            orphan = self._orphans.check(name, self._read_lease(name), self._group.clock.now_ms())
            if orphan is not None:
                self._group.say(f"the watch: {orphan.sentence}")
        self.begin(CHECK_EVERY_MS)

"""Runs one schedule and says what it broke; shrinks a schedule that fails to the shortest that still does.

It loads the machine's file once. Invariant: the same schedule and machine give the same answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from local import stages
from local.chaos import delivery, invariants
from local.chaos.account import Account
from local.chaos.api_reader import ApiReader
from local.chaos.delivery_plan import shorter
from local.chaos.deployments import STAGE, Version, versions
from local.chaos.faults import strike
from local.chaos.invariants import Violation
from local.chaos.memory import EVERYTHING
from local.chaos.schedule import Schedule
from local.chaos.world import World
from states_language import Machine, load

Edit = Callable[[dict[str, Any]], None]
Machines = Callable[[Version], Machine]


@dataclass(frozen=True, slots=True)
class Result:
    """What one run broke and did; `log` is its trace."""

    schedule: Schedule
    violations: list[Violation]
    log: list[str]
    events: int
    connections: int
    executions: int


def machine(stage_settings: Mapping[str, Any], edit: Edit | None = None) -> Machine:
    """The deployed machine under the settings, changed by `edit` before it is loaded."""
    path = stages.ROOT / "statemachines" / "connections.asl.yml"
    definition = stages.definition(path)
    if edit is not None:
        edit(definition)
    return load(stages.resolve(definition, stage_settings, stages.names(STAGE)))


def machines(edit: Edit | None = None) -> Machines:
    """The machine of each version, loaded once."""
    loaded: dict[tuple[Any, ...], Machine] = {}

    def machine_of(version: Version) -> Machine:
        key = tuple(version.settings.items())
        if key not in loaded:
            loaded[key] = machine(version.settings, edit)
        return loaded[key]

    return machine_of


DEPLOYED = machines()


def run_world(schedule: Schedule, machine_of: Machines = DEPLOYED, more_ms: int = 0) -> World:
    """The first stream's world after the run; it goes on for a while after the last fault, and `more_ms` longer."""
    account = Account(schedule.seed, stages.names(STAGE))
    faults = (schedule.faults, *(one.faults for one in schedule.beside))
    world, *world_beside = (
        World(account, one, own, versions(one), machine_of, number)
        for number, (one, own) in enumerate(zip(schedule.all, faults, strict=True))
    )
    world.beside = world_beside
    readers = [ApiReader(one) for one in (world, *world.beside)]
    for reader in readers:
        reader.begin()
    world.clock.run(world.run(invariants.end_ms(world) + more_ms, strike))
    for reader in readers:
        reader.end()
    if schedule.delivery is not None:
        redeployed_ms = [account.origin_ms + fault.at_ms for fault in schedule.faults if fault.kind == "redeploy"]
        account.delivery = delivery.run(schedule.delivery, account.stream, account.origin_ms, redeployed_ms)
        world.log.extend(account.delivery.log)
    return world


def run_schedule(schedule: Schedule, machine_of: Machines = DEPLOYED) -> Result:
    """What the schedule led to."""
    world = run_world(schedule, machine_of)
    worlds = (world, *world.beside)
    return Result(
        schedule=schedule,
        violations=invariants.violations(world),
        log=world.log,
        events=sum(len(one.upstream.emitted_ms) for one in worlds),
        connections=sum(link.opened_ms is not None for one in worlds for link in one.upstream.links),
        executions=len(world.account.executions),
    )


def shrink(result: Result, machine_of: Machines = DEPLOYED) -> Result:
    """The run of the shortest schedule, reached by leaving out faults and traits, that still fails in the same way."""
    kinds = {violation.kind for violation in result.violations}
    shorter = True
    while shorter:
        shorter = False
        for candidate in itertools.chain(_without_faults(result.schedule), _plainer(result.schedule)):
            again = run_schedule(candidate, machine_of)
            if kinds & {violation.kind for violation in again.violations}:
                result, shorter = again, True
                break
    return result


def _without_faults(schedule: Schedule) -> list[Schedule]:
    faults = schedule.faults
    return [replace(schedule, faults=faults[:at] + faults[at + 1 :]) for at in range(len(faults))]


def _plainer(schedule: Schedule) -> list[Schedule]:
    plain: dict[str, Any] = {"hot": False, "reconnect_tries": 0, "renews": False, "skew_ms": 0, "resumes": True}
    plain |= {
        "partitions": 1,
        "pace": "",
        "retry_after_s": 0,
        "key": "id",
        "store": "items",
        "order": "index",
        "reject_after_s": 0,
        "memory": EVERYTHING,
        "beside": (),
    }
    plan = schedule.delivery
    plans = [None, *shorter(plan)] if plan is not None else []
    return [
        *(replace(schedule, delivery=one) for one in plans),
        *(replace(schedule, **{trait: value}) for trait, value in plain.items() if getattr(schedule, trait) != value),
    ]

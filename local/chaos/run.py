"""Decides how one schedule is run and what it found; shrinks a schedule that fails to the shortest that still does.

It loads the machine's file once. Invariant: the same schedule and machine give the same answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import yaml

from local import settings
from local.asl import load
from local.asl.machine import Machine
from local.chaos import invariants
from local.chaos.invariants import Violation
from local.chaos.schedule import Schedule
from local.chaos.world import World

STAGE = "local"
# Short limits, so that a minute holds several handovers; the proportions are those of 900 seconds.
LIMITS: Mapping[str, int] = {
    "function_timeout_s": 24,
    "wait_s": 16,
    "margin_s": 4,
    "start_allowance_s": 5,
    "lease_every_s": 1,
    "progress_every_s": 1,
    "retry_max_delay_s": 4,
    "throttle_delay_s": 1,
    "throttle_max_delay_s": 4,
    "cool_down_s": 4,
}
RENEWS_SOON, RENEWS_LATE = 3, 100
Edit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Found:
    """What one run found; `log` is its trace."""

    schedule: Schedule
    violations: list[Violation]
    log: list[str]
    events: int
    connections: int
    executions: int


@cache
def stage_settings(renews: bool) -> Mapping[str, Any]:
    """The stage's settings with the short limits."""
    limits = {**LIMITS, "renew_after": RENEWS_SOON if renews else RENEWS_LATE}
    return settings.load(STAGE, {name: value for name, value in limits.items() if name in settings.NUMBERS})


def machine(renews: bool, edit: Edit | None = None) -> Machine:
    """The deployed machine, changed by `edit` before it is loaded."""
    path = settings.ROOT / "statemachines" / "connections.asl.yml"
    definition = yaml.load(path.read_text(encoding="utf-8"), Loader=_loader())
    if edit is not None:
        edit(definition)
    return load(settings.resolve(definition, stage_settings(renews), settings.names(STAGE)))


def _loader() -> Any:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def _deployed(renews: bool) -> Machine:
    return machine(renews)


def run_schedule(schedule: Schedule, machine_of: Callable[[bool], Machine] = _deployed) -> Found:
    """What the schedule led to; the run goes on for a while after the last fault."""
    found = stage_settings(schedule.renews)
    world = World(schedule, machine_of(schedule.renews), found, settings.names(STAGE))
    quiet_ms = invariants.quiet_ms(schedule, found["task_timeout_s"])
    world.clock.run(world.run(quiet_ms + invariants.bound_ms(world) + invariants.CALM_MS))
    return Found(
        schedule=schedule,
        violations=invariants.violations(world),
        log=world.log,
        events=len(world.upstream.emitted_ms),
        connections=sum(link.opened_ms is not None for link in world.upstream.links),
        executions=len(world.executions),
    )


def shrink(found: Found, machine_of: Callable[[bool], Machine] = _deployed) -> Found:
    """The run of the shortest schedule, found by leaving out faults and traits, that still fails in the same way."""
    kinds = {violation.kind for violation in found.violations}
    shorter = True
    while shorter:
        shorter = False
        for candidate in itertools.chain(_without_faults(found.schedule), _plainer(found.schedule)):
            again = run_schedule(candidate, machine_of)
            if kinds & {violation.kind for violation in again.violations}:
                found, shorter = again, True
                break
    return found


def _without_faults(schedule: Schedule) -> list[Schedule]:
    faults = schedule.faults
    return [replace(schedule, faults=faults[:at] + faults[at + 1 :]) for at in range(len(faults))]


def _plainer(schedule: Schedule) -> list[Schedule]:
    plain: dict[str, Any] = {"hot": False, "reconnect_tries": 0, "renews": False, "skew_ms": 0, "resumes": True}
    return [replace(schedule, **{trait: value}) for trait, value in plain.items() if getattr(schedule, trait) != value]

"""Runs a schedule and returns the rules that it broke; shrinks a failing schedule to the shortest that still fails.

Invariant: the same schedule and machine give the same result.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from local import stages
from local.chaos import delivery_run, invariants
from local.chaos.account import Account, Machines
from local.chaos.api_reader import ApiReader
from local.chaos.deployments import STAGE, Version
from local.chaos.faults import strike
from local.chaos.group_world import Group, Member
from local.chaos.member_reader import MemberReader
from local.chaos.plans import without_each
from local.chaos.schedule import Schedule
from local.chaos.stream_rules import Violation
from local.chaos.world import World
from states_language import Machine, load

Edit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Result:
    """The violations and the figures of one run; `log` is its trace."""

    schedule: Schedule
    violations: list[Violation]
    log: list[str]
    events: int
    connections: int
    executions: int


def machines(edit: Edit | None = None) -> Machines:
    """Returns the deployed machine of each version, changed by `edit` and loaded once."""
    loaded: dict[tuple[Any, ...], Machine] = {}

    def machine_of(version: Version) -> Machine:
        key = tuple(version.settings.items())
        if key not in loaded:
            definition = stages.read_machine_file(stages.ROOT / "statemachines" / "connections.asl.yml")
            if edit is not None:
                edit(definition)
            loaded[key] = load(stages.resolve(definition, version.settings, stages.names(STAGE)))
        return loaded[key]

    return machine_of


DEPLOYED = machines()


def run_world(schedule: Schedule, machine_of: Machines = DEPLOYED, more_ms: int = 0) -> World:
    """Returns the first stream's world, or the first group's, after the run.

    The run continues for a while after the last fault, and `more_ms` longer.
    """
    account = Account(schedule.seed, stages.names(STAGE), machine_of)
    account.tables.most_items = schedule.most_items
    streams = enumerate(zip(schedule.all, schedule.group or (schedule, *schedule.beside), strict=True))
    world: World
    readers: list[ApiReader]
    if schedule.group:
        world = group = Group(account, schedule)
        world.beside = [Member(group, one, own.faults, number) for number, (one, own) in streams]
        readers = [MemberReader(member) for member in group.members]
    else:
        world, *beside = (World(account, one, own.faults, number) for number, (one, own) in streams)
        world.beside = beside
        readers = [ApiReader(one) for one in (world, *beside)]
    for reader in readers:
        reader.begin()
    world.clock.run(world.run(invariants.end_ms(world) + more_ms, strike))
    for reader in readers:
        reader.end()
    if schedule.delivery is not None:
        redeployed_ms = [account.origin_ms + fault.at_ms for fault in schedule.faults if fault.kind == "redeploy"]
        account.delivery = delivery_run.run(
            schedule.delivery, account.stream, account.origin_ms, redeployed_ms, schedule.most_items
        )
        world.log.extend(account.delivery.log)
    return world


def run_schedule(schedule: Schedule, machine_of: Machines = DEPLOYED) -> Result:
    """Runs the schedule and returns its result."""
    world = run_world(schedule, machine_of)
    worlds = world.beside if schedule.group else (world, *world.beside)
    return Result(
        schedule=schedule,
        violations=invariants.violations(world),
        log=world.log,
        events=sum(len(one.upstream.emitted_ms) for one in worlds),
        connections=sum(link.opened_ms is not None for one in worlds for link in one.upstream.links),
        executions=len(world.account.executions),
    )


def shrink(result: Result) -> Result:
    """Returns the run of the shortest schedule, without some faults and traits, that still fails in the same way."""
    kinds = {violation.kind for violation in result.violations}
    while True:
        candidates = _smaller if result.schedule.group else _shorter
        runs = (run_schedule(candidate) for candidate in candidates(result.schedule))
        shorter = next((run for run in runs if kinds & {violation.kind for violation in run.violations}), None)
        if shorter is None:
            return result
        result = shorter


def _shorter(schedule: Schedule) -> list[Schedule]:
    return [*_without_faults(schedule), *_plainer(schedule)]


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Yields the schedules with a stream less, with a fault less, or with one plainer stream."""
    group = schedule.group
    if len(group) > 1:
        yield from (replace(schedule, group=streams) for streams in without_each(group))
    yield from _without_faults(schedule)
    for at, one in enumerate(group):
        for short in _shorter(one):
            # All streams share their functions, and so the clocks and renewals.
            plainer = replace(short, skew_ms=one.skew_ms, renews=one.renews)
            if plainer != one:
                yield replace(schedule, group=(*group[:at], plainer, *group[at + 1 :]))
    if schedule.skew_ms or schedule.renews:
        plain = tuple(replace(one, skew_ms=0, renews=False) for one in group)
        yield replace(schedule, skew_ms=0, renews=False, group=plain)


def _without_faults(schedule: Schedule) -> list[Schedule]:
    return [replace(schedule, faults=faults) for faults in without_each(schedule.faults)]


def _plainer(schedule: Schedule) -> list[Schedule]:
    plain: dict[str, Any] = {"hot": False, "reconnect_tries": 0, "renews": False, "skew_ms": 0, "resumes": True}
    traits = {"partitions", "pace", "retry_after_s", "key", "store", "order", "reject_after_s", "memory", "beside"}
    traits |= {"timed", "token_lives_s", "most_items", "on_conflict"}
    plain |= {field.name: field.default for field in fields(Schedule) if field.name in traits}
    # Only a path gives keys to the items of a repair address, and to the messages of a WebSocket.
    plain["key"] = schedule.key if schedule.repair is not None or schedule.socket else plain["key"]
    plans = {"delivery": schedule.delivery, "repair": schedule.repair}
    shorter = ((name, one) for name, plan in plans.items() if plan is not None for one in (None, *plan.shorter()))
    return [
        *(replace(schedule, **{name: one}) for name, one in shorter),
        *(replace(schedule, **{trait: value}) for trait, value in plain.items() if getattr(schedule, trait) != value),
    ]

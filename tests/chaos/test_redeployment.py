"""Changed code and a changed definition take effect at a handover and at a renewal, with the stream connected."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from local.chaos.account import Machines
from local.chaos.deployments import SHORTER, changeable_parts
from local.chaos.draws import POLICIES, generate
from local.chaos.facts import lease, uncovered
from local.chaos.group_schedule import generate_groups
from local.chaos.group_world import Group
from local.chaos.invariants import violations
from local.chaos.plans import Fault
from local.chaos.schedule import Schedule
from local.chaos.simulate import DEPLOYED, machines, run_world
from local.chaos.stream_rules import FORBIDDEN_HANDOVER_MS, quiet_ms
from local.chaos.world import World
from local.stages import load

LONG = pytest.mark.long
AT_MS = 20_000
ALL_CHANGES = 0b111111
# A shorter wait, which leaves time for a longer overlap; that overlap; and a longer interval in which a takeover is
# noticed.
LONGER_OVERLAP = 0b10101
OUTAGE = Fault(AT_MS + 1_000, "no functions", 25_000)
MORE_MS = 150_000
PLAIN = Schedule(5, "evicts", False, False, 0, True, 0, 300, ())
GROUPED = replace(PLAIN, policy="tolerates", events_every_ms=1_100, together=4)


@cache
def redeployed(policy: str, *faults: Fault, hot: bool = False) -> World:
    """Returns the world after a redeployment that changes everything possible, at an upstream that does not resume."""
    faults = tuple(sorted((Fault(AT_MS, "redeploy", 0, ALL_CHANGES), *faults), key=lambda fault: fault.at_ms))
    return run_world(replace(PLAIN, policy=policy, hot=hot, faults=faults), more_ms=MORE_MS)


@pytest.mark.parametrize(
    ("policy", "hot"),
    [("evicts", False), ("forbids", False), ("tolerates", True), pytest.param("tolerates", False, marks=LONG)],
)
def test_the_stream_stays_connected_over_a_redeployment(policy: str, hot: bool) -> None:
    """New functions have the new version, the next execution runs under it, and the stream is always connected."""
    world = redeployed(policy, hot=hot)
    assert violations(world) == []
    began_ms: dict[object, int] = {
        link.function: link.asked_ms - world.origin_ms for link in reversed(world.upstream.links)
    }
    # A function that waits for its turn at the end of the run has requested nothing yet.
    asked = [function for function in world.functions if function in began_ms]
    assert len(world.functions) - len(asked) <= 1
    versions = [(function.task.version, began_ms[function] > AT_MS) for function in asked]
    assert versions == sorted(versions)
    assert {version for version, _ in versions} == {1, 2}
    assert all((version == 2) == is_later for version, is_later in versions)
    assert world.definitions[0] == 1
    assert len(world.definitions) > 1
    assert set(world.definitions[1:]) == {2}
    first_ms = min(link.opened_ms for link in world.upstream.links if link.opened_ms is not None)
    holes = uncovered(world, first_ms, world.clock.now_ms())
    longest_ms = max((end - start for start, end in holes), default=0)
    assert longest_ms <= (FORBIDDEN_HANDOVER_MS if policy == "forbids" else 0)


def test_a_changed_wait_is_kept_from_the_renewal_on() -> None:
    """The lanes of the first execution keep their wait; those of its successors have the new one."""
    world = redeployed("evicts")
    waits = {1: set[int](), 2: set[int]()}
    for execution, version in zip(world.executions, world.definitions, strict=True):
        entered: dict[str, int] = {}
        for event in execution.history:
            kind, details = event["type"], event.get("stateEnteredEventDetails") or event.get("stateExitedEventDetails")
            name = details["name"] if details else ""
            if kind == "WaitStateEntered":
                entered[name] = event["timestamp"]
            elif kind == "WaitStateExited" and name in ("Wait A", "Wait B"):
                waits[version].add(event["timestamp"] - entered[name])
    # A second shorter by chance.
    assert {15_000, 16_000} >= waits[1] > set()
    assert {12_000, 13_000} >= waits[2] > set()


def test_redeployments_are_drawn_and_are_no_excuse() -> None:
    """At least every eighth schedule has a redeployment, and without other faults a run counts as calm at once."""
    drawn = [any(fault.kind == "redeploy" for fault in generate(seed).faults) for seed in range(200)]
    assert sum(drawn) > 25
    assert quiet_ms(replace(PLAIN, faults=(Fault(AT_MS, "redeploy", 0, ALL_CHANGES),)), load("local")) == 0


@pytest.mark.parametrize(
    ("policy", "is_hot", "outage"),
    [
        ("evicts", False, (OUTAGE,)),
        pytest.param("tolerates", True, (), marks=LONG),
        pytest.param("tolerates", False, (), marks=LONG),
        pytest.param("tolerates", False, (OUTAGE,), marks=LONG),
        pytest.param("tolerates", True, (OUTAGE,), marks=LONG),
        pytest.param("evicts", False, (), marks=LONG),
    ],
)
def test_a_shorter_limit_renews_the_execution_whose_lanes_wait_for_longer(
    policy: str, is_hot: bool, outage: tuple[Fault, ...]
) -> None:
    """After a shorter limit the successor has the new wait, and after two lives the stream is always connected."""
    world = shortened(policy, is_hot, outage)
    assert (violations(world), world.definitions) == ([], [1, 2])
    assert late_holes(world) == []


def test_without_the_machines_wait_each_pass_leaves_a_moment_uncovered() -> None:
    """Without `wait_s` from the machine the rule is broken for as long as the execution lives."""
    world = shortened("tolerates", False, (), machine_of=machines(_says_no_wait))
    assert {violation.kind for violation in violations(world)} == {"stuck"}
    assert world.definitions == [1]
    assert len(late_holes(world)) > 3


def test_a_wait_that_was_longer_keeps_no_lanes_in_step() -> None:
    """Two lanes return together from an outage, with a wait that leaves the new functions no time."""
    changes = Fault(AT_MS, "redeploy", 0, LONGER_OVERLAP)
    schedule = Schedule(7, "tolerates", True, False, 0, False, 0, 300, (changes, OUTAGE))
    assert late_holes(run_world(schedule, more_ms=MORE_MS)) == []
    assert late_holes(run_world(schedule, machines(_says_no_wait), more_ms=MORE_MS)) != []


def grouped(*faults: Fault, late_ms: int, has_new_profile: bool = False) -> Group:
    """Returns the groups of a stream of each policy and of one that joins late; only `faults` affect them."""
    streams = [replace(GROUPED, policy=policy, name=f"m{number}") for number, policy in enumerate(POLICIES)]
    late = replace(GROUPED, policy="evicts", name="late", joins_ms=late_ms, has_new_profile=has_new_profile)
    world = run_world(replace(GROUPED, faults=faults, group=(*streams, late)))
    assert isinstance(world, Group)
    return world


def test_streams_of_a_group_stay_connected_over_a_redeployment() -> None:
    """Running streams stay in their group, even if a function keeps fewer now; new streams join another group."""
    names = changeable_parts(GROUPED)
    all_changes = sum(1 << at for at, name in enumerate(names) if name != SHORTER)
    world = grouped(Fault(AT_MS, "redeploy", 0, all_changes), late_ms=AT_MS + 5_000)
    assert violations(world) == []
    assert [lease(one)["group"]["S"] for one in world.members] == ["#1", "#1", "#1", "#2"]
    assert {one.task.version for one in world.functions if one.is_alive} == {2}
    assert (world.definitions[0], set(world.definitions[1:])) == (1, {2})


@pytest.mark.parametrize("late_ms", [AT_MS + 20, pytest.param(AT_MS + 2_500, marks=LONG)])
def test_a_stream_of_a_new_profile_is_connected_by_the_function_that_runs(late_ms: int) -> None:
    """A function that began before a profile was deployed connects its stream within 5 s; the others stay connected."""
    change = Fault(AT_MS, "redeploy", 0, 1 << changeable_parts(GROUPED).index("reconnect_tries"))
    world = grouped(change, late_ms=late_ms, has_new_profile=True)
    assert violations(world) == []
    *others, late = world.members
    joined_ms = world.origin_ms + late_ms
    first = late.upstream.links[0]
    assert first.opened_ms is not None
    assert joined_ms < first.opened_ms <= joined_ms + 5_000
    assert first.function.task.version == 1
    for one in others:
        assert [link for link in one.upstream.links if joined_ms < (link.opened_ms or 0) <= first.opened_ms] == []


def test_redeployments_and_aborted_executions_are_drawn_for_groups() -> None:
    """A quarter of two hundred schedules has a redeployment, and a twentieth a stopped execution."""
    kinds = [{fault.kind for fault in generate_groups(seed).faults} for seed in range(200)]
    assert sum("redeploy" in one for one in kinds) > 50
    assert sum("abort and post" in one for one in kinds) > 10


def shortened(policy: str, is_hot: bool, more: tuple[Fault, ...], machine_of: Machines = DEPLOYED) -> World:
    """Returns the world after a redeployment that shortens the limit; no renewal is due by count."""
    schedule = replace(PLAIN, policy=policy, hot=is_hot, renews=False)
    redeployment = Fault(AT_MS, "redeploy", 0, 1 << changeable_parts(schedule).index(SHORTER))
    return run_world(replace(schedule, faults=(redeployment, *more)), machine_of, more_ms=MORE_MS)


def late_holes(world: World) -> list[tuple[int, int]]:
    """Returns when the stream was not connected, from two lives after the last fault or redeployment on."""
    last_ms = max(quiet_ms(world.schedule, world.settings), *(fault.at_ms for fault in world.schedule.faults))
    return uncovered(world, world.origin_ms + last_ms + 48_000, world.clock.now_ms())


def _says_no_wait(definition: dict[str, Any]) -> None:
    """Returns the former definition, whose functions do not learn how long its lanes wait."""
    for branch in definition["States"]["Lanes"]["Branches"]:
        for state in branch["States"].values():
            if state["Type"] == "Task" and "Payload" in state["Arguments"]:
                state["Arguments"]["Payload"].pop("wait_s", None)

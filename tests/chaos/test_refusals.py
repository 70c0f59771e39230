"""An upstream that refuses a stream for a while, and an upstream that keeps refusing, in the world of faults."""

import pytest

from local.chaos.backoff_rules import RENEWAL_MS
from local.chaos.deployments import LIMITS
from local.chaos.draws import PAGE, POLICIES
from local.chaos.group_world import Group
from local.chaos.invariants import final_status, violations
from local.chaos.plans import Fault
from local.chaos.schedule import Schedule
from local.chaos.simulate import run_world
from local.chaos.world import World
from tests.planted.schedules import CALM, group, stream

FROM_MS = 20_000


def refused(policy: str, lasts_ms: int, reject_after_s: int, status: int = 403, *, hot: bool = False) -> World:
    """Returns the world after refusals of that length, which both lanes meet, with a renewal due."""
    faults = (Fault(FROM_MS, "rejection", lasts_ms, status),)
    return run_world(Schedule(7, policy, True, hot, 0, True, 300, 300, faults, reject_after_s=reject_after_s))


def lanes(world: World, from_ms: int, to_ms: int) -> set[str]:
    """Returns the lanes whose functions began in the interval."""
    life_ms = LIMITS["function_timeout_s"] * 1000 + world.origin_ms
    begun = {(one.task.invocation.lane, one.task.invocation.deadline_ms - life_ms) for one in world.functions}
    return {lane for lane, at_ms in begun if from_ms <= at_ms < to_ms}


@pytest.mark.parametrize(
    ("policy", "hot", "status"),
    [
        ("forbids", False, PAGE),
        ("tolerates", True, 403),
        pytest.param("evicts", False, 403, marks=pytest.mark.long),
        *(pytest.param(policy, False, PAGE, marks=pytest.mark.long) for policy in ("evicts", "tolerates")),
    ],
)
def test_a_stream_outlives_refusals_that_pass(policy: str, hot: bool, status: int) -> None:
    """After refusals of 40 s, longer than any function, the stream is connected, without a message or a rejection."""
    world = refused(policy, 40_000, 300, status, hot=hot)
    assert violations(world) == []
    asked = [link for link in world.upstream.links if link.refused_with]
    assert {link.function.execution for link in asked} <= {execution.arn for execution in world.executions}
    assert len(asked) > 3
    assert lanes(world, FROM_MS, FROM_MS + 40_000) == {"A", "B"}
    assert (final_status(world), world.account.queue.messages) == ("", [])
    assert world.upstream.open_links


def test_a_stream_of_a_group_outlives_a_page_in_place_of_its_events() -> None:
    """After a page that lasts a minute each stream of the group is connected, and none is rejected."""
    page = stream("evicts", Fault(FROM_MS, "rejection", 60_000, PAGE), reject_after_s=300)
    world = run_world(group(page, CALM))
    assert violations(world) == []
    assert isinstance(world, Group)
    assert [bool(one.upstream.open_links) for one in world.members] == [True, True]
    assert sum(link.refused_with == PAGE for link in world.members[0].upstream.links) > 3
    assert world.account.queue.messages == []


@pytest.mark.parametrize(
    ("policy", "hot", "status"),
    [
        ("evicts", False, 403),
        ("tolerates", True, PAGE),
        pytest.param("tolerates", True, 403, marks=pytest.mark.long),
        *(pytest.param(policy, False, 403, marks=pytest.mark.long) for policy in POLICIES if policy != "evicts"),
        *(pytest.param(policy, False, PAGE, marks=pytest.mark.long) for policy in POLICIES),
    ],
)
def test_refusals_that_go_on_end_the_stream_once(policy: str, hot: bool, status: int) -> None:
    """After `reject_after` without a connection the stream ends with one message, and no function connects again."""
    world = refused(policy, 10**6, 30, status, hot=hot)
    assert [violation for violation in violations(world) if violation.kind != "stuck"] == []
    assert final_status(world) == "rejected"
    (message,) = world.account.queue.messages
    assert message["error"] == "StreamRejected"
    refusals = [link.closed_ms or 0 for link in world.upstream.links if link.refused_with]
    connected_ms = max(link.closed_ms or 0 for link in world.upstream.links if link.opened_ms)
    assert 30_000 - 600 - RENEWAL_MS <= max(refusals) - max(connected_ms, min(refusals)) <= 30_000 + 47_000
    assert world.clock.now_ms() - max(refusals) > 20_000


def test_a_reject_after_of_zero_ends_the_stream_once_no_connection_is_left() -> None:
    """With `reject_after` 0 the stream ends once the other lane's connection, read until its function ends, is over."""
    world = refused("evicts", 10**6, 0)
    refused_ms = [link.closed_ms or 0 for link in world.upstream.links if link.refused_with]
    until_ms = max(link.closed_ms or 0 for link in world.upstream.links if link.opened_ms)
    assert (final_status(world), refused_ms[0] < until_ms <= refused_ms[-1]) == ("rejected", True)

"""The execution of a group is stopped, and then some of its streams, or none, are requested again."""

import pytest

from handlers.connection.orphans import GRACE_MS
from local.chaos.draws import POLICIES
from local.chaos.facts import uncovered
from local.chaos.faults import CHECK_EVERY_MS
from local.chaos.group_schedule import generate_groups
from local.chaos.group_world import Group
from local.chaos.invariants import violations
from local.chaos.member_reader import MemberReader
from local.chaos.plans import Fault
from local.chaos.simulate import run_world
from local.chaos.stream_rules import FORBIDDEN_HANDOVER_MS
from tests.planted.schedules import group, stream

AT_MS = 20_000
# The first check of the watch comes so much later.
ABORT = Fault(AT_MS, "abort", 0, 59_000)
Words = list[tuple[int, str]]


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Words:
    """Return the statuses of all streams with their instants, which fill during the run."""
    said: Words = []
    wrong_word = MemberReader._wrong_word

    def noted(reader: MemberReader, word: str) -> object:
        said.append((reader._clock.now_ms(), word))
        return wrong_word(reader, word)

    monkeypatch.setattr(MemberReader, "_wrong_word", noted)
    return said


def aborted(*faults: Fault, more_ms: int = 0) -> Group:
    """Return the world after the abort, with one stream of each policy; `faults` are those of the first stream."""
    streams = [stream(policy, *(() if number else faults)) for number, policy in enumerate(POLICIES)]
    world = run_world(group(*streams, faults=(ABORT,)), more_ms=more_ms)
    assert isinstance(world, Group)
    return world


def long_holes(world: Group) -> list[tuple[int, int]]:
    """Return, for each stream, the intervals without a connection that are longer than a handover."""
    until_ms = world.clock.now_ms()
    holes = [hole for one in world.members for hole in uncovered(one, world.origin_ms + AT_MS, until_ms)]
    return [(start, end) for start, end in holes if end - start > FORBIDDEN_HANDOVER_MS]


def watch_findings(world: Group) -> list[str]:
    """Return the findings of the watch."""
    return [line.partition("the watch: ")[2] for line in world.log if "the watch: " in line]


def test_the_watch_starts_an_aborted_group_that_is_not_requested_again(words: Words) -> None:
    """The functions live until their limits; then the streams are reconnecting until the watch starts the group."""
    world = aborted()
    assert violations(world) == []
    (sentence,) = watch_findings(world)
    assert sentence.startswith("the lease of #1 names an execution that is over (e1), though no stop was requested; e2")
    assert [one.status for one in world.executions] == ["ABORTED", "RUNNING"]
    holes = long_holes(world)
    assert len(holes) == len(POLICIES)
    assert all(GRACE_MS < end - start < GRACE_MS + CHECK_EVERY_MS + FORBIDDEN_HANDOVER_MS for start, end in holes)
    from_ms, to_ms = max(start for start, _ in holes), min(end for _, end in holes)
    assert {word for at_ms, word in words if from_ms <= at_ms < to_ms} == {"reconnecting"}
    assert {word for _, word in words[-len(POLICIES) :]} == {"running"}


def test_streams_of_an_aborted_group_become_unknown_without_the_watch(
    words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes after the functions' last records, the status of each stream is "unknown"."""
    monkeypatch.setattr("handlers.connection.orphans.is_suspect", lambda *_lease: False)
    world = aborted(more_ms=600_000)
    assert {violation.kind for violation in violations(world)} >= {"stuck"}
    assert {word for _, word in words[-len(POLICIES) :]} == {"unknown"}


def test_a_post_of_one_stream_starts_its_group_again() -> None:
    """After a POST of one stream all streams are taken over from the living functions, and the watch finds nothing."""
    world = aborted(Fault(AT_MS + 3_000, "post"))
    assert violations(world) == []
    assert (long_holes(world), watch_findings(world)) == ([], [])
    assert [one.status for one in world.executions] == ["ABORTED", "RUNNING"]
    assert [len(one.answered) for one in world.members] == [2, 1, 1]


def test_aborts_without_a_restart_are_drawn() -> None:
    """About a thirtieth of the schedules stops a group's execution and never requests all streams again."""
    faults = [generate_groups(seed).faults for seed in range(200)]
    forsaken = [{fault.kind for fault in some} for some in faults if any(fault.kind == "abort" for fault in some)]
    assert 4 < len(forsaken) < 16
    assert not any("abort and post" in kinds for kinds in forsaken)

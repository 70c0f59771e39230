"""Somebody stops the execution of a group, and not all of its streams are requested again, or none."""

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
# The watch comes round so much later for the first time.
ABORT = Fault(AT_MS, "abort", 0, 59_000)
Words = list[tuple[int, str]]


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Words:
    """Returns the statuses of all streams over time, with their instants."""
    said: Words = []
    wrong_word = MemberReader._wrong_word

    def noted(reader: MemberReader, word: str) -> object:
        said.append((reader._clock.now_ms(), word))
        return wrong_word(reader, word)

    monkeypatch.setattr(MemberReader, "_wrong_word", noted)
    return said


def aborted(*faults: Fault, more_ms: int = 0) -> Group:
    """Returns the world of a stream of each policy after the abort; `faults` are those of the first stream."""
    streams = [stream(policy, *(() if number else faults)) for number, policy in enumerate(POLICIES)]
    world = run_world(group(*streams, faults=(ABORT,)), more_ms=more_ms)
    assert isinstance(world, Group)
    return world


def long_holes(world: Group) -> list[tuple[int, int]]:
    """Returns, for each stream, the intervals without a connection that are longer than a handover."""
    until_ms = world.clock.now_ms()
    holes = [hole for one in world.members for hole in uncovered(one, world.origin_ms + AT_MS, until_ms)]
    return [(start, end) for start, end in holes if end - start > FORBIDDEN_HANDOVER_MS]


def of_the_watch(world: Group) -> list[str]:
    """Returns what the watch has found."""
    return [line.partition("the watch: ")[2] for line in world.log if "the watch: " in line]


def test_a_group_that_nobody_asks_for_again_is_started_by_the_watch(words: Words) -> None:
    """Its functions live until their limits; then its streams are reconnecting until the watch comes."""
    world = aborted()
    assert violations(world) == []
    (sentence,) = of_the_watch(world)
    assert sentence.startswith("the lease of #1 names an execution that is over (e1), though no stop was requested; e2")
    assert [one.status for one in world.executions] == ["ABORTED", "RUNNING"]
    holes = long_holes(world)
    assert len(holes) == len(POLICIES)
    assert all(GRACE_MS < end - start < GRACE_MS + CHECK_EVERY_MS + FORBIDDEN_HANDOVER_MS for start, end in holes)
    from_ms, to_ms = max(start for start, _ in holes), min(end for _, end in holes)
    assert {word for at_ms, word in words if from_ms <= at_ms < to_ms} == {"reconnecting"}
    assert {word for _, word in words[-len(POLICIES) :]} == {"running"}


def test_nobody_knows_of_a_group_that_not_even_the_watch_has_found(
    words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes after its functions' last records, the status of each of its streams says so."""
    monkeypatch.setattr("handlers.watching.orphan_recovery.is_suspect", lambda *_lease: False)
    world = aborted(more_ms=600_000)
    assert {violation.kind for violation in violations(world)} >= {"stuck"}
    assert {word for _, word in words[-len(POLICIES) :]} == {"unknown"}


def test_a_post_of_one_stream_starts_its_group_again() -> None:
    """All its streams are taken over from the functions that still live, and the watch finds nothing."""
    world = aborted(Fault(AT_MS + 3_000, "post"))
    assert violations(world) == []
    assert (long_holes(world), of_the_watch(world)) == ([], [])
    assert [one.status for one in world.executions] == ["ABORTED", "RUNNING"]
    assert [len(one.answered) for one in world.members] == [2, 1, 1]


def test_aborts_that_nobody_follows_are_drawn() -> None:
    """A thirtieth of two hundred schedules has one, and then nobody requests all streams again."""
    faults = [generate_groups(seed).faults for seed in range(200)]
    forsaken = [{fault.kind for fault in some} for some in faults if any(fault.kind == "abort" for fault in some)]
    assert 4 < len(forsaken) < 16
    assert not any("abort and post" in kinds for kinds in forsaken)

"""The streams of a group that a function keeps, and when the function ends."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.group.group_lease import GroupHeartbeat, GroupLease
from handlers.group.next_step import NextStep
from handlers.group.roster import Roster

ALIVE = {"r1": GroupHeartbeat(1, 0, 100)}
LEASE = GroupLease(token=1, execution="E1", version=4, heartbeats=ALIVE)
NEWER = replace(LEASE, token=2, heartbeats={**ALIVE, "r2": GroupHeartbeat(2, 0, 100)})
LAST_MS = 80
STREAMS = ("a", "b", "c")


def roster(*members: str, lease: GroupLease = LEASE) -> Roster:
    """Return a roster that has seen the lease and read these members."""
    one = Roster(1, "E1", LAST_MS)
    one.apply_lease(lease, 0)
    one.set_members(lease.version, dict.fromkeys(members, "1"))
    return one


def running(*members: str) -> Roster:
    """Return a roster that has begun the first of these members."""
    one = roster(*members)
    one.mark_begun(members[0])
    return one


def end(one: Roster, now_ms: int) -> str:
    """Return the error or the status with which the function has ended; "" while it runs."""
    outcome = one.outcome(now_ms)
    return "" if outcome is None else outcome.error or outcome.status


def test_a_function_begins_each_member_once() -> None:
    """Each member begins once; a new member begins after the version has changed and the members were read."""
    one = roster("b", "a")
    assert one.streams_to_open(0) == ["a", "b"]
    one.mark_begun("a")
    one.mark_begun("b")
    assert one.streams_to_open(0) == []
    one.apply_lease(replace(LEASE, version=5), 5)
    assert one.is_behind
    one.set_members(5, {"b": "1", "c": "2"})
    assert (one.is_behind, one.streams_to_open(5), one.former_members) == (False, ["c"], ["a"])


def test_an_older_function_begins_no_stream() -> None:
    """An older function begins no stream and ends once none runs, though the newer one could not open some yet."""
    one = running("a", "b")
    one.apply_lease(NEWER, 5)
    assert (one.streams_to_open(5), one.is_kept("a"), one.outcome(5)) == ([], False, None)
    one.mark_ended("a", NextStep.RELIEVED)
    assert end(one, 5) == "StreamTakenOver"


def test_a_dead_newer_function_relieves_no_older_one() -> None:
    """If the newer function's heartbeat has run out, the older one goes on and expires at its own deadline."""
    one = running("a")
    one.apply_lease(replace(NEWER, heartbeats={**ALIVE, "r2": GroupHeartbeat(2, 0, 5)}), 6)
    assert one.is_kept("a")
    one.mark_ended("a", NextStep.EXPIRED)
    assert [end(one, now_ms) for now_ms in (LAST_MS - 1, LAST_MS)] == ["", "ConnectionExpired"]


def test_a_lane_with_a_hot_standby_starts_again() -> None:
    """If a stream needs its hot standby, the function ends as expired, so its lane starts again beside the other."""
    one = running("a", "b")
    one.mark_ended("a", NextStep.STANDBY)
    one.apply_lease(NEWER, 5)
    assert end(one, 5) == "ConnectionExpired"


def test_an_empty_group_ends_at_the_version_of_its_reading() -> None:
    """An empty group does not end while its members must be read again, or a stream runs or waits to be removed."""
    one = running("a")
    one.mark_ended("a", NextStep.OVER)
    assert (one.removal_of("a"), one.empty_version) == ("1", None)
    one.mark_removed("a")
    assert one.empty_version == 4
    one.apply_lease(replace(LEASE, version=5), 5)
    assert one.empty_version is None
    one.set_members(5, {})
    assert one.empty_version == 5
    one.apply_lease(replace(LEASE, version=5, stop=True), 6)
    assert end(one, 6) == "stopped"


@pytest.mark.parametrize("what", [NextStep.OVER, NextStep.UNREAD])
def test_a_stream_that_is_over_begins_again_only_if_it_joins_again(what: NextStep) -> None:
    """A stream that is over begins again only after a new POST; a stream without a profile requests that again."""
    one = running("a")
    assert one.removal_of("a") is None
    one.mark_ended("a", what)
    one.set_members(4, {"a": "1"})
    assert one.streams_to_open(0) == []
    one.set_members(4, {"a": "2"})
    assert one.streams_to_open(0) == ["a"]


def test_a_stream_taken_by_an_unknown_connection_is_opened_after_the_next_lease() -> None:
    """A stream that was taken over unexpectedly waits for the next lease; the last may be older than that claim."""
    one = running("a")
    one.mark_ended("a", NextStep.RELIEVED)
    assert one.streams_to_open(0) == []
    one.apply_lease(LEASE, 5)
    assert one.streams_to_open(5) == ["a"]
    one.apply_lease(NEWER, 5)
    assert one.streams_to_open(0) == []


def test_a_function_relieved_at_its_deadline_reads_the_lease_first() -> None:
    """A function relieved at its deadline reads the lease. Its lane waits for a newer one, or starts again at once."""
    ends = []
    for seen in (NEWER, LEASE):
        one = running("a")
        one.mark_ended("a", NextStep.RELIEVED)
        assert one.outcome(LAST_MS) is None
        one.apply_lease(seen, 5)
        ends.append(end(one, LAST_MS))
    assert ends == ["StreamTakenOver", "ConnectionExpired"]


def test_a_function_marked_as_ended_stops() -> None:
    """A function that is marked as ended stops; its lane starts again at once if no newer function lives."""
    one = running("a")
    one.apply_lease(replace(LEASE, heartbeats={"r1": replace(ALIVE["r1"], is_ended=True)}), 5)
    assert not one.can_reconnect
    one.mark_ended("a", NextStep.AGAIN)
    assert end(one, 5) == "ConnectionExpired"


def test_the_roster_measures_the_time_beside_a_newer_function() -> None:
    """The time beside a newer function counts from its first sight, and again from 0 if none lived in between."""
    one = roster("a")
    assert one.overlap_ms(5) == 0
    for lease, at_ms in ((NEWER, 5), (NEWER, 8), (LEASE, 9), (NEWER, 12)):
        one.apply_lease(lease, at_ms)
    assert one.overlap_ms(20) == 8
    one.apply_lease(LEASE, 20)
    assert one.overlap_ms(30) == 0


def test_a_function_leaves_a_group_that_another_execution_has() -> None:
    """If another execution has the group, the function returns as superseded, as a single stream's does."""
    one = roster("a")
    one.apply_lease(replace(NEWER, execution="E2"), 5)
    assert end(one, 5) == "superseded"


@pytest.mark.parametrize(
    "seen",
    [
        NEWER,
        replace(LEASE, stop=True),
        replace(LEASE, execution="E2"),
        replace(LEASE, heartbeats={"r1": replace(ALIVE["r1"], is_ended=True)}),
    ],
    ids=["newer", "stop", "superseded", "ended"],
)
def test_a_function_that_must_stop_connects_no_stream_again(seen: GroupLease) -> None:
    """A function that must stop, for any reason, connects no stream again and ends no group."""
    one = running("a", "b")
    one.apply_lease(seen, 5)
    assert (one.is_kept("a"), one.streams_to_open(5)) == (False, [])
    assert roster(lease=seen).empty_version is None


def test_a_stream_that_leaves_is_forgotten() -> None:
    """A stream in back-off that leaves is forgotten at once, a running one at its end; neither is connected again."""
    one = running("a", "b")
    one.set_members(5, {})
    assert (len(one), one.is_kept("a")) == (1, False)
    one.mark_ended("a", NextStep.AGAIN)
    assert (len(one), one.running) == (0, [])


def test_no_stream_begins_from_the_functions_last_instant_on() -> None:
    """From its last instant on a function begins no stream, because its successor is on its way."""
    assert [roster("a").streams_to_open(now_ms) for now_ms in (LAST_MS - 1, LAST_MS)] == [["a"], []]


def test_a_stream_that_a_dead_newer_function_claimed_is_not_opened() -> None:
    """A stream that a newer function claimed is not opened after that function's death: its token is greater."""
    one = running("a")
    one.mark_ended("a", NextStep.RELIEVED)
    one.apply_lease(replace(NEWER, heartbeats=ALIVE), 5)
    assert one.streams_to_open(5) == []


ACTS = st.one_of(
    st.tuples(st.just("list"), st.sets(st.sampled_from(STREAMS))),
    st.tuples(st.just("see"), st.sampled_from((LEASE, NEWER, replace(LEASE, version=5), replace(LEASE, stop=True)))),
    st.tuples(st.just("open"), st.just(0)),
    st.tuples(st.just("end"), st.tuples(st.integers(0, 2), st.sampled_from(NextStep))),
    st.tuples(st.just("remove"), st.sampled_from(STREAMS)),
)


@given(st.lists(ACTS, max_size=30))
def test_the_roster_keeps_its_invariants_in_any_order_of_events(acts: list[tuple[str, object]]) -> None:
    """Only members begin, and once each; no stream runs at the end; only for a newer function does the lane wait."""
    one, running, members, lease = roster(), list[str](), set[str](), LEASE
    for act, value in acts:
        match act, value:
            case "list", set():
                members = set(value)
                one.set_members(lease.version, dict.fromkeys(members, "1"))
            case "see", GroupLease():
                lease = value
                one.apply_lease(lease, 0)
            case "open", _:
                for stream in one.streams_to_open(0):
                    assert stream in members
                    assert stream not in running
                    one.mark_begun(stream)
                    running.append(stream)
            case "end", (int() as which, NextStep() as what) if running:
                one.mark_ended(running.pop(which % len(running)), what)
            case "remove", str() as stream if one.removal_of(stream) is not None:
                one.mark_removed(stream)
                members.discard(stream)
        assert set(one.former_members) == set(running) - members
        assert one.empty_version is None or not (running or members)
        outcome = one.outcome(LAST_MS)
        assert outcome is None or not running
        assert outcome is None or outcome.error != "StreamTakenOver" or lease is NEWER

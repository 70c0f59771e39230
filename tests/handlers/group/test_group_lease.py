"""What a group's lease and a stream's record mean together."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.lease import Lease, may_open
from handlers.group.group_lease import (
    GroupHeartbeat,
    GroupLease,
    alive_until_ms,
    compose_lease,
    function_to_mark_ended,
    good_until_ms,
    is_all_connected,
    is_away,
    known_ended_turn,
    turns_of_others,
)

REQUESTS = ("r1", "r2", "r3")
INSTANTS = st.integers(0, 50)
heartbeats = st.builds(GroupHeartbeat, st.integers(1, 5), INSTANTS, INSTANTS, st.integers(0, 3), st.booleans())
groups = st.builds(
    GroupLease,
    token=st.integers(0, 5),
    execution=st.sampled_from(("", "E1", "E2")),
    stop=st.booleans(),
    heartbeats=st.dictionaries(st.sampled_from(REQUESTS), heartbeats),
)
records = st.builds(
    Lease,
    fence=st.just(9),
    connected_token=st.integers(0, 9),
    released_token=st.integers(0, 9),
    expires_at_ms=INSTANTS,
    execution=st.sampled_from(("", "E1")),
    stop=st.booleans(),
    connected_by=st.sampled_from(("", *REQUESTS)),
)


def test_a_connection_lives_as_long_as_its_functions_heartbeat() -> None:
    """The record has the function's limit, and a heartbeat shortens it; the execution is the group's."""
    own = Lease(fence=7, connected_token=7, expires_at_ms=900, execution="E1", connected_by="r1")
    group = GroupLease(execution="E2", heartbeats={"r1": GroupHeartbeat(3, 80, 100), "r2": GroupHeartbeat(4, 90, 110)})
    assert compose_lease(own, group) == replace(own, expires_at_ms=100, execution="E2")
    assert compose_lease(replace(own, expires_at_ms=90), group).expires_at_ms == 90


def test_a_function_marked_as_ended_holds_no_stream() -> None:
    """The connection of a function that is marked as ended is over, and another may open."""
    own = Lease(fence=8, connected_token=7, expires_at_ms=900, connected_by="r1")
    group = GroupLease(heartbeats={"r1": GroupHeartbeat(3, 80, 100, is_ended=True)})
    assert known_ended_turn(own, group) == 7
    assert may_open(compose_lease(own, group), 8, 99)


def test_a_function_is_marked_as_ended_before_its_turn_is_taken() -> None:
    """A function is marked as ended if its heartbeat ran out or its death is proved, and its connection is open."""
    own = Lease(fence=8, connected_token=7, released_token=6, connected_by="r1")
    group = GroupLease(heartbeats={"r1": GroupHeartbeat(3, 80, 100)})
    assert [function_to_mark_ended(own, group, 8, now_ms) for now_ms in (99, 100)] == ["", "r1"]
    assert function_to_mark_ended(own, group, 8, 99, "RequestId: r1 Error: Runtime exited") == "r1"
    assert function_to_mark_ended(own, group, 7, 100) == ""
    assert function_to_mark_ended(replace(own, released_token=7), group, 8, 100) == ""


@given(records, groups)
def test_the_counters_are_the_streams_own(own: Lease, group: GroupLease) -> None:
    """Composing changes no counter, hides no stop, and gives no connection more time than its record does."""
    both = compose_lease(own, group)
    names = ("fence", "connected_token", "released_token", "holder", "connected_by", "ending", "stop_at_ms")
    assert all(getattr(both, name) == getattr(own, name) for name in names)
    assert both.stop == (own.stop or group.stop)
    buried = {name for name, heartbeat in group.heartbeats.items() if heartbeat.is_ended}
    assert both.expires_at_ms <= own.expires_at_ms or own.connected_by in buried


@given(records, groups, st.integers(0, 60), st.integers(1, 10))
def test_no_connection_opens_before_the_earlier_ones_function_is_marked_as_ended(
    own: Lease, group: GroupLease, now_ms: int, fence: int
) -> None:
    """Beside an earlier connection with time left, none opens unless that one is closed or marked as ended first."""
    if not may_open(compose_lease(own, group), fence, now_ms) or now_ms >= own.expires_at_ms:
        return
    is_open = own.released_token < own.connected_token < fence
    assert not is_open or known_ended_turn(own, group) or function_to_mark_ended(own, group, fence, now_ms)


def test_turns_of_others_change_with_each_turn_of_another_function() -> None:
    """Another function's turn, or another function, changes the value; the function's own turns do not."""
    first = GroupLease(heartbeats={"r1": GroupHeartbeat(1, 0, 9, turns=2), "r2": GroupHeartbeat(2, 0, 9, turns=3)})
    own = replace(first, heartbeats={**first.heartbeats, "r1": GroupHeartbeat(1, 5, 14, turns=4)})
    other = replace(first, heartbeats={**first.heartbeats, "r2": GroupHeartbeat(2, 5, 14, turns=4)})
    third = replace(first, heartbeats={"r1": GroupHeartbeat(1, 0, 9, turns=2), "r3": GroupHeartbeat(3, 0, 9, turns=3)})
    looks = [turns_of_others(lease, 1) for lease in (first, own, other, third)]
    assert looks[0] == looks[1]
    assert len(set(looks)) == 3


def test_a_heartbeat_covers_a_connection_up_to_its_lag() -> None:
    """With a lag in the record, a stream was good until that long before the heartbeat; the record is the minimum."""
    heartbeat = GroupHeartbeat(1, 1_000, 1_200)
    assert [good_until_ms(400, lag_ms, heartbeat) for lag_ms in (100, 700, None)] == [900, 400, 400]
    assert good_until_ms(400, 100, None) == 400


def test_a_group_is_well_if_its_newest_living_function_says_so() -> None:
    """Only the newest living function says whether a group is well; a group without a function is not well."""
    older, newer = GroupHeartbeat(1, 0, 100, away=1), GroupHeartbeat(2, 0, 50)
    group = GroupLease(heartbeats={"r1": older, "r2": newer})
    assert [is_all_connected(group, now_ms) for now_ms in (49, 50, 100)] == [True, False, False]
    assert not is_all_connected(GroupLease(heartbeats={"r1": newer, "r2": replace(older, token=3)}), 0)


def test_a_group_lived_until_its_last_heartbeat_runs_out() -> None:
    """A group lived until its last heartbeat runs out; a function that is marked as ended lived until it was sent."""
    ended, alive = GroupHeartbeat(1, 80, 100, is_ended=True), GroupHeartbeat(2, 60, 90)
    groups = [GroupLease(heartbeats=some) for some in ({}, {"r1": ended}, {"r1": ended, "r2": alive})]
    assert [alive_until_ms(group) for group in groups] == [0, 80, 90]


def test_a_stopped_stream_is_not_away() -> None:
    """A stream is away if its connection is not open or its lease has run out, but never if it was stopped."""
    lease = Lease(fence=7, connected_token=7, expires_at_ms=100)
    assert [is_away(lease, now_ms) for now_ms in (99, 100)] == [False, True]
    assert is_away(replace(lease, released_token=7), 99)
    assert not is_away(replace(lease, released_token=7, stop=True), 99)

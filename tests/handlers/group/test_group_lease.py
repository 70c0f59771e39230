"""What a group's lease and a stream's record say together."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.lease import Lease, may_open
from handlers.group.group_lease import (
    GroupHeartbeat,
    GroupLease,
    alive_until_ms,
    composed,
    good_until_ms,
    is_away,
    is_well,
    known_over,
    to_bury,
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


def test_the_holder_lives_as_long_as_its_function_heartbeats() -> None:
    """The record has the function's limit, the heartbeat extends it; the execution is the group's."""
    own = Lease(fence=7, connected_token=7, expires_at_ms=900, execution="E1", connected_by="r1")
    group = GroupLease(execution="E2", heartbeats={"r1": GroupHeartbeat(3, 80, 100), "r2": GroupHeartbeat(4, 90, 110)})
    assert composed(own, group) == replace(own, expires_at_ms=100, execution="E2")
    assert composed(replace(own, expires_at_ms=90), group).expires_at_ms == 90


def test_a_buried_function_holds_nothing() -> None:
    """Its connection counts as over; the result names the token that buried it."""
    own = Lease(fence=8, connected_token=7, expires_at_ms=900, connected_by="r1")
    group = GroupLease(heartbeats={"r1": GroupHeartbeat(3, 80, 100, is_ended=True)})
    assert known_over(own, group) == 7
    assert may_open(composed(own, group), 8, 99)


def test_who_has_run_out_is_buried_before_its_turn_is_taken() -> None:
    """A function with a heartbeat or a closed connection is not buried; a proof of its death is enough."""
    own = Lease(fence=8, connected_token=7, released_token=6, connected_by="r1")
    group = GroupLease(heartbeats={"r1": GroupHeartbeat(3, 80, 100)})
    assert [to_bury(own, group, 8, now_ms) for now_ms in (99, 100)] == ["", "r1"]
    assert to_bury(own, group, 8, 99, "RequestId: r1 Error: Runtime exited") == "r1"
    assert to_bury(own, group, 7, 100) == ""
    assert to_bury(replace(own, released_token=7), group, 8, 100) == ""


@given(records, groups)
def test_the_counters_are_the_streams_own(own: Lease, group: GroupLease) -> None:
    """Composing changes no counter, hides no stop, and gives nobody more time than his record does."""
    both = composed(own, group)
    names = ("fence", "connected_token", "released_token", "holder", "connected_by", "ending", "stop_at_ms")
    assert all(getattr(both, name) == getattr(own, name) for name in names)
    assert both.stop == (own.stop or group.stop)
    buried = {name for name, heartbeat in group.heartbeats.items() if heartbeat.is_ended}
    assert both.expires_at_ms <= own.expires_at_ms or own.connected_by in buried


@given(records, groups, st.integers(0, 60), st.integers(1, 10))
def test_nobody_opens_beside_one_that_is_not_buried(own: Lease, group: GroupLease, now_ms: int, fence: int) -> None:
    """Until its own limit has passed, an earlier connection is closed, over, or its function is to be ended first."""
    if not may_open(composed(own, group), fence, now_ms) or now_ms >= own.expires_at_ms:
        return
    is_open = own.released_token < own.connected_token < fence
    assert not is_open or known_over(own, group) or to_bury(own, group, fence, now_ms)


def test_turns_of_others_change_with_each_of_theirs() -> None:
    """A function's own turns change nothing; another's do, and so does another function."""
    first = GroupLease(heartbeats={"r1": GroupHeartbeat(1, 0, 9, turns=2), "r2": GroupHeartbeat(2, 0, 9, turns=3)})
    own = replace(first, heartbeats={**first.heartbeats, "r1": GroupHeartbeat(1, 5, 14, turns=4)})
    other = replace(first, heartbeats={**first.heartbeats, "r2": GroupHeartbeat(2, 5, 14, turns=4)})
    third = replace(first, heartbeats={"r1": GroupHeartbeat(1, 0, 9, turns=2), "r3": GroupHeartbeat(3, 0, 9, turns=3)})
    looks = [turns_of_others(lease, 1) for lease in (first, own, other, third)]
    assert looks[0] == looks[1]
    assert len(set(looks)) == 3


def test_a_heartbeat_answers_for_what_was_good_before() -> None:
    """It does so by the lag in the record, not for a record without one, and never for less than the record."""
    heartbeat = GroupHeartbeat(1, 1_000, 1_200)
    assert [good_until_ms(400, lag_ms, heartbeat) for lag_ms in (100, 700, None)] == [900, 400, 400]
    assert good_until_ms(400, 100, None) == 400


def test_a_group_is_well_by_the_word_of_its_newest_living_function() -> None:
    """An older or dead function says nothing; a group without a function is not well."""
    older, newer = GroupHeartbeat(1, 0, 100, away=1), GroupHeartbeat(2, 0, 50)
    group = GroupLease(heartbeats={"r1": older, "r2": newer})
    assert [is_well(group, now_ms) for now_ms in (49, 50, 100)] == [True, False, False]
    assert not is_well(GroupLease(heartbeats={"r1": newer, "r2": replace(older, token=3)}), 0)


def test_a_group_surely_lived_until_its_last_heartbeat_runs_out() -> None:
    """One that was ended lived until it was sent."""
    ended, alive = GroupHeartbeat(1, 80, 100, is_ended=True), GroupHeartbeat(2, 60, 90)
    groups = [GroupLease(heartbeats=some) for some in ({}, {"r1": ended}, {"r1": ended, "r2": alive})]
    assert [alive_until_ms(group) for group in groups] == [0, 80, 90]


def test_nobody_is_away_whom_somebody_has_stopped() -> None:
    """Every other connection must be open, with a lease that lasts."""
    lease = Lease(fence=7, connected_token=7, expires_at_ms=100)
    assert [is_away(lease, now_ms) for now_ms in (99, 100)] == [False, True]
    assert is_away(replace(lease, released_token=7), 99)
    assert not is_away(replace(lease, released_token=7, stop=True), 99)

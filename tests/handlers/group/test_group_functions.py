"""Functions of a group hand over stream by stream, on tables in memory and with the product's own writes."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from handlers.connection.inputs import LOG
from handlers.run.group_function import AT_ONCE, HEARTBEAT_EVERY_MS, YOUNG_MS
from handlers.store import typed_values
from handlers.store.group_store import OPEN
from handlers.store.stream_records import StreamRecords
from tests.examples import examples
from tests.handlers.group.world import (
    CONTROL,
    EVERY_MS,
    GROUP,
    LIFE_MS,
    LIMIT,
    MARGIN_MS,
    NEVER_LATE_MS,
    START_MS,
    World,
)

POLICIES = {"a": "evicts", "b": "tolerates", "c": "forbids", "d": "evicts", "e": "forbids"}
STREAMS = [f"{policy}:{name}" for name, policy in POLICIES.items()]


def running(longest_ms: int = NEVER_LATE_MS, **policies: str) -> World:
    """Return a group whose streams one function has connected, with an event each every 0.7 s.

    An overlap of more than `longest_ms` is late.
    """
    world = World(policies or POLICIES)
    world.overlap_max_ms = longest_ms
    world.join(*world.upstreams)
    world.start("r1")
    for number in range(1, 160):
        world.at(700 * number, lambda: world.emit(*world.upstreams))
    return world


def check(world: World, *streams: str) -> None:
    """Check that each event is stored, no limit was exceeded, and each interval without a connection is recorded."""
    for stream in streams or tuple(world.upstreams):
        upstream = world.upstreams[stream]
        assert upstream.most <= LIMIT[upstream.policy], stream
        assert world.stored(stream) == [*range(1, upstream.emitted + 1)], stream
        assert world.uncovered(stream) == [], stream


def test_one_function_keeps_all_its_streams() -> None:
    """A function opens a group's streams a few at a time and stores all events; each record has its allowed silence."""
    world = running()
    world.run(20_000)
    assert all(typed_values.read_int(world.record(stream)["live"]["M"], "silent_ms") for stream in STREAMS)
    assert [world.holders(stream) for stream in STREAMS] == [["r1"]] * 5
    check(world)


@pytest.mark.parametrize(("longest_ms", "late"), [(38_000, ""), (36_000, "; late by 38 s"), (0, "")])
def test_a_stream_that_the_successor_cannot_open_stays_with_the_older_function(longest_ms: int, late: str) -> None:
    """A stream that the newer function cannot open stays with the older one until its deadline.

    The others are handed over at once, without a gap if two may overlap. If the older function was beside the newer one
    for longer than is safe, its outcome says so.
    """
    world = running(longest_ms)
    down, others = world.upstreams["tolerates:b"], [stream for stream in STREAMS if stream != "tolerates:b"]
    world.at(19_900, lambda: setattr(down, "is_down", True))
    world.at(20_000, lambda: world.start("r2"))
    world.run(35_000)
    assert world.holders("tolerates:b") == ["r1"]
    assert [world.holders(stream) for stream in others] == [["r2"]] * 4
    for stream in others:
        assert world.longest_gap_ms(stream) <= (300 if "forbids" in stream else 0), stream
    world.run(LIFE_MS)
    assert world.holders("tolerates:b") == []
    outcome, words = world.outcomes["r1"], "a newer function keeps the group's streams connected"
    assert (outcome.error, outcome.message) == ("StreamTakenOver", words + late)
    down.is_down = False
    world.run(LIFE_MS + 7_900)
    assert world.holders("tolerates:b") == ["r2"]
    check(world)


@given(
    st.integers(1, 40_000),
    st.sampled_from(range(5)),
    st.sampled_from((None, *range(-3_000, 3_000, 500))),
    st.booleans(),
)
@settings(max_examples=examples(60))
@example(3_001, 0, None, True)  # the record is read while the stream learns what was known before
@example(5_000, 2, 500, False)  # the bound falls into the stream's own handover, as it does here
@example(9_000, 2, 500, False)
def test_a_join_and_a_leave_take_effect_within_a_heartbeat(
    after_ms: int, number: int, handover_ms: int | None, leaves: bool
) -> None:
    """A join or a leave takes effect within the settings' bound, also around a handover; no other stream has a gap.

    A heartbeat is at most 4 s in any stage, and an opening is young for 1 s, so both take effect within 5 s.
    """
    assert HEARTBEAT_EVERY_MS + YOUNG_MS == 5_000
    moved = STREAMS[number]
    others = [stream for stream in STREAMS if stream != moved]
    world = World(POLICIES)
    world.join(*(STREAMS if leaves else others))
    world.start("r1")
    world.run(5_000)
    asked_ms = 5_000 + after_ms
    if handover_ms is not None:
        world.at(max(5_001, asked_ms + handover_ms), lambda: world.start("r2"))
    world.at(asked_ms, lambda: world.leave(moved) if leaves else world.join(moved))
    world.run(asked_ms - 1)
    links = {stream: [*world.upstreams[stream].links] for stream in others}
    world.run(asked_ms + EVERY_MS)
    upstream = world.upstreams[moved]
    if not leaves and "forbids" in moved and handover_ms is not None and upstream.bare_since is not None:
        # It was connected after its POST. A handover is under way now, and two connections are not allowed.
        assert upstream.bare_since > START_MS + asked_ms
        world.run(upstream.bare_since - START_MS + 300)
    assert world.holders(moved) in (([],) if leaves else (["r1"], ["r2"], ["r1", "r2"]))
    if handover_ms is None:
        assert {stream: world.upstreams[stream].links for stream in others} == links
    for stream in others:
        assert world.longest_gap_ms(stream) <= (300 if "forbids" in stream else 0), stream


@given(st.integers(1, 40_000), st.booleans())
@settings(max_examples=examples(40))
@example(2_001, False)
def test_a_check_between_distant_heartbeats_finds_a_join_or_a_leave(after_ms: int, leaves: bool) -> None:
    """With a heartbeat every 4 s, as in `prod`, a join or a leave takes effect after the next check or heartbeat."""
    moved = STREAMS[after_ms % 5]
    world = World(POLICIES)
    world.every_ms = 5_000
    world.join(*(STREAMS if leaves else [stream for stream in STREAMS if stream != moved]))
    world.start("r1")
    asked_ms = 5_000 + after_ms
    world.at(asked_ms, lambda: world.leave(moved) if leaves else world.join(moved))
    world.run(asked_ms + HEARTBEAT_EVERY_MS // 2)
    assert world.holders(moved) == ([] if leaves else ["r1"])
    assert (moved in world.groups.members()) == (not leaves)  # its place is freed at once


@given(st.integers(1, LIFE_MS - 5 * MARGIN_MS), st.booleans())
@settings(max_examples=examples(40))
@example(35_000, True)
@example(2_001, True)  # the stop is never read
def test_a_stream_leaves_and_joins_during_a_back_off(after_ms: int, joins: bool) -> None:
    """A stop or a new start takes effect during a back-off, however long that is."""
    world, moved = World(POLICIES), "tolerates:b"
    world.upstreams[moved].is_down = True
    world.join(*STREAMS)
    world.start("r1")
    world.at(after_ms, lambda: world.leave(moved))
    if joins:
        world.at(after_ms + 10, lambda: setattr(world.upstreams[moved], "is_down", False))
        world.at(after_ms + 10, lambda: world.join(moved))
    world.run(after_ms + 10 + EVERY_MS)
    assert (moved in world.groups.members()) == joins
    assert world.holders(moved) == (["r1"] if joins else [])


def test_a_post_that_failed_after_writing_the_record_still_takes_effect() -> None:
    """If a POST failed after its first write, the stream still runs, can be stopped, and its record says so."""
    world, moved = running(a="evicts", b="tolerates"), "evicts:a"
    world.at(10_300, lambda: world.leave(moved))
    world.at(10_310, lambda: world.begin_join(moved))
    world.run(16_000)
    assert world.holders(moved) == ["r1"]
    world.leave(moved)
    world.run(22_000)
    record = world.record(moved)
    assert (world.holders(moved), moved in world.groups.members()) == ([], False)
    assert ("group" in record, record.get("ending")) == (False, {"S": "StreamEnded"})


def test_the_last_stream_that_leaves_ends_the_group() -> None:
    """When the last stream leaves, the function returns, and no further claim of the group is granted."""
    world = running(a="evicts", b="forbids")
    world.at(10_000, lambda: world.leave("evicts:a"))
    world.at(12_000, lambda: world.leave("forbids:b"))
    world.run(20_000)
    outcome = world.outcomes["r1"]
    assert (outcome.error, outcome.status) == ("", "stopped")
    world.start("r2")
    assert world.functions == []


def test_a_function_of_another_execution_is_turned_away() -> None:
    """A function of another execution claims nothing and ends as superseded."""
    world = World({"a": "evicts"})
    world.join("evicts:a")
    other = typed_values.item_key("#1", "lease") | {"execution": {"S": "E2"}}
    world.tables.put_item(TableName=CONTROL, Item=other)
    world.start("r1")
    assert (world.outcomes["r1"].status, world.holders("evicts:a")) == ("superseded", [])


@pytest.mark.parametrize("proved", [False, True])
def test_the_successor_of_a_killed_function_takes_over_stream_by_stream(proved: bool) -> None:
    """If two connections are forbidden, the killed function's end must be proved or its heartbeat must have run out."""
    world = running()
    world.at(20_000, lambda: world.kill("r1"))
    world.at(20_500, lambda: world.start("r2", "RequestId: r1 Error: Runtime exited" if proved else ""))
    world.run(24_000)
    assert [world.holders(stream) for stream in STREAMS if "forbids" not in stream] == [["r2"]] * 3
    assert world.holders("forbids:c") == (["r2"] if proved else [])
    world.run(34_000)
    assert [world.holders(stream) for stream in STREAMS] == [["r2"]] * 5
    check(world)


def test_a_function_that_ends_repeats_refused_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ending function repeats a refused release: outside the group the next holder would wait for its limit."""
    world = running(a="forbids")
    updates, refused = world.tables.update_item, list[str]()

    def update_item(**request: Any) -> Any:
        if "#released = :fence" in request["UpdateExpression"] and not refused:
            refused.append(request["UpdateExpression"])
            raise ClientError({"Error": {"Code": "ThrottlingException", "Message": ""}}, "UpdateItem")
        return updates(**request)

    monkeypatch.setattr(world.tables, "update_item", update_item)
    world.run(LIFE_MS)
    record = world.record("forbids:a")
    assert (world.outcomes["r1"].error, len(refused)) == ("ConnectionExpired", 1)
    assert record["released"] == record["connected"]


def test_a_function_keeps_streams_with_logs() -> None:
    """Each stream keeps its order in a log, over its change to the log, a handover and a kill."""
    world = World(POLICIES, budget={"events_per_day": 20, "then": "log"}, flush_s=3)
    world.join(*STREAMS)
    world.start("r1")
    for number in range(1, 100):
        world.at(700 * number, lambda: world.emit(*STREAMS))
    world.at(20_000, lambda: world.start("r2"))
    world.at(40_000, lambda: world.kill("r2"))
    world.at(40_500, lambda: world.start("r3"))
    world.run(75_000)
    check(world)
    layouts = [StreamRecords(world.tables, CONTROL).layout(one) for one in STREAMS]
    assert [layout and (layout.partitions, layout.items) for layout in layouts] == [(LOG, 1)] * len(STREAMS)


def test_a_stream_that_leaves_frees_its_place_and_a_stream_that_is_away_is_counted() -> None:
    """The next function counts the members, so a POST finds a free place; a heartbeat counts the streams away."""
    world = running()
    world.run(20_000)
    lease = world.groups.read()
    assert (lease.size, lease.heartbeats["r1"].away) == (5, 0)

    def has_free_place() -> bool:
        found = world.tables.get_item(TableName=CONTROL, Key=typed_values.item_key("#", "groups"))
        return f"{OPEN}{GROUP}" in found.get("Item", {})

    assert not has_free_place()
    down = world.upstreams["tolerates:b"]
    down.is_down = True
    for link in [*down.links]:
        down.drop(link)
    world.leave("evicts:a")
    world.run(20_000 + 2 * EVERY_MS)
    assert world.groups.read().heartbeats["r1"].away == 1
    world.start("r2")
    world.run(20_000 + 4 * EVERY_MS)
    assert world.groups.read().size == 4
    assert has_free_place()


@pytest.mark.parametrize("is_down", [True, False])
def test_a_finished_opening_lets_the_next_stream_open(is_down: bool) -> None:
    """Once an opening is answered or refused, the next stream opens at once and does not wait for a full second."""
    world = World(dict.fromkeys("abcdefgh", "evicts") | {"z": "tolerates"})
    for stream, upstream in world.upstreams.items():
        upstream.is_down = is_down and stream != "tolerates:z"
    world.join(*world.upstreams)
    world.start("r1")
    world.run(YOUNG_MS - 1)
    assert len(world.upstreams) == AT_ONCE + 1
    assert world.holders("tolerates:z") == ["r1"]


def test_a_function_ends_with_renewal_due_if_a_renewal_is_due() -> None:
    """A function ends with RenewalDue, if one is due, so the execution starts its successor before its lane waits."""
    world = World(POLICIES)
    world.cycles = world.renew_after = 3
    world.join(*STREAMS)
    world.start("r1")
    world.at(20_000, lambda: world.start("r2"))
    world.run(35_000)
    assert world.outcomes["r1"].error == "RenewalDue"


def test_the_cursor_of_an_evicted_stream_is_as_recent_as_the_heartbeats() -> None:
    """An evicted stream's cursor is as recent as the heartbeats; others may wait an eighth of the function's life."""
    world = running(a="evicts", b="tolerates")
    behind: dict[str, list[int]] = {stream: [] for stream in world.upstreams}

    def reads() -> None:
        for stream, upstream in world.upstreams.items():
            behind[stream].append(upstream.emitted - int(world.record(stream)["cursor"]["S"]))

    for at_s in range(5, 30):
        world.at(1_000 * at_s, reads)
    world.run(30_000)
    assert max(behind["evicts:a"]) <= 1 + EVERY_MS // 700 < max(behind["tolerates:b"])


def test_the_record_of_a_log_has_the_time_that_its_events_may_wait() -> None:
    """The record of a log has the time that its events may wait, added to the lag of the function's heartbeats."""
    lags = {}
    for flush_s in (1, 3):
        world = World({"a": "tolerates"}, store="log", flush_s=flush_s)
        world.join("tolerates:a")
        world.start("r1")
        world.run(5_000)
        lags[flush_s] = typed_values.read_int(world.record("tolerates:a")["live"]["M"], "lag_ms")
    assert lags == {1: 4 * EVERY_MS + 1_000, 3: 4 * EVERY_MS + 3_000}

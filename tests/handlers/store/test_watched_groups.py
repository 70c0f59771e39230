"""The watch checks streams that share functions by their groups: it misses none and reads little."""

from typing import Any

import pytest

from handlers.group.group_lease import GroupHeartbeat
from handlers.store import control_record, typed_values
from handlers.store.group_store import group_lease, heartbeat_name, heartbeat_value
from handlers.store.leases import Leases
from handlers.watching.lease_rounds import Rounds, Turn
from tests.handlers.aws import CONTROL, CountingClient, Memory
from tests.handlers.store.test_leases import NOW_MS, PART, fill, lease, small_parts

__all__ = ["small_parts"]
ARN, LIMIT_MS = "arn:of the group", NOW_MS + 600_000


def group(group_id: str, *heartbeats: GroupHeartbeat) -> dict[str, Any]:
    """Return the lease of a group with the heartbeats of r1, r2 …"""
    item = lease(group_id, held=True, execution={"S": f"{ARN} {group_id}"})
    named = {heartbeat_name(f"r{number}", is_ended=one.is_ended): one for number, one in enumerate(heartbeats, 1)}
    return item | {name: heartbeat_value(one) for name, one in named.items()}


def member(stream_id: str, group_id: str, *, released: int = 0, by: str = "r1") -> dict[str, Any]:
    """Return the record of a stream that connection 3 keeps, or that it released 20 s ago."""
    live = {"fence": {"N": "3"}, "seen_ms": {"N": str(NOW_MS - 20_000)}}
    counters = {"fence": {"N": "3"}, "connected": {"N": "3"}, "released": {"N": str(released)}}
    return lease(
        stream_id,
        held=True,
        execution={"S": f"{ARN} {group_id}"},
        group={"S": group_id},
        expires_at_ms=typed_values.number_value(LIMIT_MS),
        marked=control_record.mark_value(3, by),
        live={"M": live},
        **counters,
    )


def heartbeat(token: int, **more: Any) -> GroupHeartbeat:
    """Return a heartbeat of a moment ago."""
    return GroupHeartbeat(token, NOW_MS - 1_000, NOW_MS + 19_000, 7, **more)


def test_the_watch_reads_one_lease_of_a_healthy_group(memory: Memory) -> None:
    """For a healthy group one lease is read and no stream's record; a single stream is read as before."""
    alone = lease("alone", held=True, expires_at_ms={"N": str(NOW_MS + 1)})
    fill(memory, [group("#1", heartbeat(1)), alone, *(member(f"demo:{number}", "#1") for number in range(150))])
    client = CountingClient(memory.dynamodb)
    seen = Rounds(Leases(client, CONTROL), 1, Turn(9)).check(NOW_MS, lambda: False)
    assert (seen.is_whole, seen.wanted, seen.missing, seen.away_ms, seen.damage) == (True, 151, 0, {}, {})
    assert client.requests == ["query", "batch_get_item", "batch_get_item"]


def test_the_watch_finds_the_stream_that_is_away_in_the_records(memory: Memory) -> None:
    """If the newest function reports a stream as away, the watch finds it and its time; the group is no suspect."""
    items = [member("demo:a", "#1"), member("demo:b", "#1", released=3), member("demo:c", "#1", by="r2")]
    fill(
        memory,
        [group("#1", heartbeat(1), heartbeat(2, away=1)), group("#2", heartbeat(1)), *items, member("demo:d", "#2")],
    )
    turn = Turn(9)
    seen = Rounds(Leases(memory.dynamodb, CONTROL), 1, turn).check(NOW_MS, lambda: False)
    assert (seen.wanted, seen.missing, seen.away_ms) == (4, 1, {"demo:b": 20_000})
    assert seen.groups == {"#1": ["demo:b"]}
    assert list(turn.take()) == []


def test_the_watch_suspects_a_group_without_a_living_function(memory: Memory) -> None:
    """Without a living function all streams of a group are away since its last heartbeat ran out; none is a suspect."""
    dead = GroupHeartbeat(1, NOW_MS - 40_000, NOW_MS - 20_000, 7)
    buried = GroupHeartbeat(1, NOW_MS - 30_000, NOW_MS - 10_000, 7, is_ended=True)
    fill(memory, [group("#1", dead), group("#2", buried), member("demo:a", "#1"), member("demo:b", "#2")])
    turn = Turn(9)
    leases = Leases(memory.dynamodb, CONTROL)
    seen = Rounds(leases, 1, turn).check(NOW_MS, lambda: False)
    assert seen.away_ms == {"demo:a": 20_000, "demo:b": 30_000}
    assert seen.groups == {"#1": ["demo:a"], "#2": ["demo:b"]}
    suspects = dict(turn.take())
    assert {one: lease.execution for one, lease in suspects.items()} == {"#1": f"{ARN} #1", "#2": f"{ARN} #2"}
    assert leases.read("#1") == suspects["#1"]


@pytest.mark.usefixtures("small_parts")
def test_a_check_that_goes_on_reads_the_groups_again(memory: Memory) -> None:
    """A check that goes on reads the groups again: a group that was well a minute ago may not be now."""
    members = [member(f"demo:{number}", "#1") for number in range(PART + 1)]
    fill(memory, [group("#1", heartbeat(1)), *members])
    rounds = Rounds(Leases(memory.dynamodb, CONTROL), 1, Turn(9))
    first = rounds.check(NOW_MS, lambda: True)
    assert (first.is_whole, first.wanted) == (False, PART - 1)
    seen = rounds.check(NOW_MS + 60_000, lambda: True)
    assert (seen.is_whole, seen.wanted, seen.missing) == (True, 2, 2)


def test_a_heartbeat_counts_the_streams_that_are_away() -> None:
    """A heartbeat has the number of streams that are away, and omits it if all are connected."""
    for one, written in ((GroupHeartbeat(1, 2, 3, 4), "1/2/3/4"), (GroupHeartbeat(1, 2, 3, 4, away=5), "1/2/3/4/5")):
        assert heartbeat_value(one) == {"S": written}
        assert group_lease({heartbeat_name("r"): heartbeat_value(one)}).heartbeats == {"r": one}

"""Each way in which an upstream takes a second connection, through the whole local service on real sockets."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness import Service
from tests.local.support import until
from tests.local_run import LocalRun

# The policy of each profile, and how many connections the upstream may see at once: the older one of `demo` is ended a
# moment after the newer was answered, `demo-ndjson` has both for `overlap_s`, `demo-exclusive` never has two.
STREAMS = {"evicts": "demo:policy", "tolerates": "demo-ndjson:policy", "forbids": "demo-exclusive:policy"}
MOST_AT_ONCE = {"evicts": 2, "tolerates": 2, "forbids": 1}
HANDOVERS = 2
# Both lanes of this one stay connected.
STANDBY, STANDBY_AT = "demo-standby:policy", "demo-ndjson:demo-standby:policy"


@dataclass(frozen=True)
class Kept:
    """One stream, when every stream had been handed over twice."""

    connections: list[dict[str, Any]]
    numbers: list[int]
    most_at_once: int


def taken_over(service: Service, stream_id: str) -> int:
    return sum(record.get("ended_by") == "taken_over" for record in service.connections(stream_id))


def closed(service: Service, stream_id: str) -> list[dict[str, Any]]:
    return [record for record in service.connections(stream_id) if "closed_ms" in record]


def numbers_of(service: Service, stream_id: str) -> list[int]:
    return sorted(json.loads(item["data"])["n"] for item in service.items("events", stream_id))


def is_explained(service: Service, stream_id: str) -> bool:
    """Whether every end is the handover's: one that the upstream evicts asks the lease for a moment why it ended."""
    return {record["ended_by"] for record in closed(service, stream_id)} == {"taken_over"}


@dataclass(frozen=True)
class Standby:
    """The stream with two lanes: its events, and how many connections the upstream saw at each change."""

    numbers: list[int]
    counts: set[int]


@pytest.fixture(scope="module")
def story(local_run: LocalRun) -> tuple[dict[str, Kept], Standby]:
    """Three streams of one service, one of each policy, each handed over twice in each direction or more.

    And one with a hot standby, of which one connection is dropped.
    """
    service, counts = local_run, dict[str, list[int]]()
    service.watch(lambda stream_id, count: counts.setdefault(stream_id, []).append(count))
    presence = service.demo.presence
    for stream_id in (STANDBY, *STREAMS.values()):
        service.post(stream_id)
    assert until(lambda: len(presence.clients(STANDBY_AT)) == 2, 20), service.log
    assert service.demo.drop(STANDBY_AT)
    for stream_id in STREAMS.values():
        assert until(lambda of=stream_id: taken_over(service, of) >= HANDOVERS, 40), service.log  # type: ignore[misc]
        until(lambda of=stream_id: is_explained(service, of), 3)  # type: ignore[misc]
    assert until(lambda: len(closed(service, STANDBY)) >= 3, 30), service.log
    standby = Standby(numbers_of(service, STANDBY), set(counts[STANDBY_AT]))
    streams = {
        policy: Kept(service.connections(stream_id), numbers_of(service, stream_id), presence.most(stream_id))
        for policy, stream_id in STREAMS.items()
    }
    return streams, standby


@pytest.fixture(scope="module")
def kept(story: tuple[dict[str, Kept], Standby]) -> dict[str, Kept]:
    """The three streams."""
    return story[0]


@pytest.mark.parametrize("policy", STREAMS)
def test_events_are_stored_once_each_without_a_hole(kept: dict[str, Kept], policy: str) -> None:
    """Across two handovers every number from the first stored to the last is there, exactly once."""
    numbers = kept[policy].numbers
    assert len(numbers) > 50
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.parametrize("policy", STREAMS)
def test_the_upstream_saw_as_many_connections_as_it_allows(kept: dict[str, Kept], policy: str) -> None:
    """The upstream's own count of connections at once: two while it hands over, one where it forbids a second."""
    assert kept[policy].most_at_once == MOST_AT_ONCE[policy]


@pytest.mark.parametrize("policy", STREAMS)
def test_every_connection_ended_by_the_handover(kept: dict[str, Kept], policy: str) -> None:
    """The lanes take turns, and no connection was refused, dropped or run out."""
    closed = [record for record in kept[policy].connections if "closed_ms" in record]
    assert {record["ended_by"] for record in closed} == {"taken_over"}
    assert [record["lane"] for record in closed[:HANDOVERS]] == ["B", "A"]
    assert {record["ended_by"] for record in kept[policy].connections} <= {"taken_over", ""}


def test_a_hot_standby_leaves_no_gap_when_one_connection_drops(story: tuple[dict[str, Kept], Standby]) -> None:
    """Both lanes stay connected: through a drop and two function limits the upstream never sees fewer than one."""
    standby = story[1]
    assert standby.numbers == list(range(standby.numbers[0], standby.numbers[0] + len(standby.numbers)))
    assert standby.counts == {1, 2}

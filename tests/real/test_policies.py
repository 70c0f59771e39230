"""Each way in which an upstream takes a second connection, through the whole local service on real sockets."""

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


def taken_over(service: Service, stream_id: str) -> int:
    return sum(record.get("ended_by") == "taken_over" for record in service.connections(stream_id))


def closed(service: Service, stream_id: str) -> list[dict[str, Any]]:
    return [record for record in service.connections(stream_id) if "closed_ms" in record]


def is_explained(service: Service, stream_id: str) -> bool:
    """Whether every end is the handover's: one that the upstream evicts asks the lease for a moment why it ended."""
    return {record["ended_by"] for record in closed(service, stream_id)} == {"taken_over"}


@pytest.mark.long
def test_streams_of_each_policy_are_handed_over(local_run: LocalRun) -> None:
    """Three streams of one service, one of each policy, are handed over at least twice in each direction. One
    connection of a stream with a hot standby is dropped: through that and two function limits the upstream never sees
    fewer than one connection.
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
    is_whole(service.numbers(STANDBY))
    assert set(counts[STANDBY_AT]) == {1, 2}
    for policy, stream_id in STREAMS.items():
        numbers = service.numbers(stream_id)
        is_whole(numbers)
        assert len(numbers) > 50
        # The upstream's own count of connections at once: two while it hands over, one where it forbids a second.
        assert (policy, presence.most(stream_id)) == (policy, MOST_AT_ONCE[policy])
        # The lanes take turns, and no connection was refused, dropped or run out.
        assert {record["ended_by"] for record in service.connections(stream_id)} <= {"taken_over", ""}
        assert [record["lane"] for record in closed(service, stream_id)[:HANDOVERS]] == ["B", "A"]


def is_whole(numbers: list[int]) -> None:
    """Every number from the first stored to the last is there, exactly once."""
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))

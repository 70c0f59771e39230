"""Replays of two lanes that both stay connected."""

import itertools

from local.history.timeline import Timeline
from tests.timelines.test_replay import SELDOM, run_table, short

HOT = {"policy": "tolerates", "standby": "hot"}


def test_a_hot_standby_bridges_a_drop() -> None:
    """Both lanes are connected, so one connection covers the end of the other; the price is the overlap."""
    result = run_table(short("tolerates", SELDOM, run_for_s=400, latencies_ms={"connect": [100]}, upstream=HOT))
    assert (result.gaps, result.status) == ([], "RUNNING")
    assert result.overlap_ms > 330_000


def test_a_renewal_of_a_hot_standby_never_opens_a_third() -> None:
    """Both lanes are connected and one comes to its renewal: the successor's connection takes its place."""
    result = run_table(short("tolerates", upstream=HOT))
    assert (result.gaps, result.status, len(result.runs) >= 4) == ([], "RUNNING", True)
    assert Timeline(result.connections, result.gaps, result.until_ms, 0, 0, 0).most_connections == 2


def test_lanes_that_began_together_get_apart() -> None:
    """A reset of both puts them in step. Within a life they are apart, and no handover leaves a gap."""
    drop_ms, life_ms = 200_000, 85_000
    settings = {"function_timeout_s": 90, "wait_s": 75, "margin_s": 5}
    latencies = {"start": 100, "wait_to_task": 60, "connect": 300}
    upstream = HOT | {"drops": [{"at_ms": drop_ms}]}
    result = run_table(
        short("tolerates", SELDOM, settings=settings, run_for_s=450, latencies_ms=latencies, upstream=upstream)
    )
    assert [(gap.from_ms, gap.cause) for gap in result.gaps] == [(drop_ms, "reset")]
    begun = sorted(c.from_ms for c in result.connections)
    apart = [later - earlier for earlier, later in itertools.pairwise(begun)]
    first = next(number for number, at_ms in enumerate(begun) if at_ms > drop_ms)
    assert apart[first] < 2_000
    assert min([*apart[2 : first - 1], *apart[first + 1 :]]) > life_ms // 3

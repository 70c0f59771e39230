"""Replays of two lanes: of a hot standby, and of functions that die if the upstream forbids two connections."""

import itertools
from typing import Any

import pytest

from local.history.timeline import Timeline
from tests.timelines.test_replay import SELDOM, run_table, short

HOT = {"policy": "tolerates", "standby": "hot"}


def test_a_hot_standby_bridges_a_drop() -> None:
    """Both lanes are connected, so one connection covers the end of the other; the price is the overlap."""
    result = run_table(short("tolerates", SELDOM, run_for_s=400, latencies_ms={"connect": [100]}, upstream=HOT))
    assert (result.gaps, result.status) == ([], "RUNNING")
    assert result.overlap_ms > 330_000


def test_a_renewal_of_a_hot_standby_opens_no_third_connection() -> None:
    """Both lanes are connected, and at the renewal of one the successor's connection takes its place."""
    result = run_table(short("tolerates", upstream=HOT))
    assert (result.gaps, result.status, len(result.runs) >= 4) == ([], "RUNNING", True)
    assert Timeline(result.connections, result.gaps, result.until_ms, 0, 0, 0).most_connections == 2


def test_lanes_that_began_together_get_apart() -> None:
    """A reset of both connections puts the lanes in step. Within a life they are apart, and no handover has a gap."""
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


# From the machine's Wait of no seconds to the function's first request, a cold start; then until the answer.
START_MS, CONNECT_MS = 1_100, 300


def scenario(kill_ms: int) -> dict[str, Any]:
    """Returns a scenario of the stage `prod`, whose lease lasts 20 s; functions start cold."""
    settings = {"function_timeout_s": 900, "wait_s": 840, "margin_s": 20, "lease_every_s": 2, "progress_every_s": 5}
    latencies = {"start": 100, "wait_to_task": START_MS, "connect": CONNECT_MS}
    kills = [{"at_ms": kill_ms}]
    return short("forbids", SELDOM, settings=settings, run_for_s=1_000, latencies_ms=latencies, kills=kills)


@pytest.mark.parametrize("kill_ms", [2_500, 5_000, 61_234, 400_000, 830_000])
def test_a_killed_function_is_replaced_without_waiting_for_its_lease(kill_ms: int) -> None:
    """The next request goes out when the lane's new function has started, although the lease has not expired."""
    result = run_table(scenario(kill_ms))
    (gap,) = [gap for gap in result.gaps if gap.from_ms == kill_ms]
    assert (gap.cause, gap.to_ms - gap.from_ms) == ("killed", START_MS + CONNECT_MS)


# A lane waits for 50 s. Lane B connects first, at 100 ms, so lane A's function starts at 51.2 s and waits for its turn.
LIMIT_S, WAIT_S = 60, 50


@pytest.mark.parametrize("freeze_ms", [46_500, 48_000, 50_000, 51_199])
def test_a_frozen_function_is_replaced_once_it_reaches_its_limit(freeze_ms: int) -> None:
    """The gap counts from the limit, when the function is over; before that, its open socket forbids another.

    Its lease outlasts the limit, so the other lane, which started meanwhile, may not open; that costs no time.
    """
    table = scenario(0) | {"kills": [], "freezes": [{"at_ms": freeze_ms}], "run_for_s": 65}
    table["settings"] |= {"function_timeout_s": LIMIT_S, "wait_s": WAIT_S, "margin_s": 5}
    over_ms = 100 + LIMIT_S * 1000
    gaps = [(gap.cause, gap.from_ms, gap.to_ms) for gap in run_table(table).gaps]
    assert gaps == [("killed", over_ms, over_ms + START_MS + CONNECT_MS)]

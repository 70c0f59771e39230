"""Replays of functions that are killed, or stand still until their limit, if two connections are forbidden."""

from typing import Any

import pytest

from tests.timelines.test_replay import SELDOM, run_table, short

# From the machine's Wait of no seconds to the function's first request, a cold start; then until the answer.
START_MS, CONNECT_MS = 1_100, 300


def scenario(kill_ms: int) -> dict[str, Any]:
    """Returns a scenario of the stage `prod`, whose lease lasts 20 s; functions start cold."""
    settings = {"function_timeout_s": 900, "wait_s": 840, "margin_s": 20, "lease_every_s": 2, "progress_every_s": 5}
    latencies = {"start": 100, "wait_to_task": START_MS, "connect": CONNECT_MS}
    kills = [{"at_ms": kill_ms}]
    return short("forbids", SELDOM, settings=settings, run_for_s=1_000, latencies_ms=latencies, kills=kills)


@pytest.mark.parametrize("kill_ms", [2_500, 5_000, 61_234, 400_000, 830_000])
def test_who_was_killed_is_followed_as_soon_as_a_function_starts(kill_ms: int) -> None:
    """Nobody waits for the lease to expire: the next request goes out when its lane's function has started."""
    result = run_table(scenario(kill_ms))
    (gap,) = [gap for gap in result.gaps if gap.from_ms == kill_ms]
    assert (gap.cause, gap.to_ms - gap.from_ms) == ("killed", START_MS + CONNECT_MS)


# A lane waits for 50 s. Lane B connects first, at 100 ms, so lane A's function starts at 51.2 s and waits for its turn.
LIMIT_S, WAIT_S = 60, 50


@pytest.mark.parametrize("freeze_ms", [46_500, 48_000, 50_000, 51_199])
def test_who_reached_its_limit_is_followed_as_soon_as_a_function_starts(freeze_ms: int) -> None:
    """The gap counts from the limit, when the function is over; before that, its open socket forbids another.

    Its lease outlasts the limit, so the other lane, which came meanwhile, may not open; that costs no time.
    """
    table = scenario(0) | {"kills": [], "freezes": [{"at_ms": freeze_ms}], "run_for_s": 65}
    table["settings"] |= {"function_timeout_s": LIMIT_S, "wait_s": WAIT_S, "margin_s": 5}
    over_ms = 100 + LIMIT_S * 1000
    gaps = [(gap.cause, gap.from_ms, gap.to_ms) for gap in run_table(table).gaps]
    assert gaps == [("killed", over_ms, over_ms + START_MS + CONNECT_MS)]

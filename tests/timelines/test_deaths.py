"""Replays of functions that are killed at an upstream that forbids two connections."""

from pathlib import Path
from typing import Any

import pytest

from tests.timelines.test_replay import run_table

# From the machine's Wait of no seconds to the function's first request: a cold start.
START_MS, CONNECT_MS = 1_100, 300


def scenario(kill_ms: int) -> dict[str, Any]:
    """The stage `prod`, whose lease lasts 20 s; a function starts cold."""
    return {
        "machine": "statemachines/connections.asl.yml",
        "settings": {
            "function_timeout_s": 900,
            "wait_s": 840,
            "margin_s": 20,
            "lease_every_s": 2,
            "progress_every_s": 5,
        },
        "run_for_s": 1_000,
        "latencies_ms": {"start": 100, "wait_to_task": START_MS, "connect": CONNECT_MS},
        "upstream": {"policy": "forbids"},
        "kills": [{"at_ms": kill_ms}],
    }


@pytest.mark.parametrize("kill_ms", [2_500, 5_000, 61_234, 400_000, 830_000])
def test_who_was_killed_is_followed_as_soon_as_a_function_starts(tmp_path: Path, kill_ms: int) -> None:
    """Nobody waits for the lease to end: the next request goes out when its lane's function has started."""
    result = run_table(tmp_path, scenario(kill_ms))
    (gap,) = [gap for gap in result.gaps if gap.from_ms == kill_ms]
    assert (gap.cause, gap.to_ms - gap.from_ms) == ("killed", START_MS + CONNECT_MS)

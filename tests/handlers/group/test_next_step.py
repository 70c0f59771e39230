"""What follows the end of a stream's connection in a group, as the machine decides for a single stream."""

from typing import Any

import pytest
import yaml

from handlers.connection import ends
from handlers.connection.effects import Outcome
from handlers.group.next_step import BROKEN, Delays, NextStep, next_step, rest_bounds_s
from local import stages
from local.checkout import ROOT

SETTINGS: dict[str, Any] = stages.load("prod")
DELAYS = Delays(
    **{
        name: float(SETTINGS[name])
        for name in ("retry_max_delay_s", "throttle_delay_s", "throttle_max_delay_s", "cool_down_s", "jitter_s")
    }
)


def retriers() -> dict[str, dict[str, Any]]:
    """Return the Retriers of the Task that keeps a stream connected, by error name, with settings filled in."""
    text = (ROOT / "statemachines" / "connections.asl.yml").read_text(encoding="utf-8")
    machine = stages.resolve(yaml.safe_load(text), SETTINGS, stages.names("prod"))
    lane = machine["States"]["Lanes"]["Branches"][0]["States"]["Connect A"]
    return {name: one for one in lane["Retry"] for name in one["ErrorEquals"]}


@pytest.mark.parametrize("error", ["StreamDropped", "StoreUnavailable", "StreamThrottled"])
def test_the_rests_are_those_of_the_machine(error: str) -> None:
    """They are at most as long and as many, then a rest of the lane, and again from the first."""
    retrier = retriers()[error]
    tries, factor = retrier["MaxAttempts"], retrier.get("BackoffRate", 2.0)
    longest = [min(retrier.get("IntervalSeconds", 1) * factor**n, retrier["MaxDelaySeconds"]) for n in range(tries)]
    assert [rest_bounds_s(error, n + 1, DELAYS) for n in range(tries)] == [(0.0, most) for most in longest]
    least, most = rest_bounds_s(error, tries + 1, DELAYS)
    assert most - least == SETTINGS["jitter_s"]
    assert least == SETTINGS["throttle_max_delay_s" if error == "StreamThrottled" else "cool_down_s"]
    assert rest_bounds_s(error, tries + 2, DELAYS) == rest_bounds_s(error, 1, DELAYS)


def test_a_defect_rests_as_long_as_a_lane() -> None:
    """The machine does not retry an error that it does not know."""
    assert rest_bounds_s(BROKEN, 1, DELAYS) == rest_bounds_s(BROKEN, 2, DELAYS) == (20.0, 30.0)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (ends.STOPPED, NextStep.OVER),
        (ends.ENDED, NextStep.OVER),
        (Outcome("StreamRejected", "", ""), NextStep.OVER),
        (Outcome("InvalidRequest", "", ""), NextStep.OVER),
        (ends.SUPERSEDED, NextStep.RELIEVED),
        (Outcome("StreamTakenOver", "", ""), NextStep.RELIEVED),
        (ends.EXPIRED, NextStep.EXPIRED),
        (ends.LET_GO, NextStep.AGAIN),
        (ends.NOT_DRAINED, NextStep.AGAIN),
        (Outcome("StreamThrottled", "", ""), NextStep.AGAIN),
        (Outcome(BROKEN, "", ""), NextStep.AGAIN),
    ],
)
def test_each_end_has_its_next_step(outcome: Outcome, expected: NextStep) -> None:
    """No end of a stream's connection is an end of the function."""
    assert next_step(outcome, is_hot=False) is expected

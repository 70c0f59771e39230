"""Scenario files: what is accepted, and one clear sentence for each mistake."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from local.simulation.scenario import read
from local.terminal import UserError

GOOD: dict[str, Any] = {"machine": "statemachines/staggered.asl.yml", "run_for_s": 10}


def write(folder: Path, table: Any) -> Path:
    path = folder / "scenario.yml"
    path.write_text(table if isinstance(table, str) else yaml.safe_dump(table))
    return path


def test_a_missing_field_of_a_scenario_has_its_default(tmp_path: Path) -> None:
    """A machine and a duration are enough; a latency may be a number or a list, and is 0 by default."""
    scenario = read(write(tmp_path, {**GOOD, "latencies_ms": {"start": 25, "connect": [0, 900]}}), "local")
    assert scenario.run_for_ms == 10_000
    assert scenario.latencies_ms == {"start": (25,), "wait_overshoot": (0,), "wait_to_task": (0,), "connect": (0, 900)}
    assert (scenario.upstream.policy, scenario.upstream.events_every_ms) == ("tolerates", 1000)
    assert scenario.settings["wait_s"] == 35


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"machine": None}, "machine is missing: it must be the path of a state machine"),
        ({"machine": "nowhere.yml"}, "machine must be the path of a file: there is no nowhere.yml"),
        ({"machine": "x" * 300}, "machine must be the path of a file: there is no xxx"),
        ({"run_for_s": None}, "run_for_s is missing"),
        ({"run_for_s": -1}, "run_for_s must be a number of seconds from 0.001"),
        ({"run_for_s": True}, "run_for_s must be a number of seconds"),
        ({"settings": {"wait_s": 45}}, "settings: wait_s + margin_s + lease_every_s must be less than"),
        ({"settings": {"waits": 1}}, "settings: there is no setting waits"),
        ({"settings": [1]}, "settings must be a mapping"),
        ({"settings": {1: 2}}, "a key must be a string, not 1"),
        ({"latencies_ms": {"start": -1}}, "latencies_ms.start must be whole milliseconds of at least 0"),
        ({"latencies_ms": {"connect": []}}, "latencies_ms.connect must be whole milliseconds"),
        ({"latencies_ms": {"conect": 1}}, "latencies_ms.conect is not a field of latencies_ms; did you mean connect?"),
        ({"upstream": {"policy": "allows"}}, "upstream.policy must be one of evicts, tolerates, forbids."),
        ({"upstream": {"events_every_ms": 0}}, "upstream.events_every_ms must be a whole number from 1"),
        ({"upstream": {"drops": [{"at": 1}]}}, "upstream.drops[0].at_ms is missing"),
        ({"upstream": {"stalls": [{"from_ms": 5, "to_ms": 5}]}}, "stalls[0].to_ms must be later than from_ms (5)"),
        (
            {"upstream": {"refusals": [{"from_ms": 0, "to_ms": 5, "status": 99}]}},
            "upstream.refusals[0].status must be a whole number from 204 to 599",
        ),
        ({"upstream": {"ends_at_ms": "soon"}}, "upstream.ends_at_ms must be a whole number from 0"),
        ({"redeployments": [{"at_ms": 5}]}, "redeployments[0].machine is missing: it must be the path of a state"),
        ({"redeployments": [{"machine": "nowhere.yml", "at_ms": 5}]}, "redeployments[0].machine must be the path"),
        ({"nonsense": 1}, "nonsense is not a field of a scenario"),
    ],
)
def test_each_mistake_is_named(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    """The answer has the file, the field and what would be right, in one line."""
    table = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(UserError) as raised:
        read(write(tmp_path, table), "local")
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", ["- 1", "a: [", "\x00", "run_for_s: 2026-13-45"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, content: str) -> None:
    """A list, a broken file, a binary file and one with a day that no month has are refused like any other mistake."""
    with pytest.raises(UserError, match=r"scenario\.yml[ :]"):
        read(write(tmp_path, content), "local")
    with pytest.raises(UserError, match="cannot be read"):
        read(tmp_path / "absent.yml", "local")

"""Assertions about a replay, in the lines that README and docs/timeline.md show."""

import json
import re
from pathlib import Path

import pytest

from local.history.timeline import Timeline, timeline_of
from states_language.testing import RunMachine
from tests.local.support import PROJECT
from timeline.coverage import Connection, Gap


def shown(page: str) -> str:
    """Returns the page's test in Python."""
    text = (PROJECT / page).read_text(encoding="utf-8")
    (found,) = [one for one in re.findall(r"(?ms)^```python\n(.*?)^```", text) if "timeline_of" in one]
    return str(found)


def test_readme_asserts_on_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """README's test, five lines, passes as it is printed there."""
    monkeypatch.chdir(PROJECT)
    names: dict[str, object] = {}
    exec(shown("README.md"), names)
    names["test_a_day_has_no_gap"]()  # type: ignore[operator]
    assert len(shown("README.md").partition("def ")[2].splitlines()) == 5


def test_the_page_asserts_on_a_run_of_the_plugin(run_machine: RunMachine) -> None:
    """The test of docs/timeline.md passes with the fixture of the interpreter's plugin."""
    names: dict[str, object] = {}
    exec(shown("docs/timeline.md"), names)
    names["test_a_retried_task_costs_little_and_leaves_a_gap"](run_machine)  # type: ignore[operator]


def test_a_failed_assertion_says_what_was_found() -> None:
    """The message has the number of gaps and their times, the number of connections, or the cost and its parts."""
    times = (("A", 0, 5_000), ("B", 4_000, 6_000), ("A", 5_000, 7_000))
    ends = [Connection(*time, "x") for time in times]
    timeline = Timeline(ends, [Gap(7_000 + at, 7_500 + at, "x") for at in range(7)], 9_000, 1_000, 10_000, 3)
    assert timeline.most_connections == 2
    with pytest.raises(AssertionError, match=r"^7 gaps:\n  7\.000 to 7\.500 s, after x\n(.*\n){4}  and 2 more$"):
        timeline.assert_no_gap()
    with pytest.raises(AssertionError, match=r"^2 connections at the same time, and at most 1 expected$"):
        timeline.assert_connections(at_most=1)
    said = "it cost 0.025017 US dollars, and less than 0.02 was expected: 1,000 transitions and 10.0 s in 3 calls"
    with pytest.raises(AssertionError, match=f"^{re.escape(said)}$"):
        timeline.assert_cost(below_usd=0.02)
    with pytest.raises(AssertionError, match=r"^nothing was ever connected$"):
        Timeline([], [], 9_000, 0, 0, 0).assert_no_gap()


def test_a_history_is_read_from_a_file_a_list_or_a_run(tmp_path: Path, run_machine: RunMachine) -> None:
    """A file with a history, a list of events and a run give the same result."""
    machine = {"StartAt": "Do", "States": {"Do": {"Type": "Task", "Resource": "arn:aws:lambda:eu-west-1:1:function:f"}}}
    machine["States"]["Do"]["End"] = True  # type: ignore[index]
    run = run_machine(machine, functions={"f": {}})
    (tmp_path / "history.json").write_text(json.dumps({"events": run.history}))
    assert timeline_of(tmp_path / "history.json") == timeline_of(run) == timeline_of(run.history)
    assert timeline_of(run).transitions == 1

"""AWS's published examples of Retry and Catch, run and drawn by the command."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from machines import function_raising, line, task
from states_language import load
from states_language.__main__ import main
from states_language.drawing.histories import Attempt, attempts, draw, marks

FOLDER = Path(__file__).parent / "retries"
FACTS = json.loads((Path(__file__).parents[1] / "language" / "data" / "retry-and-catch.json").read_text())
SCENARIOS = {scenario["name"].lower(): scenario for scenario in FACTS["scenarios"]}
FILES = sorted(FOLDER.glob("*.asl.yml"))


def run_command(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """Return the command's exit status and standard output."""
    answers = path.with_name(path.name.replace(".asl.", ".answers."))
    status = main(["run", str(path), "--functions", str(answers), "--virtual", *options])
    return status, capsys.readouterr().out


def read_history(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], list[Attempt]]:
    result = json.loads(run_command(path, capsys, "--json", "--history")[1])
    return result, attempts(result["history"])


def test_every_published_example_has_a_file() -> None:
    """Each published example has a file, whose first line names it."""
    titles = [path.read_text().splitlines()[0].removeprefix("# ").removesuffix(".").lower() for path in FILES]
    assert sorted(titles) == sorted(SCENARIOS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_comes_out_as_published(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The attempts, waits, end and caught error of an example are the published ones."""
    said = SCENARIOS[path.read_text().splitlines()[0].removeprefix("# ").removesuffix(".").lower()]
    result, found = read_history(path, capsys)
    waits_s = [(later.from_ms - (earlier.to_ms or 0)) / 1000 for earlier, later in itertools.pairwise(found)]
    expected = said.get("waits_s") or [1, 2][: len(found) - 1]
    assert waits_s == expected[: len(waits_s)]
    assert len(waits_s) == len(expected)
    assert len(found) == said.get("attempts", len(found))
    assert result["status"] == said.get("status", result["status"])
    assert result["error"] == said.get("error", result["error"])
    assert result["took_ms"] == said.get("ends_at_s", result["took_ms"] / 1000) * 1000
    caught = [catcher["Next"] for catcher in said.get("catch", [])]
    assert found[-1].then == (f"caught: {caught[0]}" if caught else "nobody caught it")


def test_the_timeline_has_a_line_for_each_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    """Each attempt's line has a bar, its length, its error, and the wait or the state that followed."""
    _, said = run_command(FOLDER / "two-retriers.asl.yml", capsys, "--timeline")
    lines = [line for line in said.splitlines() if line.startswith("Work #")]
    assert [re.split(r"\s{2,}", line)[-1] for line in lines] == [
        "ErrorA, tried again after 1.000 s",
        "ErrorB, tried again after 2.000 s",
        "ErrorC, tried again after 5.000 s",
        "ErrorB, tried again after 4.000 s",
        "ErrorB, caught: Z",
    ]


def test_a_running_attempt_is_drawn_to_the_end() -> None:
    """An attempt without an end is drawn as running, without error and successor."""
    running = [Attempt("Work", 1, 0, None, "", "", 0)]
    assert draw(running, 1000, 10) == [f"{'Work #1':<28} {'━' * 10} {1:>9.3f} s  running"]


def test_each_iteration_waits_for_its_own_retrier() -> None:
    """If several iterations try the same state at once, each waits by its own Retrier."""
    waits = {"Type": "Wait", "SecondsPath": "$", "Next": "Do"}
    tried = task(Retry=[{"ErrorEquals": ["X"], "IntervalSeconds": 4}])
    each = {"Type": "Map", "ItemProcessor": line(("Wait", waits), ("Do", tried))}
    history = load(line(("Each", each))).execute([1, 2], functions={"work": function_raising("X", "X")}).history
    found = [(attempt.number, attempt.rest_ms, attempt.from_ms) for attempt in attempts(history)]
    assert found == [(1, 1000, 1000), (1, 2000, 2000), (2, 1000, 5000), (2, 2000, 6000)]


def test_a_redriven_attempt_counts_and_no_state_is_marked_as_failed() -> None:
    """The redriven attempt follows the state's entry, and the graph marks no state as the failed one."""
    kinds = ("TaskStateEntered", "TaskScheduled", "TaskFailed", "ExecutionFailed", "ExecutionRedriven")
    history: Any = [
        {"id": number, "previousEventId": before, "type": kind, "timestamp": number}
        for number, (kind, before) in enumerate([*zip(kinds, range(5), strict=True), ("TaskScheduled", 1)], 1)
    ]
    history[0]["stateEnteredEventDetails"] = {"name": "Do"}
    assert [(one.number, one.from_ms, one.then) for one in attempts(history)] == [
        (1, 1, "nobody caught it"),
        (2, 5, ""),
    ]
    assert (marks(history[:4]).failed, marks(history).failed) == ("Do", None)

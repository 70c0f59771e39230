"""The benchmark runs for a short time: it measures both machines, and its figures keep the promise."""

import json

import pytest

from bench.handover import main
from bench.streams import STREAMS

pytestmark = pytest.mark.long


def test_both_machines_are_measured_in_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each stream; no event is lost, and each is handed over and dropped. How long that takes is a goal's."""
    assert main(["--json", "--seconds", "12"]) == 0
    report = json.loads(capsys.readouterr().out)
    rows = report["rows"]
    assert [(row["machine"], row["policy"]) for row in rows] == [(row.machine, row.policy) for row in STREAMS]
    for row in rows:
        assert (row["lost"], row["stored"] > 0, row["duplicates"] >= 0) == (0, True, True), row
        assert all(row["gaps"][kind]["count"] for kind in ("handover", "drop")), row
    assert all(row["connect"]["count"] for row in rows)
    assert [goal["met"] for goal in report["goals"] if goal["goal"] == "no event lost"] == [True] * 5

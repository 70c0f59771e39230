"""The benchmark of deaths runs for a short time: each kind is told to the machine, and nothing is lost."""

import json

import pytest

from bench.deaths import KILLED, TIMED_OUT, main

pytestmark = pytest.mark.long


def test_each_kind_of_death_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Real processes are killed and time out; the machine hears of it by name. How long it takes is a goal's."""
    assert main(["--json", "--deaths", "4"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["policy"], row["gaps"]["count"], row["lost"]) for row in rows] == [(KILLED, 2, 0), (TIMED_OUT, 2, 0)]
    assert all(row["told"] >= 2 for row in rows)

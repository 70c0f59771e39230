"""The benchmark finds a number on a machine that holds a few streams, and judges it."""

import json

import pytest

from bench.capacity import Row, goal, held, line, main

GOOD = Row(40, 3000.0, 80, 0, 0.0, 1.1, 40.0)
LATE = Row(60, 15_001.0, 120, 0, 0.0, 1.5, 40.0)
NEVER = Row(60, None, 120, 0, 0.0, 1.5, 40.0)
GAPS = Row(60, 3000.0, 120, 2, 750.4, 1.9, 40.0)
TOO_SHORT = Row(60, 3000.0, 59, 0, 0.0, 1.5, 40.0)


@pytest.mark.parametrize("bad", [LATE, NEVER, GAPS, TOO_SHORT])
def test_a_number_holds_without_a_gap_and_in_time(bad: Row) -> None:
    """The greatest that held counts; the goal is what the service promises."""
    assert (GOOD.holds, bad.holds) == (True, False)
    assert (held([GOOD, bad]), held([bad]), held([])) == (40, 0, 0)
    assert (goal([GOOD, bad], 40).met, goal([GOOD, bad], 41).met) == (True, False)
    assert line(bad).endswith("  does not hold")
    assert line(GOOD).split() == ["40", "3000", "ms", "80", "0", "0", "ms", "1.10", "40.0", "holds"]


@pytest.mark.parametrize("options", ["--step 0", "--step -5", "--first 0", "--seconds 0", "--first 401", "--most x"])
def test_numbers_with_which_nothing_is_tried(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They are refused before anything is started: no figure, and no verdict on the machine."""
    with pytest.raises(SystemExit) as ended:
        main(options.split())
    assert ended.value.code == 2
    written = capsys.readouterr()
    assert (written.out, "error: " in written.err, "held" in written.err) == ("", True, False)


@pytest.mark.long
def test_two_streams_are_held(capsys: pytest.CaptureFixture[str]) -> None:
    """Each is handed over; every column is measured. How well is a goal's."""
    assert main(["--json", "--first", "1", "--step", "1", "--most", "2", "--seconds", "9", "--stage", "test"]) == 0
    report = json.loads(capsys.readouterr().out)
    for row in report["rows"]:
        assert row["handovers"] > 0
        assert row["cores"] > 0
        assert row["stream_mb"] > 0
    assert len(report["rows"]) == (2 if report["rows"][0]["holds"] else 1)

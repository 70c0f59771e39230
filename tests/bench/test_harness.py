"""What the benchmarks share: arguments, goals, tables and percentiles."""

import json

import pytest

from bench.harness import at_least, goal_at_most, goal_below, goal_if, parse_options, show, summary

DOC = "`python -m bench.none`: measures nothing.\n"


def test_arguments_have_the_type_of_their_default(capsys: pytest.CaptureFixture[str]) -> None:
    """An argument has its default's type, a given type, or choices; with a list as default it takes several values."""
    known = {
        "events": (3, "how many"),
        "share": (0.5, "of it"),
        "sizes": ([1, 2], "which"),
        "kind": ("a", "of what", ("a", "b")),
        "here": (False, "nowhere else"),
        "long_s": (5, "how long", at_least(2)),
    }
    asked = parse_options(["--events", "7", "--sizes", "4", "--here", "--long-s", "2.5"], DOC, **known)
    assert (asked.events, asked.share, asked.sizes, asked.kind, asked.here) == (7, 0.5, [4], "a", True)
    assert (asked.long_s, asked.json) == (2.5, False)
    for wrong in (["--kind", "c"], ["--long-s", "1"], ["--events", "x"]):
        with pytest.raises(SystemExit):
            parse_options(wrong, DOC, **known)
    assert "python -m bench.none: error: argument --kind: invalid choice: 'c'" in capsys.readouterr().err


def test_figures_are_shown_as_tables_lines_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows are a table, other figures and goals lines, or all is one JSON object; a goal may set the exit status."""
    goals = [goal_at_most("a", "in time", 5, 4.5), goal_below("a", "sooner", 5, 5), goal_if("a", "at all", True)]
    rows = [{"what": "one", "ms": 7, "gaps": summary([])}, {"what": "more", "ms": None, "gaps": summary([3.0, 1.0])}]
    figures = {"s": 1234.5, "of": {"a": 1, "b": 0.25}, "rows": rows}
    assert show(parse_options([], DOC), figures, goals) == 1
    assert capsys.readouterr().out.splitlines() == [
        "s: 1,234", "of: a 1, b 0.25", "what  ms          gaps", "one    7             0", "more   -  2: 1 / 3 / 3",
        "ok      a: in time: 4.5 ms, at most 5 ms", "missed  a: sooner: 5 ms, at most 5 ms", "ok      a: at all",
    ]  # fmt: skip
    assert show(parse_options(["--json"], DOC), figures, goals, judge=False) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["s"], [goal["met"] for goal in printed["goals"]]) == (1234.5, [True, False, True])


def test_a_percentile_is_a_time_that_was_measured() -> None:
    """By nearest rank the 198th of 200 times is the 99th percentile; of few times the greatest."""
    figures = [summary(times) for times in ([float(ms) for ms in range(200, 0, -1)], [3.0, 1.0], [])]
    assert [[*one.values()] for one in figures] == [
        [200, 100.0, 198.0, 200.0], [2, 1.0, 3.0, 3.0], [0, None, None, None],
    ]  # fmt: skip

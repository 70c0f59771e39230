"""What the benchmarks share: arguments, goals and tables, and which goals each of them is judged by."""

import importlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bench import deaths, flood, handover
from bench.gaps import DROP, HANDOVER, KILL, summary
from bench.harness import Goal, at_least, at_most, below, options, show, so, table

DOC = "`python -m bench.none`: measures nothing.\n"
BENCHES = sorted(
    path.stem for path in Path(handover.__file__).parent.glob("*.py") if "def main(argv" in path.read_text("utf-8")
)


def row(
    policy: str = "evicts",
    drops: tuple[float, ...] = (300.0, 2000.0),
    handovers: tuple[float, ...] = (0.0,),
    connects: tuple[float, ...] = (5.0, 20.0),
    lost: int = 0,
    machine: str = "connections",
) -> handover.Row:
    """A row of bench.handover; by default all is as it should be."""
    of = {HANDOVER: handovers, DROP: drops, KILL: ()}
    gaps = {kind: asdict(summary(gaps_ms)) for kind, gaps_ms in of.items()}
    return handover.Row(machine, policy, gaps, asdict(summary(connects)), 0.0, 0, 9, lost, 0, 0)


def met(one: handover.Row) -> list[bool]:
    """Return which goals of a row are met, in order."""
    return [goal.met for goal in handover.goals([one])]


def test_a_row_that_reached_everything() -> None:
    """No gap at a handover, two seconds after a drop at most, nothing lost; each is a line."""
    assert handover.goals([row()]) == [
        Goal("evicts", "no gap at a handover", 0, 0.0, True),
        Goal("evicts", "p99 after a drop", 2000, 2000.0, True),
        Goal("evicts", "no event lost", None, None, True),
    ]
    assert [goal.line for goal in handover.goals([row()])][1:] == [
        "ok      evicts: p99 after a drop: 2000 ms, at most 2000 ms",
        "ok      evicts: no event lost",
    ]


def test_each_goal_can_be_missed() -> None:
    """A millisecond over, an event lost, or nothing measured at all."""
    assert met(row(handovers=(0.0, 0.1))) == [False, True, True]
    assert met(row(drops=(2000.1,))) == [True, False, True]
    assert met(row(lost=1)) == [True, True, False]
    assert met(row(drops=())) == [True, False, True]
    missed = handover.goals([row(drops=())])[1]
    assert missed.line == "missed  evicts: p99 after a drop: nothing measured, at most 2000 ms"


def test_a_reconnection_in_place_is_measured_by_the_connect() -> None:
    """The connect of the same run and 50 ms: the median beside the median, the p99 beside the p99."""
    assert met(row("reconnects", drops=(55.0, 70.0))) == [True, True, True, True]
    assert met(row("reconnects", drops=(55.1, 55.2, 70.1))) == [True, False, False, True]
    assert met(row("reconnects", connects=())) == [True, False, False, True]


def test_what_has_no_goal() -> None:
    """A handover where two are forbidden leaves a gap; the plain machine is the peer."""
    assert [goal.goal for goal in handover.goals([row("forbids")])] == ["p99 after a drop", "no event lost"]
    assert handover.goals([row(machine="staggered", lost=9)]) == []


def test_a_death_is_followed_in_time() -> None:
    """By the next request, a hundred times at least, and nothing is lost."""
    found = [
        deaths.Row("Sandbox.Timedout", {"count": count, "p99_ms": p99_ms}, {}, [], 0, lost)
        for count, p99_ms, lost in ((100, 1500.0, 0), (100, 1500.1, 0), (99, 1.0, 0), (100, 1.0, 1))
    ]
    assert [[goal.met for goal in deaths.goals([one])] for one in found] == [
        [True, True, True], [False, True, True], [True, False, True], [True, True, False],
    ]  # fmt: skip


def test_the_others_are_stored_within_a_second() -> None:
    """Below it by their p99, and each of them; where nothing was stored both goals are missed."""
    assert [goal.met for goal in flood.goals("flood", 999.9, 0)] == [True, True]
    assert [goal.met for goal in flood.goals("flood", 1000.0, 0)] == [False, True]
    assert [goal.met for goal in flood.goals("flood", None, 99)] == [False, False]


def test_arguments_have_the_type_of_their_default(capsys: pytest.CaptureFixture[str]) -> None:
    """Or the one that is given, or must be one of the choices; several where the default is several."""
    known = {
        "events": (3, "how many"),
        "share": (0.5, "of it"),
        "sizes": ([1, 2], "which"),
        "kind": ("a", "of what", ("a", "b")),
        "here": (False, "nowhere else"),
        "long_s": (5, "how long", at_least(2)),
    }
    asked = options(["--events", "7", "--sizes", "4", "--here", "--long-s", "2.5"], DOC, **known)
    assert (asked.events, asked.share, asked.sizes, asked.kind, asked.here) == (7, 0.5, [4], "a", True)
    assert (asked.long_s, asked.json) == (2.5, False)
    for wrong in (["--kind", "c"], ["--long-s", "1"], ["--events", "x"]):
        with pytest.raises(SystemExit):
            options(wrong, DOC, **known)
    assert "python -m bench.none: error: argument --kind: invalid choice: 'c'" in capsys.readouterr().err


def test_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines and goals, or one JSON object with both; a goal that is missed is the status, where it judges."""
    goals = [at_most("a", "in time", 5, 4.5), below("a", "sooner", 5, 5), so("a", "at all", True)]
    lines = table(("what", "ms"), [("one", 7), ("another", 12)])
    assert lines == ["what     ms", "one       7", "another  12"]
    assert show(options([], DOC), {"ms": 7}, lines, goals) == 1
    assert capsys.readouterr().out.splitlines()[3:] == [
        "ok      a: in time: 4.5 ms, at most 5 ms", "missed  a: sooner: 5 ms, at most 5 ms", "ok      a: at all",
    ]  # fmt: skip
    assert show(options(["--json"], DOC), {"ms": 7}, lines, goals, judge=False) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["ms"], [goal["met"] for goal in printed["goals"]]) == (7, [True, False, True])


@pytest.mark.long
@pytest.mark.parametrize("name", BENCHES)
def test_each_benchmark_says_how_it_is_called(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By its own name, with `--json` among its options."""
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"bench.{name}").main(["--help"])
    said = capsys.readouterr().out
    assert (ended.value.code, said.startswith(f"usage: python -m bench.{name} "), "--json" in said) == (0, True, True)

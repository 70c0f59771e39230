"""The soak finds contradictions: each rule has a case that breaks it, and two minutes find three planted defects."""

import itertools

import pytest

from tests.chaos.real import soak
from tests.chaos.real.faults import FAULTS, draw_steps
from tests.chaos.real.judge import Answers, Case, judge
from tests.chaos.real.shapes import INTERVAL_MS, Journal
from tests.planted.table import rows


def told(stored: range | list[int] = range(100), word: str = "running", **more: object) -> Answers:
    """Returns the answers of the API about a stream of a hundred events, whose status was read once a second."""
    statuses = [(at_ms, at_ms + 10, word) for at_ms in range(8_000, 25_000, 1_000)]
    return Answers(**{"stored": [*stored], "statuses": statuses, **more})  # type: ignore[arg-type]


def case(stream: str, what: Answers, *connected: tuple[int, int]) -> Case:
    """Returns a stream whose hundred events were sent, and that was always connected, except for the given changes."""
    journal = Journal()
    journal.sent[stream].update({number: number * INTERVAL_MS for number in range(100)})
    journal.connected[stream].extend(connected or [(0, 1)])
    return Case(stream, what, journal)


HOLE = [*range(40), *range(60, 100)]
CASES = [
    ("nothing", case("live:a", told())),
    ("nothing", case("live:a", told(HOLE, gaps=[(10_900, 15_000)]))),
    ("lost", case("live:a", told(HOLE, gaps=[(10_901, 15_000)]))),
    ("lost", case("live:a", told(HOLE, gaps=[(9_900, 12_000)]))),
    ("lost", case("ids-evict:a", told(HOLE, gaps=[(9_900, 15_000)]))),
    ("twice", case("live:a", told([*range(100), 7]))),
    ("torn", case("live:a", told(torn=['{"n": 1, "at']))),
    ("torn", case("live:a", told(range(101)))),
    ("vanished", case("live:a", told(range(90), seen=[99]))),
    ("order", case("ids-log:a", told([1, 0, *range(2, 100)]))),
    ("status", case("live:a", told(), (0, 1), (9_000, 0))),
    ("status", case("live:a", told(word="rejected"))),
    ("status", case("live:a", told(word="reconnecting"))),
    ("gaps", case("ids-evict:a", told(gaps=[(9_900, 15_000)]), (0, 1), (9_900, 0), (15_000, 1))),
    ("nothing", case("ids-evict:a", told(range(60, 100), gaps=[(9_900, 15_000)]), (0, 1), (9_900, 0), (15_000, 1))),
    ("gaps", case("live:a", told(gaps=[(9_900, 15_000)]))),
    ("limit", case("live-forbid:a", told(), (0, 1), (9_000, 2))),
    ("nothing", case("live-forbid:a", told(), (0, 1), (9_000, 2), (9_400, 1))),
]


@pytest.mark.parametrize(("rule", "found"), CASES)
def test_each_rule_is_broken_by_its_own_case(rule: str, found: Case) -> None:
    """A case that breaks a rule breaks only that rule, and a correct case breaks none."""
    assert {sentence.split(": ")[1] for sentence in judge(found)} == {rule} - {"nothing"}


def test_a_seed_gives_the_same_faults_again() -> None:
    """A seed gives the same faults in the same order: each kind once before any comes again."""
    steps = [*itertools.islice(draw_steps(7), 2 * len(FAULTS))]
    assert steps == [*itertools.islice(draw_steps(7), 2 * len(FAULTS))]
    assert sorted(step.fault for step in steps) == sorted([*FAULTS] * 2)


@pytest.mark.long
def test_two_minutes_of_faults_contradict_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """In two minutes of faults no event is lost outside a gap, twice or torn, and no status contradicts the journal."""
    assert soak.main(["--minutes", "2"]) == 0, capsys.readouterr().out


@pytest.mark.long
def test_two_minutes_of_faults_show_planted_defects(capsys: pytest.CaptureFixture[str]) -> None:
    """The soak finds a second connection where two are forbidden, a lane that waits after a drop, an ignored stop."""
    defects = [row for row in rows() if row.real]
    assert len(defects) == 3
    assert soak.main(["--minutes", "2", "--seed", "165"], [change for row in defects for change in row.changes]) == 1
    said = capsys.readouterr().out
    for sentence in (": limit: 2 connections", "not connected again within", "after a stop was requested"):
        assert sentence in said

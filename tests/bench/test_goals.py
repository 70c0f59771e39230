"""Which goals a run is judged by."""

from dataclasses import asdict, dataclass, field
from typing import Any

from bench.gaps import DROP, HANDOVER, KILL, summary
from bench.goals import Goal, death_goals, fates_goals, goals


@dataclass(frozen=True)
class Row:
    """What a goal reads of a row; by default all is as it should be."""

    machine: str = "connections"
    policy: str = "evicts"
    drops: tuple[float, ...] = (300.0, 2000.0)
    handovers: tuple[float, ...] = (0.0,)
    connects: tuple[float, ...] = (5.0, 20.0)
    lost: int = 0
    gaps: dict[str, dict[str, Any]] = field(init=False)
    connect: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        of = {HANDOVER: self.handovers, DROP: self.drops, KILL: ()}
        object.__setattr__(self, "gaps", {kind: asdict(summary(gaps_ms)) for kind, gaps_ms in of.items()})
        object.__setattr__(self, "connect", asdict(summary(self.connects)))


def met(row: Row) -> list[bool]:
    """Return which goals of a row are met, in order."""
    return [goal.met for goal in goals([row])]


def test_a_row_that_reached_everything() -> None:
    """No gap at a handover, two seconds after a drop at most, nothing lost; each is a line."""
    assert goals([Row()]) == [
        Goal("evicts", "no gap at a handover", 0, 0.0, True),
        Goal("evicts", "p99 after a drop", 2000, 2000.0, True),
        Goal("evicts", "no event lost", None, None, True),
    ]
    assert [goal.line for goal in goals([Row()])][1:] == [
        "ok      evicts: p99 after a drop: 2000 ms, at most 2000 ms",
        "ok      evicts: no event lost",
    ]


def test_each_goal_can_be_missed() -> None:
    """A millisecond over, an event lost, or nothing measured at all."""
    assert met(Row(handovers=(0.0, 0.1))) == [False, True, True]
    assert met(Row(drops=(2000.1,))) == [True, False, True]
    assert met(Row(lost=1)) == [True, True, False]
    assert met(Row(drops=())) == [True, False, True]
    assert goals([Row(drops=())])[1].line == "missed  evicts: p99 after a drop: nothing measured, at most 2000 ms"


def test_a_reconnection_in_place_is_measured_by_the_connect() -> None:
    """The connect of the same run and 50 ms: the median beside the median, the p99 beside the p99."""
    assert met(Row(policy="reconnects", drops=(55.0, 70.0))) == [True, True, True, True]
    assert met(Row(policy="reconnects", drops=(55.1, 55.2, 70.1))) == [True, False, False, True]
    assert met(Row(policy="reconnects", connects=())) == [True, False, False, True]


def test_what_has_no_goal() -> None:
    """A handover where two are forbidden leaves a gap; the plain machine is the peer."""
    assert [goal.goal for goal in goals([Row(policy="forbids")])] == ["p99 after a drop", "no event lost"]
    assert goals([Row(machine="staggered", lost=9)]) == []


@dataclass(frozen=True)
class Death:
    """What a goal reads of one kind of death; by default all is as it should be."""

    policy: str = "Sandbox.Timedout"
    gaps: dict[str, Any] = field(default_factory=lambda: {"count": 100, "p99_ms": 1500.0})
    lost: int = 0


def test_a_death_is_followed_in_time() -> None:
    """By the next request, a hundred times at least, and nothing is lost."""
    few, slow = {"count": 99, "p99_ms": 1.0}, {"count": 100, "p99_ms": 1500.1}
    rows = (Death(), Death(gaps=slow), Death(gaps=few), Death(lost=1))
    assert [[goal.met for goal in death_goals(row)] for row in rows] == [
        [True, True, True], [False, True, True], [True, False, True], [True, True, False],
    ]  # fmt: skip


def test_the_others_are_stored_within_a_second() -> None:
    """Below it by their p99, and each of them; where nothing was stored both goals are missed."""
    assert [goal.met for goal in fates_goals("flood", 999.9, 0)] == [True, True]
    assert [goal.met for goal in fates_goals("flood", 1000.0, 0)] == [False, True]
    assert [goal.met for goal in fates_goals("flood", None, 99)] == [False, False]

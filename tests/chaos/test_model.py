"""The handover protocol, explored to the end: every interleaving within a budget of faults; and that this has teeth.

docs/proofs.md has their numbers.
"""

from functools import cache

import pytest

from tests.chaos.model import DEEP, DEFAULT, Exploration, main, report
from tests.chaos.model_defects import DEFECTS, Defect
from tests.chaos.model_search import Result, explore

EXPLORATIONS = [*DEFAULT, *(pytest.param(each, marks=pytest.mark.long) for each in DEEP if each not in DEFAULT)]
# Where the exploration of a defect is none that is made anyway, it is for the longer run.
SOUND = [
    each if (each.policy, each.budget) in DEFAULT else pytest.param(each, marks=pytest.mark.long) for each in DEFECTS
]


@cache
def _sound(policy: str, budget: tuple[tuple[str, int], ...], depth: int) -> Result:
    return explore(policy, dict(budget), depth=depth)


def sound(policy: str, budget: dict[str, int], depth: int = 0) -> Result:
    """The exploration of the protocol as it is; made once for all tests that ask for it."""
    return _sound(policy, tuple(budget.items()), depth)


@pytest.mark.parametrize("exploration", EXPLORATIONS, ids=lambda e: f"{e[0]}-{'-'.join(e[1]) or 'no faults'}")
def test_every_interleaving_keeps_the_invariants(exploration: Exploration) -> None:
    """No order of steps and faults breaks an invariant, and from every state the stream comes to rest again."""
    policy, budget = exploration
    result = sound(policy, budget)
    assert not result.violation, report(result)
    assert result.complete


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: d.what)
def test_a_deliberate_defect_is_caught(defect: Defect) -> None:
    """The exploration that finds nothing in the sound protocol names the invariant that the defect breaks."""
    assert explore(defect.policy, defect.budget, defect.rules, depth=defect.depth).violation == defect.caught_by


@pytest.mark.parametrize("defect", SOUND, ids=lambda d: d.what)
def test_without_the_defect_nothing_is_found(defect: Defect) -> None:
    """What catches a defect does not find fault with the sound protocol."""
    assert not sound(defect.policy, defect.budget, defect.depth).violation


def test_a_trace_tells_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    """By hand, a bounded exploration says that it is bounded, and exits with 0 where it finds nothing."""
    assert main(["--policy", "evicts", "--faults", "kill=1,drop", "--depth", "12"]) == 0
    assert "evicts faults kill=1,drop=1: bounded" in capsys.readouterr().out


def test_two_explorations_are_equal() -> None:
    """The states, the transitions and the trace of a violation are the same each time."""
    defect = next(defect for defect in DEFECTS if defect.what == "no watch for the connected mark")
    first, second = (explore(defect.policy, defect.budget, defect.rules) for _ in range(2))
    assert (first.states, first.transitions, first.trace) == (second.states, second.transitions, second.trace)
    assert len(first.trace) > 10

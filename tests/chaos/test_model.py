"""The handover protocol, explored to the end: every interleaving within a budget of faults; planted defects
show that it finds something (`tests/planted`). docs/proofs.md has their numbers.
"""

import pytest

from tests.chaos.model import DEEP, DEFAULT, Exploration, main, report
from tests.chaos.model_search import explore

EXPLORATIONS = [*DEFAULT, *(pytest.param(each, marks=pytest.mark.long) for each in DEEP if each not in DEFAULT)]


@pytest.mark.parametrize("exploration", EXPLORATIONS, ids=lambda e: f"{e[0]}-{'-'.join(e[1]) or 'no faults'}")
def test_every_interleaving_keeps_the_invariants(exploration: Exploration) -> None:
    """No order of steps and faults breaks an invariant, and from every state the stream comes to rest again."""
    policy, budget = exploration
    result = explore(policy, budget)
    assert not result.violation, report(result)
    assert result.complete


def test_a_trace_tells_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    """By hand, a bounded exploration says that it is bounded, and exits with 0 where it finds nothing."""
    assert main(["--policy", "evicts", "--faults", "kill=1,drop", "--depth", "12"]) == 0
    assert "evicts faults kill=1,drop=1: bounded" in capsys.readouterr().out


def test_two_explorations_are_equal() -> None:
    """The states, the transitions and the trace of a violation are the same each time."""
    first, second = (explore("evicts", {"drop": 1}, depth=24) for _ in range(2))
    assert (first.states, first.transitions, first.trace) == (second.states, second.transitions, second.trace)
    assert first.states > 400

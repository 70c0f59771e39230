"""The handover protocol, explored to the end: every interleaving within a budget of faults; planted defects
show that it finds something (`tests/planted`). docs/proofs.md has their numbers.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos import model_group, model_segments, model_steps
from tests.chaos.explorer import Model, Step, explore
from tests.chaos.model import DEEP, DEFAULT, Exploration, explored, main

EXPLORATIONS = [
    *DEFAULT,
    *(pytest.param(each, marks=pytest.mark.long) for each in DEEP if each not in DEFAULT),
]


@pytest.mark.parametrize("exploration", EXPLORATIONS, ids=lambda e: f"{e[0]}-{'-'.join(e[1]) or 'no faults'}")
def test_every_interleaving_keeps_the_invariants(exploration: Exploration) -> None:
    """No order of steps and faults breaks an invariant, and from every state the stream comes to rest again."""
    result, line = explored(*exploration)
    assert not result.violation, line
    assert result.complete


class Numbers(Model[int]):
    """States that are numbers, with these steps between them; from none of the `bare` ones may it be come back to."""

    def __init__(self, ways: set[tuple[int, int]], bare: set[int]) -> None:
        self.ways, self.bare = sorted(ways), bare

    def first(self) -> int:
        return 0

    def steps(self, world: int) -> Iterator[Step]:
        return (Step(f"to {target}", target) for source, target in self.ways if source == world)

    def key(self, world: int) -> int:
        return world

    def may_not_recur(self, world: int) -> bool:
        return world in self.bare


NUMBERS = st.integers(0, 7)


@given(st.sets(st.tuples(NUMBERS, NUMBERS), max_size=24), st.sets(NUMBERS))
def test_a_state_recurs_where_it_can_be_reached_from_itself(ways: set[tuple[int, int]], bare: set[int]) -> None:
    """The answer is the closure's, of what the first state leads to."""
    closure = set(ways)
    while more := {(a, d) for a, b in closure for c, d in ways if b == c} - closure:
        closure |= more
    recurs = any((state, state) in closure and (state == 0 or (0, state) in closure) for state in bare)
    assert explore(Numbers(ways, bare)).violation == ("covered for ever" if recurs else "")


def test_a_trace_tells_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    """By hand, a bounded exploration says that it is bounded, and exits with 0 where it finds nothing."""
    assert main(["--policy", "evicts", "--faults", "kill=1,drop", "--depth", "12"]) == 0
    assert "evicts faults kill=1,drop=1: bounded" in capsys.readouterr().out


@pytest.mark.parametrize(
    "search",
    [
        model_steps.Model("evicts", {"drop": 1}),
        model_group.Model(["evicts", "tolerates", "forbids"], {"join": 1}),
        model_segments.Search(events=2, connections=2),
    ],
    ids=["a stream", "a group", "a log"],
)
def test_two_explorations_are_equal(search: Model[Any]) -> None:
    """The states, the transitions and the trace of a violation are the same each time."""
    first, second = (explore(search, most=400) for _ in range(2))
    assert (first.states, first.transitions, first.trace) == (second.states, second.transitions, second.trace)
    assert first.states >= 400

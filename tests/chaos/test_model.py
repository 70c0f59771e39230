"""The protocols of a handover, a group and a log are explored completely: every interleaving within a budget of faults.

Planted defects show that violations are found (`tests/planted`). docs/proofs.md has the numbers.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos import model_group, model_steps
from tests.chaos.explorer import Model, Step, explore
from tests.chaos.model import DEEP, DEFAULT, main
from tests.chaos.model_segments import Search


def group(policies: str, joined: int = 1, **budget: int) -> Any:
    """Returns a model of a group whose streams have these policies, with `joined` members at first."""
    name = f"{' and '.join(policies.split())}, {joined} joined: {', '.join(f'{n} {c}' for n, c in budget.items())}"
    return pytest.param(model_group.Model(policies.split(), budget, joined), id=name)


def log(**ways: Any) -> Any:
    search = Search(**{"events": 2, "connections": 2, **ways})
    faults = f"{search.kills} kills, {search.losses} lost answers, {search.lates} late requests"
    kind = "resumes" if search.resumes else "does not resume"
    name = f"{search.events} events, {search.connections} connections, {kind}, {faults}, pages of {search.page}"
    return pytest.param(search, id=name)


SHORT = (
    *(pytest.param(model_steps.Model(*one), id=f"{one[0]}-{'-'.join(one[1])}") for one in DEFAULT),
    *(group(policy, handover=1, refuse=1) for policy in ("tolerates", "forbids")),
    group("forbids", handover=1, drop=1),
    group("forbids", kill=1),
    group("evicts forbids", handover=1),
    group("evicts tolerates forbids", join=1),
    log(),
)
LONG = (
    *(
        pytest.param(model_steps.Model(*one), id=f"{one[0]}-{'-'.join(one[1]) or 'no faults'}")
        for one in DEEP
        if one not in DEFAULT
    ),
    *(group(policy, handover=1, **{fault: 1}) for policy in ("evicts", "tolerates") for fault in ("drop", "slow")),
    *(
        group(policy, handover=1, **{fault: 1})
        for policy in ("evicts", "tolerates", "forbids")
        for fault in ("kill", "vanish", "leave", "deadline")
    ),
    group("evicts", handover=1, refuse=1),
    group("evicts forbids", 2, handover=1),
    group("tolerates forbids", handover=1, join=1),
    group("evicts evicts", join=1, leave=1),
    group("evicts evicts", 2, leave=2),
    group("evicts forbids", 2, kill=1),
    group("evicts tolerates forbids", 2, join=1),
    log(resumes=False),
    log(page=2),
    log(events=3, kills=1, losses=0, lates=1),
    log(events=3, connections=3, losses=0, lates=0),
    *(log(connections=3, resumes=resumes) for resumes in (True, False)),
    log(events=3, kills=2, losses=2, lates=2),
    log(events=3, connections=3, kills=1, losses=0, lates=1),
    log(connections=3, losses=0, at_once=3),
)
MARKED = pytest.mark.long
# More events, connections and faults than can be explored.
MANY = Search(events=9, connections=7, kills=4, losses=4, lates=4, at_once=3, page=2)


@pytest.mark.parametrize("model", [*SHORT, *(pytest.param(*one.values, id=one.id, marks=MARKED) for one in LONG)])
def test_every_interleaving_keeps_the_invariants(model: Model[Any]) -> None:
    """No order of steps and faults breaks an invariant, and from every state the stream, or the group, settles.

    A log has each event once and in order.
    """
    result = explore(model)
    assert (result.violation, result.message, result.trace, result.complete) == ("", "", [], True)


@given(st.booleans(), st.lists(st.integers(0, 10**6), min_size=60, max_size=250))
def test_drawn_runs_of_many_connections_keep_the_invariants(resumes: bool, picks: list[int]) -> None:
    """With seven connections, three at a time, nine events and twelve faults, each random step keeps the invariants."""
    search = Search(**{**MANY.__dict__, "resumes": resumes})
    world = search.first()
    for pick in picks:
        following = list(search.steps(world))
        if not following:
            return
        world = following[pick % len(following)].world


class Numbers(Model[int]):
    """States that are numbers, with these steps; free steps must not lead from a `bare` state back to it."""

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
def test_a_state_recurs_if_it_can_be_reached_from_itself(ways: set[tuple[int, int]], bare: set[int]) -> None:
    """The result equals that of the transitive closure over the reachable states."""
    closure = set(ways)
    while more := {(a, d) for a, b in closure for c, d in ways if b == c} - closure:
        closure |= more
    recurs = any((state, state) in closure and (state == 0 or (0, state) in closure) for state in bare)
    assert explore(Numbers(ways, bare)).violation == ("covered for ever" if recurs else "")


def test_a_bounded_exploration_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """A bounded exploration from the command line prints "bounded" and exits with 0 if it finds nothing."""
    assert main(["--policy", "evicts", "--faults", "kill=1,drop", "--depth", "12"]) == 0
    assert "evicts faults kill=1,drop=1: bounded" in capsys.readouterr().out


@pytest.mark.parametrize(
    "search",
    [
        model_steps.Model("evicts", {"drop": 1}),
        model_group.Model(["evicts", "tolerates", "forbids"], {"join": 1}),
        Search(events=2, connections=2),
    ],
    ids=["a stream", "a group", "a log"],
)
def test_two_explorations_are_equal(search: Model[Any]) -> None:
    """Two explorations have the same states, transitions and trace of a violation."""
    first, second = (explore(search, most=400) for _ in range(2))
    assert (first.states, first.transitions, first.trace) == (second.states, second.transitions, second.trace)
    assert first.states >= 400

"""The log's protocol, explored to the end; and longer runs, drawn.

docs/proofs.md has the numbers.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.explorer import explore
from tests.chaos.model_segments import Search

TWO, THREE = Search(events=2, connections=2), Search(events=3, connections=3, losses=0, lates=0)
SHORT = (
    TWO,
    Search(events=2, connections=2, resumes=False),
)
LONG = (
    Search(events=2, connections=2, page=2),
    Search(events=3, connections=2, kills=1, losses=0, lates=1),
    THREE,
    Search(events=2, connections=3),
    Search(events=2, connections=3, resumes=False),
    Search(events=3, connections=2, kills=2, losses=2, lates=2),
    Search(events=3, connections=3, kills=1, losses=0, lates=1),
    Search(events=2, connections=3, losses=0, at_once=3),
)
EXPLORATIONS = [*SHORT, *(pytest.param(search, marks=pytest.mark.long) for search in LONG)]
# More of everything than can be explored.
MANY = Search(events=9, connections=7, kills=4, losses=4, lates=4, at_once=3, page=2)


def described(search: Search) -> str:
    """How a test is called."""
    faults = f"{search.kills} kills, {search.losses} lost answers, {search.lates} late requests"
    kind = "resumes" if search.resumes else "does not resume"
    return f"{search.events} events, {search.connections} connections, {kind}, {faults}, pages of {search.page}"


@pytest.mark.parametrize("search", EXPLORATIONS, ids=described)
def test_every_interleaving_appends_each_event_once_and_in_order(search: Search) -> None:
    """No order of steps and faults breaks an invariant, and no state is left out."""
    result = explore(search)
    assert (result.violation, result.trace) == ("", [])
    assert result.states > 1_000


@given(st.booleans(), st.lists(st.integers(0, 10**6), min_size=60, max_size=250))
def test_drawn_runs_of_many_connections_keep_the_invariants(resumes: bool, picks: list[int]) -> None:
    """Seven connections, three at a time, nine events, twelve faults: each step that is drawn keeps what must hold."""
    search = Search(**{**MANY.__dict__, "resumes": resumes})
    world = search.first()
    for pick in picks:
        following = list(search.steps(world))
        if not following:
            return
        world = following[pick % len(following)].world

"""A group's protocol, explored to the end: its lease, its streams' records, joins and leaves; and that this has teeth.

docs/proofs.md has the numbers.
"""

from dataclasses import replace
from functools import cache

import pytest

from tests.chaos.group_defects import DEFECTS, Defect
from tests.chaos.model_group_rules import Rules
from tests.chaos.model_group_search import Result, Search, explore

SOUND = Rules()


def _search(policies: str, joined: int = 1, **budget: int) -> Search:
    return Search(tuple(policies.split()), budget, joined, SOUND)


SHORT = (
    *(_search(policy, handover=1, refuse=1) for policy in ("tolerates", "forbids")),
    _search("forbids", handover=1, drop=1),
    _search("forbids", kill=1),
    _search("evicts forbids", handover=1),
    _search("evicts tolerates forbids", join=1),
)
LONG = (
    *(_search(policy, handover=1, kill=1) for policy in ("evicts", "tolerates", "forbids")),
    *(_search(policy, handover=1, drop=1) for policy in ("evicts", "tolerates")),
    *(_search(policy, handover=1, vanish=1) for policy in ("evicts", "tolerates", "forbids")),
    *(_search(policy, handover=1, slow=1) for policy in ("evicts", "tolerates")),
    *(_search(policy, handover=1, leave=1) for policy in ("evicts", "tolerates", "forbids")),
    *(_search(policy, handover=1, deadline=1) for policy in ("evicts", "tolerates", "forbids")),
    _search("evicts", handover=1, refuse=1),
    _search("evicts forbids", 2, handover=1),
    _search("tolerates forbids", handover=1, join=1),
    _search("evicts evicts", join=1, leave=1),
    _search("evicts evicts", 2, leave=2),
    _search("evicts forbids", 2, kill=1),
    _search("evicts tolerates forbids", 2, join=1),
)
EXPLORATIONS = [*SHORT, *(pytest.param(search, marks=pytest.mark.long) for search in LONG)]
# Where the exploration of a defect is none that is made anyway, it is for the longer run.
SEARCHED = [
    each if replace(each.search, rules=SOUND) in SHORT else pytest.param(each, marks=pytest.mark.long, id=each.what)
    for each in DEFECTS
]


def described(search: Search) -> str:
    """How a test is called."""
    budget = ", ".join(f"{name} {count}" for name, count in search.budget.items())
    return f"{' and '.join(search.policies)}, {search.joined} joined: {budget}"


@cache
def _sound(policies: tuple[str, ...], joined: int, budget: tuple[tuple[str, int], ...]) -> Result:
    """The exploration of the protocol as it is; made once for all tests that ask for it."""
    return explore(Search(policies, dict(budget), joined, SOUND))


def sound(search: Search) -> Result:
    """The same for a search whose rules do not count."""
    return _sound(search.policies, search.joined, tuple(search.budget.items()))


@pytest.mark.parametrize("search", EXPLORATIONS, ids=described)
def test_every_interleaving_keeps_the_invariants(search: Search) -> None:
    """No order of steps and faults breaks an invariant, and from every state the group comes to rest again."""
    result = sound(search)
    assert (result.violation, result.message, result.trace) == ("", "", [])


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.what)
def test_a_deliberate_defect_is_caught(defect: Defect) -> None:
    """The exploration names an invariant that the defect breaks."""
    assert explore(defect.search).violation in defect.caught_by


@pytest.mark.parametrize("defect", SEARCHED, ids=lambda defect: defect.what)
def test_without_the_defect_nothing_is_found(defect: Defect) -> None:
    """What catches a defect does not find fault with the sound protocol."""
    assert sound(defect.search).violation == ""


def test_two_explorations_are_equal() -> None:
    """The states, the transitions and the trace of a violation are the same each time."""
    defect = next(defect for defect in DEFECTS if defect.what == "one stream's record is read as another's")
    first, second = (explore(replace(defect.search)) for _ in range(2))
    assert (first.states, first.transitions, first.trace) == (second.states, second.transitions, second.trace)
    assert len(first.trace) > 10

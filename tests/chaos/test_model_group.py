"""A group's protocol, explored to the end: its lease, its streams' records, joins and leaves.

docs/proofs.md has the numbers.
"""

import pytest

from tests.chaos.explorer import explore
from tests.chaos.model_group import Model


def _search(policies: str, joined: int = 1, **budget: int) -> Model:
    return Model(policies.split(), budget, joined)


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


def described(search: Model) -> str:
    """How a test is called."""
    budget = ", ".join(f"{name} {count}" for name, count in search.budget.items())
    return f"{' and '.join(search.policies.values())}, {search.joined} joined: {budget}"


@pytest.mark.parametrize("search", EXPLORATIONS, ids=described)
def test_every_interleaving_keeps_the_invariants(search: Model) -> None:
    """No order of steps and faults breaks an invariant, and from every state the group comes to rest again."""
    result = explore(search)
    assert (result.violation, result.message, result.trace) == ("", "", [])

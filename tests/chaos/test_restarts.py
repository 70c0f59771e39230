"""Schedules whose upstream is restarted, forgets what it sent, and counts its ids from 0 again, in virtual time."""

import random
from dataclasses import replace

import pytest

from local.chaos import simulate
from local.chaos.draws import generate, with_restart
from local.chaos.group_schedule import APART, generate_groups

LONG = pytest.mark.long


@pytest.mark.cpu(8)
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 400), marks=LONG)], ids=str)
def test_the_promise_holds_if_ids_start_over(seeds: range) -> None:
    """If ids start over, the ledger shows exactly the dropped and forgotten events, and the status has the reason."""
    for seed in seeds:
        result = simulate.run_schedule(with_restart(generate(seed), random.Random(seed)))
        assert (seed, result.violations) == (seed, [])


@pytest.mark.cpu(8)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 40), marks=LONG)], ids=str)
def test_the_promise_holds_in_groups_if_ids_start_over(seeds: range) -> None:
    """The promise holds in groups whose streams have upstreams that count ids from 0 again."""
    for seed in seeds:
        drawn, apart = generate_groups(seed), random.Random(seed)
        streams = tuple(with_restart(one, apart, APART) for one in drawn.group)
        assert (seed, simulate.run_schedule(replace(drawn, group=streams)).violations) == (seed, [])


def test_schedules_draw_restarts() -> None:
    """A few of the schedules, with and without groups, have restarts."""
    assert 5 < sum(generate(seed).has_restarts for seed in range(400)) < 30
    assert 5 < sum(any(one.has_restarts for one in generate_groups(seed).group) for seed in range(200)) < 30

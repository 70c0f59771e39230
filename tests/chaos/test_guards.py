"""Schedules whose upstream requires a token and a ticket: tokens expire and are revoked, servers go away or refuse."""

import random

import pytest

from handlers.store.typed_values import read_int, read_text
from local.chaos import simulate
from local.chaos.draws import GUARD_FAULTS, LIVES_S, generate, with_guard
from local.chaos.facts import ledger_rows
from local.chaos.group_schedule import generate_groups, with_guards
from local.chaos.invariants import violations
from local.chaos.simulate import run_world

LONG = pytest.mark.long


@pytest.mark.cpu(8)
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 200), marks=LONG)], ids=str)
def test_the_promise_holds_behind_a_token_server(seeds: range) -> None:
    """Nothing is lost without a gap, and each end names the server that gave no token or ticket.

    A function requests one token, and another one only if that expired or was refused.
    """
    for seed in seeds:
        world = run_world(with_guard(generate(seed), random.Random(seed)))
        assert (seed, violations(world)) == (seed, [])
        assert any(link.opened_ms is not None for link in world.upstream.links)
        tokens = sum((name, status) == ("token", 200) for _, name, status in world.guard.asked)
        tickets = sum(name == "ticket" for _, name, _ in world.guard.asked)
        revoked = sum(fault.kind == "token revoked" for fault in world.own)
        assert (seed, tokens <= tickets + revoked) == (seed, True)
        if world.schedule.token_lives_s == max(LIVES_S) and not revoked:
            assert (seed, tokens <= len(world.functions)) == (seed, True)


@pytest.mark.cpu(8)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 60), marks=LONG)], ids=str)
def test_the_promise_holds_in_groups_behind_a_token_server(seeds: range) -> None:
    """In groups the promise holds too; streams that share a function share its tokens and the server's outages."""
    for seed in seeds:
        result = simulate.run_schedule(with_guards(generate_groups(seed), random.Random(seed)))
        assert (seed, result.violations) == (seed, [])


TOKEN_AWAY, TICKET_AWAY = (
    f"the {one} server auth.invalid: nothing listens at the address" for one in ("token", "ticket")
)
TICKET_REFUSED = "the ticket server auth.invalid answered 403"


@pytest.mark.parametrize(("seed", "words"), [(16, {TOKEN_AWAY, TICKET_AWAY, TICKET_REFUSED}), (4, {TOKEN_AWAY})])
def test_the_server_that_gave_no_token_or_ticket_is_named(seed: int, words: set[str]) -> None:
    """The connection's record names the server and its answer, or says that it was away."""
    world = run_world(with_guard(generate(seed), random.Random(seed)))
    unready = {link.fence: link.unready for link in world.upstream.links if link.unready}
    details = {read_int(row, "fence"): read_text(row, "detail") for row in ledger_rows(world)}
    assert set(unready.values()) == words
    assert {link.unready for link in world.upstream.links if link.refused_with == 403} == words & {TICKET_REFUSED}
    assert unready == {fence: details[fence] for fence in unready}


def test_schedules_draw_tokens() -> None:
    """About a tenth of the schedules, with and without groups, has tokens, with all their faults."""
    kinds = {*GUARD_FAULTS, "ticket refused"}
    for drawn in ([generate(seed) for seed in range(200)], [generate_groups(seed) for seed in range(200)]):
        assert 10 < sum(one.token_lives_s > 0 for one in drawn) < 40
        assert kinds <= {fault.kind for one in drawn if one.token_lives_s for fault in one.faults}
        assert not any(fault.kind in kinds for one in drawn if not one.token_lives_s for fault in one.faults)

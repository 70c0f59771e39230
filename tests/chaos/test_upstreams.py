"""Schedules whose upstream is a WebSocket, requires a token and a ticket, or counts its ids anew, in virtual time."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from handlers.store.typed_values import read_int, read_text
from local.chaos import simulate
from local.chaos.draws import GUARD_FAULTS, LIVES_S, generate, with_guard, with_restart, with_socket
from local.chaos.facts import ledger_rows
from local.chaos.group_schedule import APART, generate_groups, with_guards
from local.chaos.invariants import violations
from local.chaos.schedule import Schedule
from local.chaos.simulate import run_world
from local.simulation.socket_peer import SocketPeer

LONG = pytest.mark.long


def of_group(with_upstream: Callable[[Schedule], Schedule], seed: int) -> Schedule:
    """Returns a group's schedule whose streams each have the upstream."""
    drawn = generate_groups(seed)
    return replace(drawn, group=tuple(map(with_upstream, drawn.group)))


def of_restarting_group(seed: int) -> Schedule:
    apart = random.Random(seed)
    return of_group(lambda one: with_restart(one, apart, APART), seed)


# An independent library reads the client's frames on a socket, and the upstream checks the requested cursor. No event
# is acknowledged before it is stored. Streams that share a function share its tokens and the server's outages.
@pytest.mark.cpu(8)
@pytest.mark.parametrize(
    ("draw", "seeds"),
    [
        pytest.param(draw, seeds, marks=marks, id=f"{name} {seeds}")
        for name, draw, few, many in (
            ("socket", lambda seed: with_socket(generate(seed)), 2, 400),
            ("sockets of a group", lambda seed: of_group(with_socket, seed), 1, 40),
            ("restart", lambda seed: with_restart(generate(seed), random.Random(seed)), 2, 400),
            ("restarts of a group", of_restarting_group, 1, 40),
            ("tokens of a group", lambda seed: with_guards(generate_groups(seed), random.Random(seed)), 1, 60),
        )
        for seeds, marks in ((range(few), ()), (range(few, many), LONG))
    ],
)
def test_the_promise_holds_at_any_upstream(draw: Callable[[int], Schedule], seeds: range) -> None:
    """Each lost event is in a recorded gap, no client breaks the protocol, and the status has the reason."""
    for seed in seeds:
        result = simulate.run_schedule(draw(seed))
        assert (seed, result.violations) == (seed, [])
        assert result.connections


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


def test_schedules_draw_each_upstream() -> None:
    """About a tenth of the schedules, with and without groups, has sockets or tokens, and a few have restarts.

    Those with tokens have all their faults, and a socket leaves the rest of a seed as it is.
    """
    alone, groups = [generate(seed) for seed in range(400)], [generate_groups(seed) for seed in range(200)]
    assert 20 < sum(one.socket for one in alone) < 80
    assert 5 < sum(any(one.socket for one in drawn.group) for drawn in groups) < 40
    assert all(replace(one, socket=False).faults == one.faults for one in alone)
    assert 5 < sum(one.has_restarts for one in alone) < 30
    assert 5 < sum(any(one.has_restarts for one in drawn.group) for drawn in groups) < 30
    kinds = {*GUARD_FAULTS, "ticket refused"}
    for some in (alone[:200], groups):
        assert 10 < sum(one.token_lives_s > 0 for one in some) < 40
        assert kinds <= {fault.kind for one in some if one.token_lives_s for fault in one.faults}
        assert not any(fault.kind in kinds for one in some if not one.token_lives_s for fault in one.faults)


def test_a_client_that_breaks_the_protocol_is_noticed() -> None:
    """The upstream notices a frame without a mask, a message after the close, and an unanswered ping."""
    with pytest.raises(AssertionError, match="breaks the protocol"):
        SocketPeer().read_messages(b"\x81\x02{}")
    peer = SocketPeer()
    assert peer.read_messages(b"\x81\x82\0\0\0\0{}") == [{}]
    assert peer.ping(0) == b"\x89\x011"
    assert (peer.unanswered_pings(20_000), peer.unanswered_pings(20_001)) == (0, 1)
    assert peer.read_messages(b"\x8a\x81\0\0\0\x001") == []
    assert peer.unanswered_pings(20_001) == 0

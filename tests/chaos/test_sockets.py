"""Schedules whose upstream is a WebSocket: subscriptions, pings, numbers with holes, and closes, in virtual time."""

from dataclasses import replace

import pytest

from local.chaos import simulate
from local.chaos.draws import generate, with_socket
from local.chaos.group_schedule import generate_groups
from local.simulation.socket_peer import SocketPeer

LONG = pytest.mark.long


@pytest.mark.cpu(8)
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 400), marks=LONG)], ids=str)
def test_the_promise_holds_over_a_socket(seeds: range) -> None:
    """Nothing is lost without a gap, each hole in the numbers is recorded, and no client breaks the protocol.

    An independent library reads the client's frames, and the upstream checks the requested cursor. No event is
    acknowledged before it is stored.
    """
    results = [simulate.run_schedule(with_socket(generate(seed))) for seed in seeds]
    assert [(result.schedule.seed, result.violations) for result in results if result.violations] == []
    assert all(result.connections for result in results)


@pytest.mark.cpu(8)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 40), marks=LONG)], ids=str)
def test_the_promise_holds_in_groups_over_sockets(seeds: range) -> None:
    """The promise holds for streams that share a function and use sockets, with items and logs among them."""
    for seed in seeds:
        drawn = generate_groups(seed)
        result = simulate.run_schedule(replace(drawn, group=tuple(map(with_socket, drawn.group))))
        assert (seed, result.violations) == (seed, [])


def test_schedules_draw_sockets() -> None:
    """About a tenth of the schedules, with and without groups, uses sockets; the rest of a seed stays the same."""
    assert 10 < sum(generate(seed).socket for seed in range(200)) < 40
    assert 5 < sum(any(one.socket for one in generate_groups(seed).group) for seed in range(200)) < 40
    for seed in range(50):
        drawn = generate(seed)
        assert replace(drawn, socket=False).faults == drawn.faults


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

"""A group's records and its functions' decisions, in one run with nearly every kind of failure.

Planted defects are caught here (`tests/planted/group.toml`).
"""

from functools import partial

from tests.handlers.group.test_group_functions import check
from tests.handlers.group.world import World


def test_a_run_with_every_failure_keeps_the_groups_rules() -> None:
    """With a late opening at a handover, a drop, an unproved kill and a leave, all events and gaps are recorded."""
    world = World({"a": "evicts", "b": "tolerates", "c": "forbids"})
    streams = [*world.upstreams]

    def is_down(is_so: bool) -> None:
        world.upstreams[streams[1]].is_down = is_so

    world.join(*streams)
    world.start("r1")
    for number in [*range(1, 27), *range(43, 100)]:
        # Each stream has its own pace, so no two cursors are equal. No stream has an event while r2 takes over, so only
        # a heartbeat shows that it has.
        world.at(700 * number, partial(world.emit, *streams[: number % 3 + 1]))
    world.at(5_000, lambda: world.upstreams[streams[1]].drop(world.upstreams[streams[1]].links[0]))
    world.at(19_000, lambda: is_down(True))
    # Between two heartbeats of r1.
    world.at(20_300, lambda: world.start("r2"))
    world.at(24_000, lambda: is_down(False))
    world.run(29_000)
    assert [world.holders(stream) for stream in streams] == [["r2"]] * 3
    world.at(30_500, lambda: world.kill("r2"))
    world.at(31_000, lambda: world.start("r3"))
    world.run(50_000)
    check(world)
    # Only the kill interrupted the first stream.
    assert world.upstreams[streams[0]].gaps == [(30_500, 31_000)]
    world.leave(streams[0])
    world.run(55_000)
    assert [world.holders(stream) for stream in streams] == [[], ["r3"], ["r3"]]

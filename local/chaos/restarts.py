"""Decides what can be known of events around a restart of the upstream, which then counts its ids from 0 again.

It reads the world after the run. Invariant: an event has an excuse only because of what a connection was sent.
"""

from collections.abc import Iterator
from itertools import groupby

from handlers.connection.epochs import IN_A_ROW
from handlers.store.control_record import to_record
from local.chaos.facts import lease, lease_ttl_ms
from local.chaos.world import World
from local.simulation.links import Link

TOO_FEW = "too few events came to see that ids had started over"
MISTAKEN = "the upstream's ids had passed the cursor when it was sent, so nobody can see that they started over"
BESIDE = "the connection before may have brought the same events with other bodies"


def former(world: World, link: Link) -> int | None:
    """Returns the event whose id the link sent as its cursor, if the upstream had started to count anew since."""
    number = None if link.sent_id is None else world.watch.ids.meant(link.sent_id, link.asked_ms)
    return number if number is not None and number < world.wire.begins[link.count] else None


def is_counted(world: World, number: int, slack_ms: int) -> bool:
    """Returns whether a connection that was sent a dropped event has recorded a loss at that time."""
    losses, at_ms = world.watch.losses, world.upstream.emitted_ms[number]
    links = ((world.link_of(loss[0]), losses[loss]) for loss in world.watch.ids.dropped)
    return any(
        link is not None and number in link.sent and from_ms - slack_ms <= at_ms <= to_ms + slack_ms
        for link, (from_ms, to_ms) in links
    )


def untrue(world: World) -> Iterator[str]:
    """Yields a sentence if losses were recorded, and the status does not say why, or does without a restart.

    It also yields one for each recorded loss of more events than its connection was sent in vain.
    """
    since_ms, ids = to_record(lease(world)).epoch.since_ms, world.watch.ids
    if (ids.dropped and not since_ms) or (since_ms and not ids.start_over):
        yield f"by the status ids started over at {since_ms}, and {len(ids.dropped)} losses say so"
    for (fence, count), events in world.watch.ids.dropped.items():
        link = world.link_of(fence)
        there = 0 if link is None else sum(map(world.watch.ids.is_dropped, link.sent))
        if events > there:
            yield f"connection {fence} recorded in loss {count} that {events} events were dropped, and {there} were"


def excuses(world: World) -> Iterator[tuple[int, str]]:
    """Yields the events of which nobody can know that they are missing."""
    counts, emitted_ms = world.watch.ids, world.upstream.emitted_ms
    for link in world.upstream.links if counts.start_over else ():
        number, opened_ms = former(world, link), link.opened_ms
        if opened_ms is None:
            continue
        if number is not None and link.cursor == world.wire.begins[link.count] + (link.sent_id or 0):
            yield from ((n, MISTAKEN) for n in range(number + 1, link.cursor + 1))
        elif number is not None and _shows_few(world, link):
            yield from ((n, TOO_FEW) for n, at_ms in enumerate(emitted_ms) if n > number and at_ms <= opened_ms)
        for is_dropped, row in groupby(link.sent, counts.is_dropped):
            if is_dropped:
                yield from _untold(world, link, list(row))


def _shows_few(world: World, link: Link) -> bool:
    """Returns whether few of its events had ids up to the cursor's: they may be late, or a kill took the record."""
    return sum(world.wire.own(n) <= (link.sent_id or 0) for n in link.sent[: link.written]) < IN_A_ROW


def _untold(world: World, link: Link, row: list[int]) -> Iterator[tuple[int, str]]:
    """Yields those of a row of dropped events that cannot be told from corrections, or from what another brought."""
    anew_ms, emitted_ms = world.watch.ids.anew_ms, world.upstream.emitted_ms
    # A connection that had claimed before another one saw it begins a row of its own.
    if len(row) < IN_A_ROW and not 0 < anew_ms < link.claimed_ms:
        yield from ((n, TOO_FEW) for n in row)
    before = [one for one in world.upstream.links if one.opened_ms is not None and one.fence < link.fence]
    if before and world.schedule.policy != "forbids":
        beside_ms = (before[-1].over_ms or world.clock.now_ms()) + 2 * lease_ttl_ms(world) + world.schedule.skew_ms
        yield from ((n, BESIDE) for n in row if emitted_ms[n] <= beside_ms)

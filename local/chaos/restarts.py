"""Decides what can be known of events around a restart of the upstream, which then counts its ids from 0 again.

It reads the world after the run. Invariant: an event has an excuse only because of the events that a connection was
sent.
"""

from collections.abc import Iterator
from itertools import groupby

from handlers.connection.epochs import IN_A_ROW
from handlers.connection.lease import LEASE_TTL_READS
from handlers.store.control_record import to_record
from local.chaos.facts import lease, ledger, noticed_ms
from local.chaos.world import World
from local.simulation.links import Link

TOO_FEW = "too few events came to see that ids had started over"
MISTAKEN = "the upstream's ids had passed the cursor when it was sent, so nobody can see that they started over"
BESIDE = "the connection before may have brought the same events with other bodies"


def former_event(world: World, link: Link) -> int | None:
    """Returns the event whose id the link sent as its cursor, if the upstream had started over since that event."""
    number = None if link.sent_id is None else world.watch.ids.event_of_cursor(link.sent_id, link.asked_ms)
    return number if number is not None and number < world.wire.begins[link.count] else None


def is_doubtful(world: World, link: Link) -> bool:
    """Returns whether a connection may be of another count than its ids show, because its new events came late."""
    sent = link.sent[: link.written]
    brought = [n for n in sent if world.watch.brought_by.get(n) == link.fence]
    return bool(brought) and all(world.wire.own_number(n) <= (link.sent_id or 0) for n in sent)


def has_restart_between(world: World, from_ms: int, to_ms: int) -> bool:
    """Returns whether ids started over then: the event after the next cursor, a former id, proves little."""
    emitted_ms = world.upstream.emitted_ms
    firsts = (at_ms for begin in world.wire.begins[1:] for at_ms in emitted_ms[begin : begin + 1])
    return any(from_ms <= at_ms <= to_ms for at_ms in firsts)


def is_counted(world: World, number: int, slack_ms: int) -> bool:
    """Returns whether a connection that was sent a dropped event, or a later one, recorded a loss of its time."""
    links = [link for link in world.upstream.links if number in link.sent[: link.written]]
    first = min((link.fence for link in links), default=0)
    came_ms = {world.upstream.emitted_ms[number], *(link.came_ms[number] for link in links if number in link.came_ms)}
    spans = [world.watch.losses[loss] for loss in world.watch.ids.dropped if 0 < first <= loss[0]]
    return any(from_ms - slack_ms <= at_ms <= to_ms + slack_ms for from_ms, to_ms in spans for at_ms in came_ms)


def false_restarts(world: World) -> Iterator[str]:
    """Yields a sentence if losses have no restart in the status, or the status has a restart that never was.

    It also yields one if losses count more events than had been sent in vain by then.
    """
    since_ms, ids = to_record(lease(world)).epoch.since_ms, world.watch.ids
    if (ids.dropped and not since_ms) or (since_ms and not ids.has_restarted):
        yield f"by the status ids started over at {since_ms}, and {len(ids.dropped)} losses say so"
    told = 0
    for (fence, count), events in sorted(ids.dropped.items()):
        told += events
        there = sum(ids.is_dropped(n) for link in world.upstream.links if link.fence <= fence for n in link.sent)
        # Both connections count a row that becomes a loss just as the next one claims.
        twice = (IN_A_ROW - 1) * len({earlier for earlier, _ in ids.dropped if earlier < fence})
        if told > there + twice:
            yield f"until loss {count} of connection {fence} {told} events count as dropped, and {there} were"


def excuses(world: World) -> Iterator[tuple[int, str]]:
    """Yields the missing events that no connection could know to be missing."""
    counts, emitted_ms = world.watch.ids, world.upstream.emitted_ms
    for link in world.upstream.links if counts.has_restarted else ():
        number, opened_ms = former_event(world, link), link.opened_ms
        if opened_ms is None:
            continue
        if number is not None and link.cursor == world.wire.begins[link.count] + (link.sent_id or 0):
            yield from ((n, MISTAKEN) for n in range(number + 1, link.cursor + 1))
        elif number is not None and _shows_few(world, link):
            yield from ((n, TOO_FEW) for n, at_ms in enumerate(emitted_ms) if n > number and at_ms <= opened_ms)
    for row in _rows(world) if counts.has_restarted else ():
        yield from _indistinguishable(world, row)


def _shows_few(world: World, link: Link) -> bool:
    """Returns whether few of its events had ids up to the cursor's: they may be late.

    Events that another connection stored show nothing, and a repeated event counts once.
    """
    own = {n for n in link.sent[: link.written] if world.watch.brought_by.get(n, link.fence) == link.fence}
    # If nothing followed the cursor, a new event leaves the gap open.
    leaves_open = is_doubtful(world, link) and link.function.died_ms is None
    return sum(world.wire.own_number(n) <= (link.sent_id or 0) for n in own) < IN_A_ROW and not leaves_open


def _rows(world: World) -> Iterator[list[tuple[Link, int]]]:
    """Yields each row of dropped events that the store has answered for, with the links that were sent them.

    A row continues over the end of a connection that could record its end before the next one claimed.
    """
    row: list[tuple[Link, int]] = []
    for link in (one for one in world.upstream.links if one.opened_ms is not None):
        if row and not _could_record_end(world, row[-1][0], link):
            yield row
            row = []
        for is_dropped, numbers in groupby(link.sent[: link.written], world.watch.ids.is_dropped):
            if is_dropped:
                row += [(link, number) for number in numbers]
            elif row:
                yield row
                row = []
    yield row


def _indistinguishable(world: World, row: list[tuple[Link, int]]) -> Iterator[tuple[int, str]]:
    """Yields the events of a row that cannot be told from corrections, or from events of another connection."""
    anew_ms, emitted_ms = world.watch.ids.first_loss_ms, world.upstream.emitted_ms
    # A connection that had claimed before another one found the restart begins its own row.
    if len({n for _, n in row}) < IN_A_ROW and not (row and 0 < anew_ms < row[-1][0].claimed_ms):
        yield from ((n, TOO_FEW) for _, n in row)
    shown = {record.fence for record in ledger(world)}
    every_s = max(max(one.settings["lease_every_s"], one.settings["progress_every_s"]) for one in world.deployed)
    # The first event of a segment decides for all of its events.
    beside_ms = 1000 * LEASE_TTL_READS * int(every_s) + 2 * world.schedule.skew_ms + world.schedule.flush_ms
    for link, n in row if world.schedule.policy != "forbids" else ():
        before = [one for one in world.upstream.links if one.opened_ms is not None and one.fence < link.fence]
        # The control record need not show that the last one opened.
        yield from (
            (n, BESIDE)
            for one in (*[one for one in before if one.fence in shown][-1:], *before[-1:])
            if not _could_record_end(world, one, link)
            and emitted_ms[n] <= _noticed_over_ms(world, one) + beside_ms
            and _rival_ms(world, n) >= (one.opened_ms or 0) - 2 * world.schedule.skew_ms
        )


def _rival_ms(world: World, number: int) -> int:
    """Returns when the last event with the key of this one was stored."""
    return max((world.watch.stored.get(rival, 0) for rival in world.wire.events_with_same_key(number)), default=0)


def _noticed_over_ms(world: World, link: Link) -> int:
    """Returns until when a connection can have renewed its lease: a frozen function notices no close."""
    died_ms = link.function.died_ms
    over_ms = noticed_ms(world, link.over_ms or world.clock.now_ms())
    return over_ms if died_ms is None else min(over_ms, died_ms)


def _could_record_end(world: World, before: Link, link: Link) -> bool:
    """Returns whether a connection could record its end before the other one claimed."""
    ended = any(record.fence == before.fence and record.closed_ms is not None for record in ledger(world))
    return ended and before.settled_ms is not None and before.settled_ms <= link.claimed_ms

"""Compares the shares in a status, connected and complete, and the time that it shows as waiting, with the truth.

`gap_rules.py` and `losses.py` compare each shown gap with the world; the time that is not complete is the time in gaps
that are open, lost or not repaired. A connection was good until its socket closed or its function died, and may be
shown as good until the last instant at which its successors could know that. Each end is measured by one function's
clock, and a killed connection counts as open until it counts as dead. Invariant: the bounds follow from the links
alone, except the last instant at which a connection without an end was known to be good.
"""

from collections.abc import Callable, Iterator
from typing import Any

from handlers.api.figures import length_ms
from handlers.connection.gap_record import INCOMPLETE, PARTLY, Interval
from handlers.store.typed_values import instant_ms
from local.chaos.facts import last_good_ms, ledger, noticed_ms, standstills
from local.chaos.losses import ON_ITS_WAY_MS
from local.chaos.world import World
from local.simulation.chaotic_upstream import LATE_MS
from local.simulation.links import Link


def wrong_shares(world: World, coverage: dict[str, Any], told_until_ms: Callable[[int], int]) -> Iterator[str]:
    """Yields the mistakes in the shares that a status shows.

    `told_until_ms` returns, for the end of a connection whose end was not recorded, until when it may be shown as
    connected.
    """
    since_ms, to_ms = span = instant_ms(coverage["since"]) or 0, instant_ms(coverage["to_at"]) or 0
    records = ledger(world)
    links = [link for link in world.upstream.links if link.opened_ms is not None]
    ended = {record.fence for record in records if record.closed_ms is not None}

    def until_ms(link: Link) -> int:
        over_ms = link.over_ms or to_ms
        # After a standstill of its function, its first write may still show it as open.
        return over_ms if link.fence in ended else told_until_ms(noticed_ms(world, over_ms))

    # While a turn is renewed, the upstream's answer waits for the table's.
    stored_ms = [fault.value for fault in world.schedule.faults if fault.kind == "slow store"]
    turn_ms = max(stored_ms, default=0) if world.schedule.policy == "forbids" else 0

    def answered_ms(link: Link) -> int:
        return noticed_ms(world, link.opened_ms or 0) + turn_ms

    least = [(answered_ms(link), min(last_good_ms(world, records, link), to_ms)) for link in links]
    most = [(max(link.opened_ms or 0, since_ms), min(until_ms(link), to_ms)) for link in links]
    slack_ms = len(links) * (2 * world.schedule.skew_ms + LATE_MS)
    shown_ms = round(coverage["connected_percent"] * max(1, to_ms - since_ms) / 100)
    if not length_ms(least) - slack_ms <= shown_ms <= length_ms(most) + slack_ms:
        truth = f"{length_ms(least)} to {length_ms(most)} were"
        yield f"{shown_ms} ms of {to_ms - since_ms} are shown as connected, and {truth}"
    lacking = [_span(gap, span) for gap in coverage["gaps"] if gap["state"] in INCOMPLETE]
    waits_ms = instant_ms(coverage["waiting_since_at"] or "")
    waiting = [] if waits_ms is None else [(max(waits_ms, since_ms), to_ms)]
    shown_ms = round(coverage["complete_percent"] * max(1, to_ms - since_ms) / 100)
    # Each gap counts at least a millisecond, so several are longer than a time that has just begun.
    rest_ms = max(0, to_ms - since_ms - length_ms([*lacking, *waiting]))
    if abs(shown_ms - rest_ms) > 1 or coverage["missing"]["intervals"] != len(lacking):
        yield f"{shown_ms} ms of {to_ms - since_ms} are shown as complete, and {length_ms(lacking)} are in gaps"


def wrong_waiting(world: World, coverage: dict[str, Any], dead_after_ms: int, *, is_settled: bool) -> Iterator[str]:
    """Yields the mistakes of `waiting_since_at`, while a connection of a living function is open.

    An event counts from its arrival, or from the end of its function's standstill. Once a lease could have run out
    since, the event is stored, or the status shows its time as lacking or waiting. If nothing has changed for that
    long, it shows nothing as waiting unless an event waits. Events stored since the last heartbeat may still be shown
    as waiting: those held back by a log, and a frame whose rest came after a pause.
    """
    now_ms, slack_ms = world.clock.now_ms(), 2 * world.schedule.skew_ms + LATE_MS
    if any(to_ms >= now_ms - dead_after_ms for from_ms, to_ms in standstills(world) if from_ms <= now_ms):
        return
    done = {*world.watch.stored, *map(world.wire.key_number, world.watch.letters()), *world.upstream.lost}
    done |= {n for one in world.upstream.links for n in one.sent[: one.written] if world.watch.ids.is_dropped(n)}
    links = [link for link in world.upstream.open_links if link.function.is_alive]
    waiting = {n for link in links for n in link.sent if n not in done and n not in link.waiting}
    came_ms = [_came_ms(world, number) for number in waiting]
    since_ms, span = instant_ms(coverage["waiting_since_at"] or ""), (0, now_ms)
    shown = [_span(gap, span) for gap in coverage["gaps"] if gap["state"] in INCOMPLETE]
    shown += [] if since_ms is None else [(since_ms, now_ms)]
    late_ms = now_ms - dead_after_ms - ON_ITS_WAY_MS - slack_ms
    for at_ms in came_ms:
        is_late = noticed_ms(world, at_ms) < late_ms
        if is_late and not any(from_ms - slack_ms <= at_ms <= to_ms + slack_ms for from_ms, to_ms in shown):
            yield f"an event that came at {world.stamp(at_ms)} is not stored, and the status does not show that"
            return
    resumed_ms = [world.origin_ms + one.at_ms + one.for_ms for one in world.schedule.faults if one.kind == "pause"]
    is_due = since_ms is not None and since_ms < now_ms - dead_after_ms - world.schedule.flush_ms
    is_due = is_due and not any(now_ms - dead_after_ms <= at_ms <= now_ms for at_ms in resumed_ms)
    if since_ms is not None and is_due and not came_ms and is_settled:
        yield f"what came since {world.stamp(since_ms)} is shown as waiting, and all of it is stored"


def _came_ms(world: World, number: int) -> int:
    """Returns when the first link that brought an event did: a link may bring events from before it opened."""
    return min(
        max(link.came_ms.get(number, world.upstream.emitted_ms[number]), link.opened_ms or 0)
        for link in world.upstream.links
        if number in link.sent and number not in link.waiting
    )


def _span(gap: dict[str, Any], span: Interval) -> Interval:
    """Returns the part of a gap that counts: at least a millisecond, within the time that the status shows."""
    whole = instant_ms(gap["from_at"]), instant_ms(gap["to_at"])
    part = gap["repair"] if gap["state"] == PARTLY else {}
    from_ms = max(whole[0] or 0, instant_ms(part.get("open_from_at")) or 0)
    to_ms = min((ms for ms in (whole[1], instant_ms(part.get("open_to_at"))) if ms is not None), default=None)
    if to_ms is not None and from_ms >= to_ms:
        # Since the repair, the gap's ends have become known better, and the part still open lies outside, so all of it
        # counts.
        from_ms, to_ms = whole[0] or 0, whole[1]
    from_ms = max(from_ms, span[0])
    return from_ms, max(from_ms + 1, span[1] if to_ms is None else min(to_ms, span[1]))

"""Finds the rules that a run's repairs broke: gaps falsely marked as repaired, gaps never repaired, a pace not kept.

It reads the world after the run. Invariant: it judges by what the upstream had, never by the repair's own records.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from handlers.connection.gap_record import DELIVERED, INCOMPLETE, OPEN, REPAIRED, Gap, apply_repairs
from handlers.profile.repair_field import MOST_PAGES
from handlers.repair.gap_edges import MOST_EACH
from handlers.repair.gap_ports import TURN_MS
from handlers.repair.work import REPAIR
from handlers.store import ledger_records
from local.chaos.facts import ledger, rows_of
from local.chaos.plans import AFTER_S, PACE_S, RepairPlan
from local.chaos.repair_world import CHECK_EVERY_MS, Repairers
from local.chaos.world import World
from local.simulation.chaotic_upstream import LATE_MS
from local.simulation.slow_requests import MOST_MS

# How long after the faults a gap may wait for its repair: a lost turn, the watch, a longer refusal, several pages.
SPARE_MS = 30_000
# The faults after which two functions may repair at once until a turn is over; so may a frozen function and another.
_OF_THE_STORE = ("slow store", "unknown outcomes")
CLOSED_AFTER_MS = TURN_MS + CHECK_EVERY_MS + 40_000 + SPARE_MS


def gaps_of(world: World) -> list[Gap]:
    """Returns the stream's recorded gaps, with the results of their repairs."""
    written = [ledger_records.gap_of(item) for item in rows_of(world, "gap#")]
    return apply_repairs(written, [(gap, gap.repair) for gap in written if gap.repair is not None])


def find_violations(world: World, quiet_ms: int) -> dict[str, list[str]]:
    """Returns the violations by kind; `quiet_ms` is when the faults of the stream were over."""
    repairers = world.repairers
    if repairers is None:
        return {}
    # A fault that waited for the next function hits it later than planned.
    calm_at_ms = max(world.origin_ms + max(quiet_ms, repairers.plan.calm_ms), repairers.struck_ms)
    return {
        "false-repair": list(_false_repairs(world)),
        "unrepaired": list(_unrepaired(world, repairers, calm_at_ms)),
        "crowded": list(_crowded(world, repairers)),
        "unalerted": list(_unalerted(world, repairers)),
    }


def _false_repairs(world: World) -> Iterator[str]:
    """Yields the gaps that are marked as repaired although an event of that time is not stored.

    If a function stood still, the losses that it records later overlap: the event's own loss decides then.
    """
    slack_ms, gaps = world.schedule.skew_ms + LATE_MS, gaps_of(world)
    told = [gap.span for gap in gaps if gap.number and gap.state in INCOMPLETE]
    for gap in gaps:
        if gap.state != REPAIRED:
            continue
        lacking = [
            number
            for number, at_ms in enumerate(world.upstream.emitted_ms)
            if gap.from_ms + slack_ms <= at_ms <= gap.to_ms - slack_ms
            and number not in world.watch.stored
            and not any(from_ms <= at_ms <= to_ms for from_ms, to_ms in told)
        ]
        if lacking:
            yield (
                f"the gap to {world.stamp(gap.to_ms)} is marked as repaired, and event {lacking[0]} of it is not stored"
            )


def _unrepaired(world: World, repairers: Repairers, calm_at_ms: int) -> Iterator[str]:
    """Yields the gaps that are not repaired although the address has all their events and the faults are long over."""
    plan = repairers.plan
    now_ms, reach_ms = world.clock.now_ms(), plan.rest.keeps_ms
    requested = rows_of(world, REPAIR)
    asked_ms = max((int(item["asked_ms"]["N"]) for item in requested if "asked_ms" in item), default=0)
    first_ms = min(world.watch.stored.values(), default=now_ms)
    for gap in gaps_of(world):
        since_ms = max(calm_at_ms, repairers.rest.refused_ms, asked_ms, gap.to_ms + AFTER_S * 1000 + plan.rest.lag_ms)
        # After failures, the next try comes at the latest after as much time again.
        bound_ms = since_ms + (since_ms - gap.to_ms) + CLOSED_AFTER_MS
        # Several pages without an order are no proof.
        is_kept = not reach_ms and not plan.rest.is_shuffled and gap.from_ms > first_ms
        if gap.state not in (REPAIRED, DELIVERED) and is_kept and now_ms > bound_ms and _is_in_reach(world, gap, plan):
            reason = gap.repair.reason if gap.repair is not None else "nobody has tried"
            yield f"the gap to {world.stamp(gap.to_ms)} is {gap.state} ({reason}), due at {world.stamp(bound_ms)}"


def _is_in_reach(world: World, gap: Gap, plan: RepairPlan) -> bool:
    """Returns whether two events before the gap and two after it are stored, from connections that had caught up.

    Between them, and between the events to which later tries widen the interval, there must not be more pages than a
    walk reads.
    """
    good = {one.fence: (one.live_ms if one.resumed else one.opened_ms, one) for one in ledger(world) if not one.refused}
    rows = [event for event in world.watch.arrivals if event[1]]
    before = sorted(at_ms for at_ms, fence in rows if at_ms <= gap.from_ms and fence < gap.fence)
    after = sorted(
        at_ms
        for at_ms, fence in rows
        if fence >= gap.fence
        and fence in good
        and (since_ms := good[fence][0]) is not None
        and max(gap.to_ms + 1, since_ms) <= at_ms <= good[fence][1].last_ms
    )
    if len(before) < 2 or len(after) < 2:
        return False
    between = sum(before[-2] <= at_ms <= after[1] for at_ms in world.upstream.emitted_ms)
    return between + 2 * MOST_EACH <= plan.rest.limit * MOST_PAGES


def _crowded(world: World, repairers: Repairers) -> Iterator[str]:
    """Yields the requests that came faster than the profile's pace, unless a function stood still or was slow then."""
    faults = [one for one in world.schedule.faults if one.kind in _OF_THE_STORE]
    faults += [one for one in repairers.plan.faults if one.kind == "freeze"]
    unsure = [(world.origin_ms + one.at_ms, world.origin_ms + one.at_ms + one.for_ms + TURN_MS) for one in faults]
    for earlier, later in pairwise(repairers.rest.asked):
        is_sure = not any(from_ms <= later <= to_ms for from_ms, to_ms in unsure)
        if later - earlier < PACE_S * 1000 - 2 * MOST_MS and is_sure:
            yield f"the address is asked at {world.stamp(earlier)} and again at {world.stamp(later)}"


def _unalerted(world: World, repairers: Repairers) -> Iterator[str]:
    """Yields the gaps that were given up without an alert."""
    told = {(gap.fence, gap.number) for gap, _ in repairers.alerts}
    for gap in gaps_of(world):
        repair = gap.repair
        is_given_up = repair is not None and repair.is_over and repair.state != REPAIRED and gap.state != OPEN
        if is_given_up and (gap.fence, gap.number) not in told:
            yield f"the gap to {world.stamp(gap.to_ms)} was given up, and nobody was told"

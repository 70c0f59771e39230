"""The rules of a single stream, alone or in a group; also decides how long a run lasts.

It reads the world after the run and changes nothing. `invariants.py` decides how an execution must end and which
streams must be connected.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from handlers.api.verdict import plural
from handlers.connection.draining import WATCH_MS
from handlers.connection.lease import LEASE_TTL_READS
from handlers.connection.orphans import GRACE_MS
from handlers.store import control_record
from local.chaos import delivery_rules, repair_rules
from local.chaos.backoff_rules import hasty, impatient, in_step, most_ms, too_late
from local.chaos.facts import lease, lease_ttl_ms, uncovered
from local.chaos.faults import CHECK_EVERY_MS
from local.chaos.gap_rules import invented, unrecorded
from local.chaos.losses import missing
from local.chaos.plans import Fault
from local.chaos.schedule import Schedule, requests
from local.chaos.world import World
from local.simulation.chaotic_upstream import CONNECT_TIMEOUT_MS, STALL_AFTER_MS
from local.simulation.links import Link
from local.simulation.unreliable_clients import LATEST_MS

COUNTED = (
    *("lost", "invented", "duplicated", "excess-connections", "stuck", "restless", "torn", "cursor-ahead"),
    *("backwards", "unnamed-ends", "outdated", "impatient", "hasty", "in-step", "too-late", "overdue", "misplaced"),
    *("misread", "dead-letters", "wrong-counts", "wrong-status", "usurped", "cross-talk", "unrecorded-gaps"),
    *("disturbed", "false-repair", "unrepaired", "crowded", "unalerted"),
    *delivery_rules.COUNTED,
)
# The longest time of a connection besides back-off: a function's start, the claim and the answer, with a reserve.
CONNECT_MS = 1_000
# A handover if two connections are forbidden: the older reads the lease and releases; the newer polls and connects.
FORBIDDEN_HANDOVER_MS = 3_000
# A fault may make a function late, so that its deadline comes before its successor, which is retried within a second.
EXPIRY_MS = 2_000
# Longer than a function lives, so that nothing at the end of a run is due to the faults.
CALM_MS = 30_000
SPARE_MS = 6_000
# How long after its last function an execution is known to be over: the heartbeat of a killed function has to expire
# (`progress_every_s` is 2 at most), then the stream has to be away for the grace time, then the watch has to come.
ORPHANED_MS = LEASE_TTL_READS * 2_000 + GRACE_MS + CHECK_EVERY_MS
# The most openings after the faults: each lane hands over at most twice, and a renewal begins again.
CALM_OPENINGS = 6


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule; `kind` is one of COUNTED."""

    kind: str
    text: str


def quiet_ms(schedule: Schedule, settings: Mapping[str, Any]) -> int:
    """Returns when the last fault and its aftermath are over; a redeployment is not a fault, and excuses nothing."""
    task_timeout_s = settings["function_timeout_s"] + settings["start_allowance_s"]
    faults = [fault for fault in schedule.faults if fault.kind != "redeploy"]
    return max((fault.at_ms + _lasts_ms(fault, task_timeout_s) for fault in faults), default=0)


def end_ms(world: World) -> int:
    """Returns the length of one stream's run: long after the faults, when all functions have the newest version."""
    redeployed_ms = max((fault.at_ms for fault in world.schedule.faults if fault.kind == "redeploy"), default=0)
    # A function of the version before lives until its limit.
    calm_ms = max(CALM_MS, int(world.settings["function_timeout_s"]) * 1000 + SPARE_MS)
    # A stream may join after the last fault of all.
    quiet = max(quiet_ms(world.schedule, world.settings), world.schedule.joins_ms)
    if world.schedule.repair is not None:
        calm_ms = max(quiet, world.schedule.repair.calm_ms)
        calm_ms += repair_rules.CLOSED_AFTER_MS + world.schedule.repair.rest.lag_ms
        return max(calm_ms + CALM_MS + quiet // 2, redeployed_ms + calm_ms if redeployed_ms else 0)
    return max(quiet + bound_ms(world) + CALM_MS, redeployed_ms + calm_ms if redeployed_ms else 0)


def shortened_until_ms(world: World) -> int:
    """Returns until when a redeployment may leave lanes that wait longer than a function lives: two lives, or 0."""
    redeployed_ms = [fault.at_ms for fault in world.schedule.faults if fault.kind == "redeploy"]
    limits_s = [int(version.settings["function_timeout_s"]) for version in world.deployed]
    changes = zip(redeployed_ms, pairwise(limits_s), strict=True)
    shortened_ms = [at_ms for at_ms, (before_s, after_s) in changes if after_s < before_s]
    return world.origin_ms + max(shortened_ms) + 2 * max(limits_s) * 1000 if shortened_ms else 0


def _lasts_ms(fault: Fault, task_timeout_s: int) -> int:
    after_ms = {
        "kill": fault.value,
        "kill in the store": 6_000,
        "kill between steps": 6_000,
        # The machine is not notified of its end, and waits for its answer.
        "vanish": task_timeout_s * 1000,
        # The machine does not end it, so it lives until its deadline.
        "orphan": task_timeout_s * 1000,
        "slow starts": fault.value,
        "unknown outcomes": LATEST_MS,
        "slow store": fault.value * 4,
        "stall": STALL_AFTER_MS,
        "pause": STALL_AFTER_MS,
        "silence": STALL_AFTER_MS,
        "no answers": CONNECT_TIMEOUT_MS,
        # Its functions live until their limits.
        "abort": task_timeout_s * 1000 + ORPHANED_MS,
        "abort and post": fault.value,
        "stop and post": fault.value,
        "abort, post and stop": fault.value,
    }
    return fault.for_ms + after_ms.get(fault.kind, 0)


def bound_ms(world: World) -> int:
    """Returns how long after the last fault the stream may be away: one capped back-off and one connect.

    Before that, a lane may wait for a successor that never connects, and for a dead holder's lease to expire. If the
    profile has back-offs, the longest of them and one try are added.
    """
    settings = world.settings
    names = ("retry_max_delay_s", "throttle_max_delay_s", "cool_down_s")
    settle_ms = WATCH_MS
    if world.schedule.policy == "forbids":
        settle_ms += CONNECT_TIMEOUT_MS + lease_ttl_ms(world) + 2 * world.schedule.skew_ms
    rest_s = max(int(settings[name]) for name in names) + int(settings["jitter_s"])
    return rest_s * 1000 + settle_ms + CONNECT_MS + most_ms(world)


def handover_ms(world: World, from_ms: int) -> int:
    """Returns how long a handover without faults may leave the stream unconnected, from that instant on."""
    if world.schedule.policy == "forbids":
        return FORBIDDEN_HANDOVER_MS
    # Back-off, or a retry within a second, and a connect: as after a deadline.
    return EXPIRY_MS if any(_evicted_in_vain(world, link, from_ms) for link in world.upstream.links) else 0


def not_connected(world: World, quiet_at_ms: int, bound: int, shortened_ms: int, held_up_ms: int = 0) -> list[str]:
    """Returns when the stream was not connected after the bound, for longer than a handover may take.

    More is allowed after a fault that made a function late, and until `shortened_ms` after a redeployment that shortens
    lives; then other streams may delay a function's end by `held_up_ms`.
    """
    texts = []
    # Within the bound the stream may drop again: two lanes return from the same outage, and the time that a function
    # spent on back-off is missing at the end of its life.
    late_ms = quiet_at_ms + int(world.settings["function_timeout_s"]) * 1000 + most_ms(world)
    for start, end in uncovered(world, quiet_at_ms, world.clock.now_ms()):
        steady_ms = handover_ms(world, start)
        allowed_ms = max(steady_ms, EXPIRY_MS + held_up_ms) if start < max(late_ms, shortened_ms) else steady_ms
        if end > bound and end - start > allowed_ms:
            when = f"from {world.stamp(start)} to {world.stamp(end)}"
            texts.append(f"not connected {when}, and the last fault was over at {world.stamp(quiet_at_ms)}")
    return texts


def _evicted_in_vain(world: World, link: Link, closed_ms: int) -> bool:
    """Returns whether a connection evicted the older one, and then had its cursor refused as too old in a frame.

    It counts only if the cursor was as recent as the regular saves of a holder make it. A log's is not if its events
    are dropped because ids started over.
    """
    if link.closed_ms != closed_ms or link.opened_ms is None or not link.has_forgotten or link.cursor is None:
        return False
    has_evicted = any(
        other.closed_ms == link.opened_ms and other.ended_by == "ended_by_upstream" for other in world.upstream.links
    )
    unsaved_ms = 1000 * (max(one.settings["progress_every_s"] for one in world.deployed) + world.schedule.flush_s)
    since = world.upstream.emitted_ms[link.cursor + 1 : link.cursor + 2]
    is_recent = all(link.asked_ms - at_ms <= unsaved_ms + CONNECT_MS for at_ms in since)
    return has_evicted and (is_recent or 0 < world.watch.ids.first_loss_ms < link.asked_ms)


def is_stopped(world: World) -> bool:
    """Returns whether a stop is requested."""
    return control_record.lease_of(lease(world)).stop


def last_methods(schedule: Schedule) -> set[str]:
    """Returns the last requested methods: both if two requests came in the same millisecond."""
    asked = requests(schedule)
    return {method for at_ms, method in asked if at_ms == asked[-1][0]}


def find_violations(world: World) -> dict[str, list[str]]:
    """Returns the violations in the run of one stream, by their kind of COUNTED."""
    watch = world.watch
    # An event that is whole in the queue is safe, even if its function died before it could leave a mark.
    for key in watch.letters():
        watch.stored.setdefault(world.wire.key_number(key), world.clock.now_ms())
    return world.broken | {
        "excess-connections": world.upstream.excess + _acknowledged_early(world),
        "lost": _lost(world),
        "invented": invented(world),
        "unrecorded-gaps": unrecorded(world),
        "restless": _restless(world),
        "impatient": impatient(world),
        "hasty": hasty(world),
        "in-step": in_step(world),
        "too-late": too_late(world),
        **repair_rules.find_violations(world, quiet_ms(world.schedule, world.settings)),
        "dead-letters": list(dict.fromkeys(world.broken["dead-letters"])),
    }


def _acknowledged_early(world: World) -> list[str]:
    """Returns the events that a socket's client acknowledged before they were safe."""
    stored, letters = world.watch.stored, {world.wire.key_number(key) for key in world.watch.letters()}
    early = [
        n
        for n, at_ms in world.upstream.sockets.acknowledged.items()
        if n not in letters and stored.get(n, at_ms + 1) > at_ms
    ]
    return [f"{plural(len(early), 'event')} acknowledged and not stored, the first {early[0]}"] if early else []


def _restless(world: World) -> list[str]:
    """Returns too many openings after the faults: lanes that take each other for dropped evict each other for ever."""
    calm_from = world.clock.now_ms() - CALM_MS
    links = [link for link in world.upstream.links if link.asked_ms > calm_from]
    # A connection that learns from a frame that its cursor is too old is opened once more, even beside another.
    most = CALM_OPENINGS + sum(link.has_forgotten for link in links)
    count = len({link.fence for link in links})
    return [f"{count} openings after {world.stamp(calm_from)}, when all was calm"] if count > most else []


def _lost(world: World) -> list[str]:
    unexcused = [number for number, excuse in missing(world).items() if not excuse]
    if not unexcused:
        return []
    first = world.stamp(world.upstream.emitted_ms[unexcused[0]])
    return [f"{plural(len(unexcused), 'event')} neither stored nor in a gap, the first, {unexcused[0]}, of {first}"]

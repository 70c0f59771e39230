"""Decides whether a run kept the promise: what is lost, double, torn, excessive, stuck or ended without a reason.

Which events are lost is local/chaos/losses.py's. It reads the world after the run and changes nothing. Invariant: a
violation names its kind, one of `COUNTED`, and its place in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from handlers.connection.draining import WATCH_MS
from handlers.store import control_items
from local.chaos import delivery_rules
from local.chaos.chaotic_upstream import CONNECT_TIMEOUT_MS, STALL_AFTER_MS
from local.chaos.executions import over_as
from local.chaos.gaps import invented, unrecorded
from local.chaos.losses import lease_ttl_ms, missing, uncovered
from local.chaos.rests import hasty, impatient, in_step, most_ms, too_late
from local.chaos.schedule import Fault, Schedule, requests
from local.chaos.unreliable_dynamodb import LATEST_MS
from local.chaos.world import World

COUNTED = (
    "lost",
    "invented",
    "duplicated",
    "excess-connections",
    "stuck",
    "restless",
    "torn",
    "cursor-ahead",
    "backwards",
    "unnamed-ends",
    "outdated",
    "impatient",
    "hasty",
    "in-step",
    "too-late",
    "overdue",
    "misplaced",
    "misread",
    "dead-letters",
    "wrong-counts",
    "wrong-status",
    "usurped",
    "cross-talk",
    "unrecorded-gaps",
    *delivery_rules.COUNTED,
)
# What a connection costs at most beside back-off: a function's start, the claim, the answer, each with some to spare.
CONNECT_MS = 1_000
# A handover of an upstream that forbids two: the older reads the lease, releases, the newer polls and connects.
FORBIDDEN_HANDOVER_MS = 3_000
# A function that was late because of a fault may meet its deadline before its successor comes: retried within a second.
EXPIRY_MS = 2_000
# Longer than a function lives, so that the end of a run owes nothing to the faults.
CALM_MS = 30_000
# How soon after the request to stop nobody is connected: the lease is read every second, what was read is drained.
STOP_MS = 4_000
# Openings in the calm: each lane hands over at most twice, and a renewal begins again.
CALM_OPENINGS = 6


@dataclass(frozen=True, slots=True)
class Violation:
    """What was broken; `kind` is one of COUNTED."""

    kind: str
    text: str


def quiet_ms(schedule: Schedule, task_timeout_s: int) -> int:
    """When the last fault is over, with what it leaves behind by itself. A redeployment is none: it excuses nothing."""
    faults = [fault for fault in schedule.faults if fault.kind != "redeploy"]
    return max((fault.at_ms + _lasts_ms(fault, task_timeout_s) for fault in faults), default=0)


def end_ms(world: World) -> int:
    """How long a run goes on: until all has long been calm, and a redeployment has reached every function."""
    return max(map(_end_ms, (world, *world.beside)))


def _end_ms(world: World) -> int:
    redeployed_ms = max((fault.at_ms for fault in world.schedule.faults if fault.kind == "redeploy"), default=0)
    return max(quiet_ms(world.schedule, world.settings["task_timeout_s"]) + bound_ms(world), redeployed_ms) + CALM_MS


def _lasts_ms(fault: Fault, task_timeout_s: int) -> int:
    after_ms = {
        "kill": fault.value,
        "kill in the store": 6_000,
        "kill between steps": 6_000,
        # Nobody hears of its end, so the machine waits for its answer.
        "vanish": task_timeout_s * 1000,
        # Nobody ends it: it lives to its deadline.
        "orphan": task_timeout_s * 1000,
        "slow starts": fault.value,
        "unknown outcomes": LATEST_MS,
        "slow store": fault.value * 4,
        "stall": STALL_AFTER_MS,
        "pause": STALL_AFTER_MS,
        "silence": STALL_AFTER_MS,
        "no answers": CONNECT_TIMEOUT_MS,
        "abort and post": fault.value,
        "stop and post": fault.value,
        "abort, post and stop": fault.value,
    }
    return fault.for_ms + after_ms.get(fault.kind, 0)


def bound_ms(world: World) -> int:
    """How long after the last fault the stream may be without a connection: one capped back-off and one connect.

    Before it a lane may watch a successor that never connects, and may wait for a dead holder's lease to run out. Where
    the upstream is owed rests, the longest of them, and what a try may take.
    """
    settings = world.settings
    names = ("retry_max_delay_s", "throttle_max_delay_s", "cool_down_s")
    settle_ms = WATCH_MS
    if world.schedule.policy == "forbids":
        settle_ms += CONNECT_TIMEOUT_MS + lease_ttl_ms(world) + 2 * world.schedule.skew_ms
    rest_s = max(int(settings[name]) for name in names) + int(settings["jitter_s"])
    return rest_s * 1000 + settle_ms + CONNECT_MS + most_ms(world)


def violations(world: World) -> list[Violation]:
    """All that was broken in the run of a first stream, which is over, and of those beside it."""
    broken = [violation for one in (world, *world.beside) for violation in _of_stream(one)]
    broken += [Violation("cross-talk", text) for text in world.account.crossed]
    delivery = world.account.delivery
    return broken + [Violation(*one) for one in (delivery_rules.broken(delivery) if delivery is not None else ())]


def _of_stream(world: World) -> list[Violation]:
    watch = world.watch
    # What lies whole in the queue is safe, also where its function died before it could leave a mark.
    for key in watch.letters():
        watch.stored.setdefault(world.wire.key_number(key), world.clock.now_ms())
    seen = {
        "duplicated": watch.duplicated,
        "excess-connections": world.upstream.excess,
        "torn": watch.torn,
        "cursor-ahead": watch.ahead,
        "backwards": watch.backwards,
        "lost": _lost(world),
        "invented": invented(world),
        "unrecorded-gaps": unrecorded(world),
        "stuck": _stuck(world),
        "restless": _restless(world),
        "unnamed-ends": _unnamed(world),
        "outdated": _outdated(world),
        "impatient": impatient(world),
        "hasty": hasty(world),
        "in-step": in_step(world),
        "too-late": too_late(world),
        "overdue": _overdue(world),
        "misplaced": watch.misplaced,
        "dead-letters": _unlettered(world),
        "wrong-counts": watch.miscounted,
        "misread": world.misread,
        "usurped": watch.usurped,
        "wrong-status": world.misreported,
    }
    name = "" if world.is_alone else f"{world.stream}: "
    return [Violation(kind, f"{name}{text}") for kind, texts in seen.items() for text in texts]


# --- connected --------------------------------------------------------------------------------------------------------


def _lease(world: World) -> control_items.Item:
    key = control_items.key(world.stream, "lease")
    item: control_items.Item = world.tables.get_item(TableName=world.control_table, Key=key).get("Item", {})
    return item


def is_stopped(world: World) -> bool:
    """Whether a stop is requested."""
    return control_items.lease(_lease(world)).stop


def _shortened_until_ms(world: World) -> int:
    """Until when a redeployment may leave executions whose lanes wait for longer than a function lives: two lives."""
    redeployed_ms = [fault.at_ms for fault in world.schedule.faults if fault.kind == "redeploy"]
    limits_s = [int(version.settings["function_timeout_s"]) for version in world.deployed]
    changes = zip(redeployed_ms, pairwise(limits_s), strict=True)
    shortened_ms = [at_ms for at_ms, (before_s, after_s) in changes if after_s < before_s]
    return world.origin_ms + max(shortened_ms) + 2 * max(limits_s) * 1000 if shortened_ms else 0


def _asked_last(schedule: Schedule) -> set[str]:
    """What the last request asked for; both where two came in the same millisecond."""
    asked = requests(schedule)
    return {method for at_ms, method in asked if at_ms == asked[-1][0]}


def _stuck(world: World) -> list[str]:
    now_ms = world.clock.now_ms()
    quiet = world.origin_ms + quiet_ms(world.schedule, world.settings["task_timeout_s"])
    holes = uncovered(world, quiet, now_ms)
    running = [execution.name for execution in world.executions if execution.status == "RUNNING"]
    if is_stopped(world):
        if _asked_last(world.schedule) == {"POST"}:
            return ["a POST came after the last request to stop, and the stream stays stopped"]
        if running:
            return [f"the stream is to be stopped and {', '.join(running)} still runs"]
        over_ms = quiet + STOP_MS
        is_over = uncovered(world, over_ms, now_ms) == [(over_ms, now_ms)]
        return [] if is_over else ["the stream is to be stopped and was connected on"]
    if _asked_last(world.schedule) == {"DELETE"}:
        return ["a request to stop came after the last POST, and the stream goes on"]
    if not running and over_as(world):
        return []
    if not running:
        return ["no execution runs and nobody stopped the stream"]
    texts = []
    shortened_until_ms = _shortened_until_ms(world)
    steady_ms = FORBIDDEN_HANDOVER_MS if world.schedule.policy == "forbids" else 0
    for start, end in holes:
        # Within the bound it may fall again: two lanes come back from the same outage, and what a function rested is
        # missing at the end of its life.
        is_late = start < quiet + int(world.settings["function_timeout_s"]) * 1000 + most_ms(world)
        allowed_ms = max(steady_ms, EXPIRY_MS) if is_late or start < shortened_until_ms else steady_ms
        if end > quiet + bound_ms(world) and end - start > allowed_ms:
            when = f"from {_at(world, start)} to {_at(world, end)}"
            texts.append(f"not connected {when}, and the last fault was over at {_at(world, quiet)}")
    return texts


def _restless(world: World) -> list[str]:
    """Two lanes that take each other for dropped evict each other for ever, covering every instant."""
    calm_from = world.clock.now_ms() - CALM_MS
    count = sum(link.asked_ms > calm_from for link in world.upstream.links)
    return [f"{count} openings after {_at(world, calm_from)}, when all was calm"] if count > CALM_OPENINGS else []


def _at(world: World, at_ms: int) -> str:
    return f"{(at_ms - world.origin_ms) / 1000:.3f} s"


def _lost(world: World) -> list[str]:
    unexcused = [number for number, excuse in missing(world).items() if not excuse]
    if not unexcused:
        return []
    first = _at(world, world.upstream.emitted_ms[unexcused[0]])
    return [f"{len(unexcused)} events are neither stored nor in a gap, the first, {unexcused[0]}, of {first}"]


def _unlettered(world: World) -> list[str]:
    """What is wrong with the messages, and ends that a person should have got to know of."""
    reported = {message.get("execution") for message in world.account.queue.messages}
    silent = [
        f"{execution.name} was rejected, and no message says so"
        for execution in world.executions
        if execution.arn not in reported
        and isinstance(execution.output, dict)
        and execution.output.get("status") == "rejected"
    ]
    return list(dict.fromkeys(world.watch.unlettered)) + silent


# --- executions -------------------------------------------------------------------------------------------------------


def _unnamed(world: World) -> list[str]:
    texts = []
    for execution in world.executions:
        names_it = isinstance(execution.output, dict) and bool(execution.output.get("status"))
        if execution.status == "SUCCEEDED" and not names_it:
            texts.append(f"{execution.name} succeeded and does not say how: {execution.output!r}")
        # Where the queue refuses, a rejection that cannot be reported is a dirty end.
        is_unreported = execution.error == "StreamRejected" and any(
            fault.kind == "queue refuses" for fault in world.schedule.faults
        )
        is_aborted = execution.status == "ABORTED" and any("abort" in fault.kind for fault in world.schedule.faults)
        if execution.status not in ("RUNNING", "SUCCEEDED") and not (is_aborted or is_unreported):
            texts.append(f"{execution.name} ended {execution.status}: {execution.error} ({execution.cause})")
    return texts


def _overdue(world: World) -> list[str]:
    """Functions that did not end by themselves, or had no time left to write down how; freezing excuses it."""
    awake = [function for function in world.functions if not function.was_frozen]
    return [
        *(f"{world.name(function)} was killed at its limit" for function in awake if function.timed_out),
        *(f"{world.name(function)} ran out of time to ask the store" for function in awake if function.slow.ran_out),
    ]


def _outdated(world: World) -> list[str]:
    """A function lives for less than the calm, so at the end of a run all that live are of the newest version."""
    return [
        f"{world.name(function)} is of version {function.task.version} and {world.version.number} is deployed"
        for function in world.functions
        if function.is_alive and function.task.version != world.version.number
    ]

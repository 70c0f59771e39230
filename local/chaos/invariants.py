"""Decides whether a run kept the promise: what is lost, double, torn, excessive, stuck or ended without a reason.

Which events are lost is local/chaos/losses.py's. It reads the world after the run and changes nothing. Invariant: a
violation names its kind, one of `COUNTED`, and its place in time.
"""

from local.chaos import delivery_rules, group_rules, stream_rules
from local.chaos.execution_ends import outdated, over_as, overdue, unnamed
from local.chaos.group_world import Group, Member
from local.chaos.losses import uncovered
from local.chaos.stream_rules import (
    COUNTED,
    STOP_MS,
    Violation,
    asked_last,
    bound_ms,
    broken,
    is_stopped,
    not_connected,
    quiet_ms,
    shortened_until_ms,
)
from local.chaos.world import World


def end_ms(world: World) -> int:
    """How long a run goes on: until that of each of its streams is over."""
    return max(map(stream_rules.end_ms, (world, *world.beside)))


def violations(world: World) -> list[Violation]:
    """All that was broken in the run of a first stream, or of a group, which is over, and of those beside it."""
    broken = [violation for one in (world, *world.beside) for violation in _of(one)]
    broken += [Violation("cross-talk", text) for text in world.account.crossed]
    delivery = world.account.delivery
    return broken + [Violation(*one) for one in (delivery_rules.broken(delivery) if delivery is not None else ())]


def _of(world: World) -> list[Violation]:
    if isinstance(world, Group):
        seen = group_rules.of_group(world)
    else:
        seen = group_rules.of_member(world) if isinstance(world, Member) else _of_alone(world)
    assert seen.keys() <= set(COUNTED), "a kind that nobody counts"
    name = "" if world.is_alone else f"{world.stream}: "
    return [Violation(kind, f"{name}{text}") for kind in COUNTED for text in seen.get(kind, ())]


def _of_alone(world: World) -> dict[str, list[str]]:
    """A stream that has functions of its own."""
    seen = broken(world)
    seen["dead-letters"] += _unlettered(world)
    return seen | {
        "stuck": _stuck(world),
        "unnamed-ends": unnamed(world),
        "outdated": outdated(world),
        "overdue": overdue(world),
    }


# --- connected --------------------------------------------------------------------------------------------------------


def _stuck(world: World) -> list[str]:
    now_ms = world.clock.now_ms()
    quiet = world.origin_ms + quiet_ms(world.schedule, world.settings["task_timeout_s"])
    running = [execution.name for execution in world.executions if execution.status == "RUNNING"]
    if is_stopped(world):
        if asked_last(world.schedule) == {"POST"}:
            return ["a POST came after the last request to stop, and the stream stays stopped"]
        if running:
            return [f"the stream is to be stopped and {', '.join(running)} still runs"]
        over_ms = quiet + STOP_MS
        is_over = uncovered(world, over_ms, now_ms) == [(over_ms, now_ms)]
        return [] if is_over else ["the stream is to be stopped and was connected on"]
    if asked_last(world.schedule) == {"DELETE"}:
        return ["a request to stop came after the last POST, and the stream goes on"]
    if not running and over_as(world):
        return []
    if not running:
        return ["no execution runs and nobody stopped the stream"]
    return not_connected(world, quiet, quiet + bound_ms(world), shortened_until_ms(world))


def _unlettered(world: World) -> list[str]:
    """Ends that a person should have got to know of."""
    reported = {message.get("execution") for message in world.account.queue.messages}
    return [
        f"{execution.name} was rejected, and no message says so"
        for execution in world.executions
        if execution.arn not in reported
        and isinstance(execution.output, dict)
        and execution.output.get("status") == "rejected"
    ]

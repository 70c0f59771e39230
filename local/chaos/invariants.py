"""Decides whether a run kept the promise: nothing lost, doubled, torn, excessive, stuck, or ended without a reason.

`stream_rules.py` has the rules of a single stream. Invariants: a violation names its kind, one of `COUNTED`, and its
instant; a calm stream of a group is not blamed for the faults of others.
"""

from handlers.store.typed_values import read_int, read_text
from local.chaos import delivery_rules, stream_rules
from local.chaos.draws import REFUSALS
from local.chaos.facts import lease, ledger_rows, standstills, uncovered
from local.chaos.group_world import Group, Member
from local.chaos.schedule import requests
from local.chaos.stream_rules import (
    COUNTED,
    Violation,
    bound_ms,
    find_violations,
    handover_ms,
    is_stopped,
    last_methods,
    not_connected,
    quiet_ms,
    shortened_until_ms,
)
from local.chaos.world import World
from states_language import Execution

# Within this time after a request to stop, connections close: the lease is read every second, then events are drained.
STOP_MS = 4_000
# Within this time after its answer, a request takes effect: a heartbeat, a read, and the tasks before it.
EFFECT_MS = 5_000
# For so long the openings of other streams may delay one: openings are paced.
PACED_MS = 3_000
# The statuses that an execution writes into the lease when it releases the stream.
LAST_WORDS = ("stopped", "ended", "rejected")


def end_ms(world: World) -> int:
    """Returns the length of a run: that of its longest stream."""
    return max(map(stream_rules.end_ms, (world, *world.beside)))


def violations(world: World) -> list[Violation]:
    """Returns all rules that were broken in a finished run, by a stream or a group and by the streams beside it."""
    broken = [violation for one in (world, *world.beside) for violation in _violations_of(one)]
    broken += [Violation("cross-talk", text) for text in world.account.crossed]
    delivery = world.account.delivery
    return broken + [
        Violation(*one) for one in (delivery_rules.find_violations(delivery) if delivery is not None else ())
    ]


def _violations_of(world: World) -> list[Violation]:
    seen = world.broken if isinstance(world, Group) else find_violations(world)
    if isinstance(world, Member):
        seen |= {"stuck": _stuck(world), "disturbed": _disturbed(world)}
    else:
        stuck = _needless_executions(world) if isinstance(world, Group) else _stuck(world)
        seen = seen | _of_functions(world) | {"unnamed-ends": _unnamed_ends(world), "stuck": stuck}
    if not isinstance(world, Group):
        seen["dead-letters"] += _rejections_without_letter(world)
        seen["unnamed-ends"] = [*seen.get("unnamed-ends", ()), *_unexplained(world)]
    assert seen.keys() <= set(COUNTED), "a kind that is not in COUNTED"
    name = "" if world.is_alone else f"{world.stream}: "
    return [Violation(kind, f"{name}{text}") for kind in COUNTED for text in seen.get(kind, ())]


# --- connected --------------------------------------------------------------------------------------------------------


def _stuck(world: World) -> list[str]:
    """Returns why the stream is not as last requested, or when it was not connected for too long after the faults."""
    now_ms, last = world.clock.now_ms(), last_methods(world.schedule)
    member = world if isinstance(world, Member) else None
    quiet_at_ms = world.origin_ms + quiet_ms(world.schedule, world.settings)
    if member is not None:
        quiet_at_ms = max([quiet_at_ms, *(at_ms + EFFECT_MS for at_ms in member.answered)])
        if not member.answered or (len(last) == 1 and member.wanted not in last):
            return ["the last request was never answered"]
        keepers = [lease(world)["group"]["S"]] if "group" in lease(world) else []
    else:
        keepers = [execution.name for execution in world.executions if execution.status == "RUNNING"]
    if is_stopped(world):
        if last == {"POST"}:
            return ["a POST came after the last request to stop, and the stream stays stopped"]
        if keepers:
            return [f"a stop was requested, and {', '.join(keepers)} keeps it"]
        # A function that stands still sees a request only afterwards.
        heard_ms = [to_ms + EFFECT_MS for _, to_ms in standstills(world)]
        over_ms = quiet_at_ms + STOP_MS if member is None else max([quiet_at_ms, *heard_ms])
        is_over = uncovered(world, over_ms, now_ms) == [(over_ms, now_ms)]
        return [] if is_over else [f"a stop was requested and was connected on after {world.stamp(over_ms)}"]
    if last == {"DELETE"}:
        return ["a request to stop came after the last POST, and the stream goes on"]
    if not keepers and member is None:
        return [] if final_status(world) else ["no execution runs and nobody stopped the stream"]
    if not keepers:
        if not any(link.refused_with in (204, *REFUSALS) for link in world.upstream.links):
            return ["nobody stopped the stream, its upstream has not ended it, and it is in no group"]
        # An older function may still be connected, and reads on.
        late = [link for link in world.upstream.links if link.asked_ms > quiet_at_ms + EFFECT_MS]
        return ["the stream is over and was opened again"] if late else []
    bound = quiet_at_ms + bound_ms(world) + (PACED_MS if member is not None else 0)
    if member is None:
        return not_connected(world, quiet_at_ms, bound, shortened_until_ms(world))
    # A function that no successor relieves keeps its hot-standby streams this much longer than the others.
    versions = [version for one in member.group.members for version in one.deployed]
    margins_s = [version.settings["margin_s"] for version in versions if version.profile.standby == "hot"]
    held_up_ms = 1000 * max(margins_s, default=0) // 2
    return not_connected(world, quiet_at_ms, bound, shortened_until_ms(member.group), held_up_ms)


def _needless_executions(group: Group) -> list[str]:
    """Returns the groups whose execution runs although none of their streams should be connected."""
    kept = {lease(one).get("group", {}).get("S") for one in group.members if not is_stopped(one)}
    held = {
        name: group.group_of(name).group_watch.lease.get("execution", {}).get("S", "") for name in sorted(group.all)
    }
    # The lease keeps naming an execution that a person aborted; that one does not run.
    running = {arn for arn, execution in group.account.executions.items() if execution.status == "RUNNING"}
    return [
        f"{name} has no stream left, and its execution runs"
        for name, arn in held.items()
        if name not in kept and arn in running
    ]


def _disturbed(member: Member) -> list[str]:
    """Returns when other streams that were cut, flooded, joined or left disturbed a stream before a fault hit it.

    It must join in time, whatever is deployed meanwhile, and stay connected.
    """
    opened = [link.opened_ms for link in member.upstream.links if link.opened_ms is not None]
    if not opened:
        return []
    # A redeployment is a fault only if executions wait for longer than its functions live.
    shortens = shortened_until_ms(member.group) > 0
    faults = [fault for fault in member.group.schedule.faults if shortens or fault.kind != "redeploy"]
    begins = [member.origin_ms + fault.at_ms for fault in (*faults, *member.own)]
    until_ms = min([member.clock.now_ms(), *begins])
    due_ms = member.answered[0] + EFFECT_MS + PACED_MS
    late = due_ms < min(until_ms, opened[0])
    texts = (
        [f"nothing had met it, and it joined at {member.stamp(opened[0])}, due at {member.stamp(due_ms)}"]
        if late
        else []
    )
    return texts + [
        f"nothing had met it, and it was not connected from {member.stamp(start)} to {member.stamp(end)}"
        for start, end in uncovered(member, min(opened), until_ms)
        if end - start > handover_ms(member, start)
    ]


# --- ends -------------------------------------------------------------------------------------------------------------


def _rejections_without_letter(world: World) -> list[str]:
    """Returns the rejections without a message in the dead-letter queue."""
    messages = world.account.queue.messages
    # In a group the function reports the stream; otherwise the machine reports its execution.
    reported = {message["stream"] for message in messages if "error" in message}
    executions = {message.get("execution") for message in messages}
    alone = {execution.name for execution in world.executions if execution.arn in executions}
    return [
        f"{name} was rejected at {world.stamp(at_ms)}, and no message says so"
        for name, at_ms in world.rejections
        if name not in (reported if isinstance(world, Member) else alone)
    ]


def end_word(execution: Execution) -> str:
    """Returns the status with which an execution released the stream, or "broken"; "" if it released nothing."""
    if execution.status == "FAILED":
        return "broken"
    word = execution.output.get("status", "") if isinstance(execution.output, dict) else ""
    return word if word in LAST_WORDS else ""


def final_status(world: World) -> str:
    """Returns the final status that the upstream's answer gave to a stream not requested since; "" for none.

    An answer does not count if the upstream has since accepted a successor that a renewal had started before.
    """
    last_post_ms = max(at_ms for at_ms, method in requests(world.schedule) if method == "POST") + world.origin_ms
    ends = [
        (execution.stopped_ms or 0, word)
        for execution in world.executions
        if (word := end_word(execution)) not in ("", "stopped")
        and (execution.stopped_ms or 0) >= last_post_ms
        and not _goes_on(world, execution)
    ]
    return max(ends)[1] if ends else ""


def _goes_on(world: World, execution: Execution) -> bool:
    """Returns whether a connection of another execution was answered after its end."""
    over_ms = execution.stopped_ms or 0
    return any(
        link.function.execution != execution.arn and (link.opened_ms or 0) > over_ms for link in world.upstream.links
    )


def _unnamed_ends(world: World) -> list[str]:
    """Returns the executions that ended in a way they should not, or do not say how they ended."""
    texts = []
    for execution in world.executions:
        names_it = isinstance(execution.output, dict) and bool(execution.output.get("status"))
        if execution.status == "SUCCEEDED" and not names_it:
            texts.append(f"{execution.name} succeeded and does not say how: {execution.output!r}")
        # While the queue refuses, a rejection cannot be reported, and the execution fails.
        is_unreported = execution.error == "StreamRejected" and any(
            fault.kind == "queue refuses" for fault in world.schedule.faults
        )
        is_aborted = execution.status == "ABORTED" and any("abort" in fault.kind for fault in world.schedule.faults)
        if execution.status not in ("RUNNING", "SUCCEEDED") and not (is_aborted or is_unreported):
            texts.append(f"{execution.name} ended {execution.status}: {execution.error} ({execution.cause})")
    return texts


# The ends of a connection that got no token or ticket: the server was away, or it refused.
UNREADY = ("refused", "rejected")


def _unexplained(world: World) -> list[str]:
    """Returns the connections that got no token or no ticket, and whose records give another reason."""
    details = {
        read_int(row, "fence"): read_text(row, "detail")
        for row in ledger_rows(world)
        if read_text(row, "ended_by") in UNREADY
    }
    return [
        f"link {link.number} ended by {details[link.fence]!r} and not by {link.unready!r}"
        for link in world.upstream.links
        if link.unready and details.get(link.fence, link.unready) != link.unready
    ]


def _of_functions(world: World) -> dict[str, list[str]]:
    """Returns the functions that Lambda had to end, or that had no time left for their records; and outdated ones."""
    # A function is excused if a standstill took a part of its margin.
    awake = [
        one
        for one in world.functions
        if one.frozen_until_ms <= (who := one.task.invocation).deadline_ms - who.margin_ms - one.skew_ms
    ]
    overdue = [f"{world.name_of(function)} was killed at its limit" for function in awake if function.timed_out]
    overdue += [f"{world.name_of(one)} ran out of time to ask the store" for one in awake if one.requests.ran_out]
    # A run goes on for longer than a function lives, so at its end all living functions have the newest version.
    newest = world.version.number
    outdated = [
        f"{world.name_of(one)} is of version {one.task.version} and {newest} is deployed"
        for one in world.functions
        if one.is_alive and one.task.version != newest
    ]
    return {"overdue": overdue, "outdated": outdated}

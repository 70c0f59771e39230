"""Decides whether the run of groups kept the promise: who must be connected, who must not, and what disturbs nobody.

What holds of every stream is `stream_rules.py`'s. It reads the worlds after the run and changes nothing. Invariant: a
calm stream is blamed for nothing that only others met.
"""

from local.chaos.execution_ends import outdated, overdue, unnamed
from local.chaos.group_world import Group, Member
from local.chaos.losses import uncovered
from local.chaos.schedule import requests
from local.chaos.stream_rules import (
    at,
    bound_ms,
    broken,
    handover_ms,
    is_stopped,
    lease,
    not_connected,
    quiet_ms,
    shortened_until_ms,
)

# How soon after a request is answered it has taken effect: a heartbeat, a reading, and what waits before it.
EFFECT_MS = 5_000
# How long openings of others may hold up one: they are paced, and each is young for a second.
PACED_MS = 3_000


def of_group(group: Group) -> dict[str, list[str]]:
    """What was broken in what the streams share."""
    return group.broken | {
        "stuck": _running_on(group),
        "unnamed-ends": unnamed(group),
        "outdated": outdated(group),
        "overdue": overdue(group),
    }


def of_member(member: Member) -> dict[str, list[str]]:
    """What was broken of one stream."""
    seen = broken(member)
    seen["dead-letters"] += _unlettered(member)
    return seen | {"stuck": _stuck(member), "disturbed": _disturbed(member)}


def _running_on(group: Group) -> list[str]:
    """Executions that run though none of their streams is to be connected."""
    kept = {lease(one).get("group", {}).get("S") for one in group.members if not is_stopped(one)}
    held = {name: group.named(name).group_watch.lease.get("execution", {}).get("S", "") for name in sorted(group.all)}
    # One that a person aborted stands in the lease for good, and does not run.
    running = {arn for arn, execution in group.account.executions.items() if execution.status == "RUNNING"}
    return [
        f"{name} has no stream left, and its execution runs"
        for name, arn in held.items()
        if name not in kept and arn in running
    ]


def quiet(member: Member) -> int:
    """When the last fault that meets the stream is over, and the last request for it has taken effect."""
    last_ms = member.origin_ms + quiet_ms(member.schedule, member.settings["task_timeout_s"])
    return max([last_ms, *(at_ms + EFFECT_MS for at_ms in member.answered)])


def _stuck(member: Member) -> list[str]:
    now_ms, quiet_at_ms = member.clock.now_ms(), quiet(member)
    asked = requests(member.schedule)
    last = {method for at_ms, method in asked if at_ms == asked[-1][0]}
    if not member.answered or (len(last) == 1 and member.wanted not in last):
        return ["the last request was never answered"]
    record = lease(member)
    is_of_group = "group" in record
    if is_stopped(member):
        if last == {"POST"}:
            return ["a POST came after the last request to stop, and the stream stays stopped"]
        if is_of_group:
            return ["the stream is to be stopped and is in its group yet"]
        is_over = uncovered(member, quiet_at_ms, now_ms) == [(quiet_at_ms, now_ms)]
        return [] if is_over else [f"the stream is to be stopped and was connected on after {at(member, quiet_at_ms)}"]
    if last == {"DELETE"}:
        return ["a request to stop came after the last POST, and the stream goes on"]
    if not is_of_group:
        refused = any(link.refused_with in (204, 403, 404) for link in member.upstream.links)
        if not refused:
            return ["nobody stopped the stream, its upstream has not ended it, and it is in no group"]
        # An older function may be connected yet, and reads on.
        late = [link for link in member.upstream.links if link.asked_ms > quiet_at_ms + EFFECT_MS]
        return ["the stream is over and was opened again"] if late else []
    bound = quiet_at_ms + bound_ms(member) + PACED_MS
    return not_connected(member, quiet_at_ms, bound, shortened_until_ms(member.group))


def _disturbed(member: Member) -> list[str]:
    """Where a stream that nothing has met was not connected, though others were cut, flooded, joined or left.

    Nor may it join late, whatever was deployed meanwhile.
    """
    opened = [link.opened_ms for link in member.upstream.links if link.opened_ms is not None]
    if member.own or not opened:
        return []
    # A redeployment is no fault, but where executions wait for longer than its functions live.
    shortens = shortened_until_ms(member.group) > 0
    faults = [fault for fault in member.group.schedule.faults if shortens or fault.kind != "redeploy"]
    begins = [member.origin_ms + fault.at_ms for fault in faults]
    until_ms = min([member.clock.now_ms(), *begins])
    due_ms = member.answered[0] + EFFECT_MS + PACED_MS
    late = due_ms < min(until_ms, opened[0])
    texts = (
        [f"nothing had met it, and it joined at {at(member, opened[0])}, due at {at(member, due_ms)}"] if late else []
    )
    return texts + [
        f"nothing had met it, and it was not connected from {at(member, start)} to {at(member, end)}"
        for start, end in uncovered(member, min(opened), until_ms)
        if end - start > handover_ms(member, start)
    ]


def _unlettered(member: Member) -> list[str]:
    """Rejections that a person should have got to know of."""
    reported = {message["stream"] for message in member.account.queue.messages if "error" in message}
    return [
        f"it was rejected at {at(member, at_ms)}, and no message says so"
        for _, at_ms in member.rejections
        if member.stream not in reported
    ]

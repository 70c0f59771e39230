"""How the executions and functions of a stream, or of a group, ended, in the words of its status.

Invariant: an execution that runs, or that made way for another, has no word.
"""

from local.chaos.schedule import requests
from local.chaos.world import World
from states_language import Execution

# What an execution wrote into the lease when it let go of the stream.
LAST_WORDS = ("stopped", "ended", "rejected")


def end_word(execution: Execution) -> str:
    """What became of the stream as it ended: one of LAST_WORDS, or "broken"; "" where it let go of nothing."""
    if execution.status == "FAILED":
        return "broken"
    word = execution.output.get("status", "") if isinstance(execution.output, dict) else ""
    return word if word in LAST_WORDS else ""


def over_as(world: World) -> str:
    """What the upstream, by its answer, made of a stream that nobody has asked for since: a status; "" for none.

    Not where it has answered a successor of that execution since, which a renewal had started before.
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
    """Whether a connection of another execution was answered after its end."""
    over_ms = execution.stopped_ms or 0
    return any(
        link.function.execution != execution.arn and (link.opened_ms or 0) > over_ms for link in world.upstream.links
    )


def unnamed(world: World) -> list[str]:
    """Executions that ended otherwise than they should, or do not say how."""
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


def overdue(world: World) -> list[str]:
    """Functions that did not end by themselves, or had no time left to write down how; freezing excuses it."""
    awake = [function for function in world.functions if not function.was_frozen]
    return [
        *(f"{world.name(function)} was killed at its limit" for function in awake if function.timed_out),
        *(
            f"{world.name(function)} ran out of time to ask the store"
            for function in awake
            if function.requests.ran_out
        ),
    ]


def outdated(world: World) -> list[str]:
    """A function lives for less than the calm, so at the end of a run all that live are of the newest version."""
    return [
        f"{world.name(function)} is of version {function.task.version} and {world.version.number} is deployed"
        for function in world.functions
        if function.is_alive and function.task.version != world.version.number
    ]

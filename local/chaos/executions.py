"""How the executions of a stream ended, in the words of its status.

Invariant: an execution that runs, or that made way for another, has no word.
"""

from __future__ import annotations

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
        link.client.execution != execution.arn and (link.opened_ms or 0) > over_ms for link in world.upstream.links
    )

"""Decides whether a stream is orphaned: its lease names an execution that is over, although no stop was requested.

Normally an execution removes its name from the lease when it ends. But a lease whose execution was aborted keeps the
name, and a table that was restored to an earlier state has an old one. Then the running execution reads another name,
returns `superseded` and ends, and no execution connects the stream any more.

The result of an execution is in its output, which restoring a table does not change, and the names of successors follow
from those of their predecessors. So the youngest execution says whether the stream should go on.

Pure; times are in milliseconds. Invariant: every caller that replaces an execution uses the same names, so two that do
it at once start only one.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Iterator
from itertools import count

from handlers.connection.lease import Lease, unconnected_ms

# How long a stream must be unconnected before Step Functions is asked: longer than a claim takes.
GRACE_MS = 10_000
# A stream is started again once a minute at most.
START_EVERY_MS = 60_000
_REPLACEMENT = re.compile(r":[0-9a-f]{40}-orphan-[0-9]+\Z")
_DONE = ("ended", "rejected", "stopped")


class Verdict(enum.Enum):
    """What an execution's end says about its stream."""

    RUNS = "it runs"
    OVER = "it is over, and the stream should continue"
    DONE = "it is over, as the stream is"
    ASIDE = "it never had the stream"


def is_suspect(lease: Lease, now_ms: int) -> bool:
    """Returns whether to ask about the execution in the lease: the stream has been unconnected for long enough."""
    return unconnected_ms(lease, now_ms) >= GRACE_MS


def judge_execution(status: str, output: str) -> Verdict:
    """Returns what an execution says about its stream, from the `status` and `output` that Step Functions answered.

    The status "" means that Step Functions no longer knows the execution; the machine takes that for dead too.
    """
    # Source: DescribeExecution, status. An execution that waits for a redrive is not over.
    if status in ("RUNNING", "PENDING_REDRIVE"):
        return Verdict.RUNS
    result = _result(output)
    if status != "SUCCEEDED":
        return Verdict.OVER
    if result == "AlreadyRunning":
        return Verdict.ASIDE
    return Verdict.DONE if result in _DONE else Verdict.OVER


def successor_names(stream_id: str, execution: str) -> tuple[Iterator[str], ...]:
    """Returns the names that executions started by `execution` (an ARN), or in its place, may have.

    Follow each iterator until a name is unknown. The first three are those of the machine's definition.
    """
    digest = _digest(execution)
    return (
        (f"{digest}-{number}" for number in count(1)),
        iter([f"{digest}-last"]),
        iter([f"{digest}-claim"]),
        start_names(stream_id, execution),
    )


def start_names(stream_id: str, execution: str) -> Iterator[str]:
    """Returns the names, in order, for executions that replace `execution` (an ARN), which is over."""
    # The stream's id is part of the name, because damaged leases of two streams may name one execution.
    digest = _digest(json.dumps([stream_id, execution]))
    return (f"{digest}-orphan-{number}" for number in count())


def is_replacement(execution: str) -> bool:
    """Returns whether `execution` (an ARN) was itself started to replace another."""
    return _REPLACEMENT.search(execution) is not None


def start_input(stream_id: str, execution: str) -> str:
    """Returns the input of a replacing execution: it renews the one that is over, so it clears no stop request."""
    return json.dumps({"pathParameters": {"streamId": stream_id}, "renews": execution}, ensure_ascii=False)


def _digest(text: str) -> str:
    # The machine names its successors in the same way: $hash(…, 'SHA-1').
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _result(output: str) -> str:
    """Returns the status in an execution's output; "" without one."""
    try:
        status = json.loads(output)["status"]
    except (ValueError, KeyError, TypeError):
        return ""
    return status if isinstance(status, str) else ""

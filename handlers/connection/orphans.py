"""Decides whether a stream is orphaned: its lease names an execution that is over, though no stop was requested.

Normally no execution leaves its name behind. But a table that was set back to an older state has an old name again, and
so has a lease whose execution somebody aborted. The execution that runs then reads another name, returns `superseded`
and ends, and nobody connects any more.

An execution's result is in its output, which no table can set back, and successors' names follow from their
predecessor's. So the youngest execution says whether the stream is to go on.

Pure, times in milliseconds. Invariant: whoever starts an execution in place of one uses the same names, so two that
start at once start one.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Iterator
from itertools import count

from handlers.connection.lease import Lease, unconnected_ms

# How long nobody is connected before Step Functions is asked: longer than a claim takes.
GRACE_MS = 10_000
# One stream is started again once a minute at most.
START_EVERY_MS = 60_000
_STARTED = re.compile(r":[0-9a-f]{40}-orphan-[0-9]+\Z")
_DONE = ("ended", "rejected", "stopped")


class Verdict(enum.Enum):
    """What an execution says of its stream."""

    RUNS = "it runs"
    OVER = "it is over, and the stream is to go on"
    DONE = "it is over, as the stream is"
    ASIDE = "it never had the stream"


def is_suspect(lease: Lease, now_ms: int) -> bool:
    """Returns whether to ask about the execution that the lease names: nobody has been connected for long enough."""
    return unconnected_ms(lease, now_ms) >= GRACE_MS


def verdict(status: str, output: str) -> Verdict:
    """Returns what an execution says of its stream, by the `status` and `output` that Step Functions answered.

    "" is the status of one that Step Functions does not know any more; the machine takes that for dead too.
    """
    # Source: DescribeExecution, status; one that waits for a redrive is not over.
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

    Each iterator goes on until a name is unknown. The machine's definition gives the first three.
    """
    digest = _digest(execution)
    return (
        (f"{digest}-{number}" for number in count(1)),
        iter([f"{digest}-last"]),
        iter([f"{digest}-claim"]),
        start_names(stream_id, execution),
    )


def start_names(stream_id: str, execution: str) -> Iterator[str]:
    """Returns the names for executions in place of `execution` (an ARN), which is over, one after the other."""
    # Damaged leases of two streams may name one execution.
    digest = _digest(json.dumps([stream_id, execution]))
    return (f"{digest}-orphan-{number}" for number in count())


def was_started(execution: str) -> bool:
    """Returns whether `execution` (an ARN) was itself started in place of another."""
    return _STARTED.search(execution) is not None


def start_input(stream_id: str, execution: str) -> str:
    """Returns the input of what is started: it renews the one that is over, so it clears no stop request."""
    return json.dumps({"pathParameters": {"streamId": stream_id}, "renews": execution}, ensure_ascii=False)


def _digest(text: str) -> str:
    # As the machine names its successors: $hash(…, 'SHA-1').
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _result(output: str) -> str:
    """The status in an execution's output; "" where there is none."""
    try:
        status = json.loads(output)["status"]
    except (ValueError, KeyError, TypeError):
        return ""
    return status if isinstance(status, str) else ""

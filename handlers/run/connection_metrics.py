"""Makes the document that a function prints when a connection ends, in CloudWatch's embedded metric format.

All numbers are fields of the document, so queries of the log find them. The stage decides which of them CloudWatch
keeps as metrics, each of which costs money every month:

    "stage"     of all streams together: stored events and what went wrong, if it is not 0
    "profile"   all of them for each profile, 0 included
    "stream"    the same of connections, and by stream what the delivery counts (handlers/deliver/delivery_metrics.py)

For a stream that shares a function the document names the group, so that queries of the log can sum up by it.

Pure. Source: "Specification: Embedded metric format", CloudWatch User Guide. Invariant: a document holds the profile's
name, the group and numbers, nothing that the upstream sent.
"""

from collections.abc import Sequence
from typing import Any, Literal

from handlers.connection.steps import Report

By = Literal["stage", "profile", "stream"]
COUNT, MILLISECONDS = "Count", "Milliseconds"
# The metric that counts an end, by the function's error.
ENDS = {
    "StreamDropped": "Dropped",
    "StreamTakenOver": "TakenOver",
    "StreamThrottled": "Throttled",
    "StreamRejected": "Rejected",
    "ConnectionExpired": "Expired",
    "StoreUnavailable": "StoreUnavailable",
}
# Harmless, so kept by profile only: an overlap brings duplicates, and every connection is taken over.
_USUAL = frozenset({"Duplicates", "LeftOut", "BlockedMs", "ConnectMs", "TakenOver"})


def numbers(report: Report, blocked_ms: int) -> dict[str, int]:
    """Returns all numbers of a connection that has ended, by the names of their metrics."""
    progress, outcome = report.progress, report.outcome
    values = {
        "Stored": progress.stored,
        "Duplicates": progress.duplicates,
        "DeadLettered": progress.dead_lettered,
        "BlockedMs": blocked_ms,
    }
    rare = {"Conflicts": progress.conflicts, "Missing": progress.missing, "LeftOut": progress.left_out}
    values |= {name: value for name, value in rare.items() if value}
    if report.connect_ms is not None:
        values["ConnectMs"] = report.connect_ms
    if outcome.error in ENDS:
        values[ENDS[outcome.error]] = 1
    return values


def metrics_to_keep(values: dict[str, int], by: By) -> list[str]:
    """Returns the names of the numbers that CloudWatch keeps as metrics."""
    return [name for name, value in values.items() if by != "stage" or (value and name not in _USUAL)]


def document(
    values: dict[str, int],
    outcome: str,
    *,
    profile: str,
    service: str,
    namespace: str,
    by: By,
    now_ms: int,
    group: str = "",
) -> dict[str, Any]:
    """The document of the numbers of a connection that has ended, or of several that ended alike."""
    place = {"group": group} if group else {}
    fields = {"profile": profile, **place, "service": service, "outcome": outcome, **values}
    dimensions = ["service"] if by == "stage" else ["profile", "service"]
    return embedded_document(fields, metrics_to_keep(values, by), dimensions, namespace, now_ms)


def embedded_document(
    fields: dict[str, Any], names: Sequence[str], dimensions: Sequence[str], namespace: str, now_ms: int
) -> dict[str, Any]:
    """The document of these fields, of which CloudWatch keeps the named ones as metrics; without names, the fields."""
    if not names:
        return fields
    directive = {
        "Namespace": namespace,
        "Dimensions": [dimensions],
        "Metrics": [{"Name": name, "Unit": MILLISECONDS if name.endswith("Ms") else COUNT} for name in names],
    }
    return {"_aws": {"Timestamp": now_ms, "CloudWatchMetrics": [directive]}, **fields}

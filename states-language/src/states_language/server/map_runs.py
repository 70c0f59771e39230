"""Describes the Map Runs of an execution as DescribeMapRun does, and as they are stored when the execution ends.

It describes the first thousand executions, and the histories of the first hundred. Once the parent has ended, it keeps
their inputs, outputs and histories as far as MOST_KEPT goes. Invariant: times are milliseconds since 1970.
"""

from collections import Counter
from typing import Any

from states_language import Execution
from states_language.distributed.report import ChildExecution, MapRunReport
from states_language.place import TOO_MANY_EVENTS
from states_language.server.journals import TOO_LONG
from states_language.values import estimate_json_length

MOST_EXECUTIONS = 1000
MOST_HISTORIES = 100
MOST_KEPT = 2_000_000
"""The characters of inputs, outputs and histories that are written and stay in memory when an execution ends."""
UNSUCCESSFUL = frozenset({"FAILED", "TIMED_OUT", "ABORTED"})
UNBOUNDED = 2**31 - 1
"""The MaxConcurrency that AWS reports for a Map without one (measured by others)."""
_COUNTED = {"RUNNING": "running", "SUCCEEDED": "succeeded", "FAILED": "failed"} | {
    "TIMED_OUT": "timedOut",
    "ABORTED": "aborted",
    "PENDING_REDRIVE": "pendingRedrive",
}


def describe_map_runs(execution: Execution) -> list[dict[str, Any]]:
    """Returns the descriptions of the Map Runs of an execution, with DescribeMapRun's names."""
    return [_describe(run, execution) for run in execution.map_runs]


def trim(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the descriptions without the texts and histories that come after the first MOST_KEPT characters."""
    left = MOST_KEPT
    for one in (execution for run in runs for execution in run["executions"]):
        left -= sum(len(one.get(name, "")) for name in ("input", "output"))
        for event in one.get("events", ()) if left >= 0 else ():
            left -= estimate_json_length(event, {})
            if left < 0:
                break
        if left < 0:
            one.pop("events", None)
            for name in ("input", "output"):
                if one.pop(name, None) is not None:
                    one[f"{name}Details"] = {"included": False}
    return runs


def merge_redriven(earlier: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the Map Runs from before a redrive and since; a redriven one keeps its place in the order."""
    later = {run["mapRunArn"]: run for run in now}
    again = [_merge_events(run, later.pop(run["mapRunArn"], run)) for run in earlier]
    return [*again, *later.values()]


def _merge_events(earlier: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Returns the description of a redriven Map Run, with its executions' events from before the redrive."""
    before = {one["executionArn"]: one.get("events") for one in earlier["executions"]}
    for one in now["executions"] if now is not earlier else ():
        former = before.get(one["executionArn"], [])
        if former is None:
            one.pop("events", None)  # the beginning of the history was not kept
        elif "events" in one:
            first = one["events"][0]["id"] if one["events"] else None
            one["events"] = [event for event in former if first is None or event["id"] < first] + one["events"]
    return now


def _describe(run: MapRunReport, above: Execution) -> dict[str, Any]:
    statuses = Counter(_COUNTED[one.status] for one in run.executions)
    answer: dict[str, Any] = {
        "mapRunArn": run.arn,
        "executionArn": above.arn,
        "stateMachineArn": run.machine_arn,
        "status": run.status,
        "startDate": run.started_ms,
        "maxConcurrency": run.max_concurrency or UNBOUNDED,
        "toleratedFailureCount": int(run.tolerated_count or 0),
        "toleratedFailurePercentage": float(run.tolerated_percentage or 0),
        "executionCounts": _counts(statuses, len(run.executions)),
        "itemCounts": _item_counts(run, statuses),
        "redriveCount": run.redrives,
        "express": run.express,
        "executions": [
            _describe_child(one, run, at < MOST_HISTORIES) for at, one in enumerate(run.executions[:MOST_EXECUTIONS])
        ],
    }
    full = sum(_is_full(one, run) for one in run.executions)
    answer["executionCounts"]["failuresNotRedrivable"] = full
    if not run.batched:
        answer["itemCounts"]["failuresNotRedrivable"] = full
    if run.redriven_ms is not None:
        answer["redriveDate"] = run.redriven_ms
    if run.stopped_ms is None:
        return answer
    for counts in (answer["executionCounts"], answer["itemCounts"]):
        counts["resultsWritten"] = counts["total"] - counts["pending"] - counts["running"]
    return answer | {"stopDate": run.stopped_ms}


def _item_counts(run: MapRunReport, statuses: "Counter[str]") -> dict[str, int]:
    """Returns the counts of items. With batches, only the failed items and the run's status are known."""
    if not run.batched:
        return _counts(statuses, run.total)
    left = {"SUCCEEDED": "succeeded", "RUNNING": "pending"}.get(run.status, "aborted")
    return _counts(Counter({"failed": run.failed, left: max(0, run.total - run.failed)}), run.total)


def _counts(statuses: "Counter[str]", total: int) -> dict[str, int]:
    counts = {name: statuses[name] for name in _COUNTED.values()}
    pending = max(statuses["pending"], total - sum(counts.values()))
    none = dict.fromkeys(("resultsWritten", "failuresNotRedrivable"), 0)
    return {**counts, "pending": pending, "total": total, **none}


def _is_full(execution: ChildExecution, run: MapRunReport) -> bool:
    """Returns whether its history is too long for a redrive; never for an Express execution, which starts afresh."""
    return not run.express and execution.event_count >= TOO_MANY_EVENTS and execution.status in UNSUCCESSFUL


def _describe_child(execution: ChildExecution, run: MapRunReport, with_history: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "executionArn": execution.arn,
        "stateMachineArn": execution.machine_arn,
        "name": execution.name,
        "status": execution.status,
        "startDate": execution.started_ms,
        "input": execution.input_text,
        "redriveCount": execution.redrives,
    }
    if execution.redriven_ms is not None:
        answer["redriveDate"] = execution.redriven_ms
    if _is_full(execution, run):
        answer["redriveStatusReason"] = TOO_LONG
    if execution.status == "SUCCEEDED":
        answer["output"] = execution.output_text
    texts = {"error": execution.error, "cause": execution.cause}
    answer |= {name: text for name, text in texts.items() if text is not None}
    if with_history:
        answer["events"] = execution.history
    return answer if execution.stopped_ms is None else answer | {"stopDate": execution.stopped_ms}

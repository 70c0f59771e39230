"""The runs of distributed Maps as they are told and kept.

Decides what is kept of a run when its execution has ended: numbers, the first thousand of its executions, and what
happened in the first hundred. It does not know how a run goes. Invariant: times are milliseconds since 1970.
"""

from collections import Counter
from typing import Any

from states_language import Execution
from states_language.distributed.report import ChildExecution, MapRunReport
from states_language.values import compact

MOST_EXECUTIONS = 1000
MOST_HISTORIES = 100
UNBOUNDED = 2**31 - 1
"""What AWS tells as MaxConcurrency where there is none (measured by others)."""
_COUNTED = {"RUNNING": "running", "SUCCEEDED": "succeeded", "FAILED": "failed"} | {
    "TIMED_OUT": "timedOut",
    "ABORTED": "aborted",
}


def kept(execution: Execution) -> list[dict[str, Any]]:
    """Returns what is told of the Map Runs of an execution, as DescribeMapRun names it."""
    return [_told(run, execution) for run in execution.map_runs]


def _told(run: MapRunReport, above: Execution) -> dict[str, Any]:
    statuses = Counter(_COUNTED[one.status] for one in run.executions)
    found: dict[str, Any] = {
        "mapRunArn": run.arn,
        "executionArn": above.arn,
        "stateMachineArn": run.machine_arn,
        "status": run.status,
        "startDate": run.started_ms,
        "maxConcurrency": run.max_concurrency or UNBOUNDED,
        "toleratedFailureCount": int(run.tolerated_count or 0),
        "toleratedFailurePercentage": float(run.tolerated_percentage or 0),
        "executionCounts": _counts(statuses, len(run.executions)),
        "itemCounts": _items(run, statuses),
        "redriveCount": 0,
        "executions": [_child(one, at < MOST_HISTORIES) for at, one in enumerate(run.executions[:MOST_EXECUTIONS])],
    }
    if run.stopped_ms is None:
        return found
    for counts in (found["executionCounts"], found["itemCounts"]):
        counts["resultsWritten"] = counts["total"] - counts["pending"] - counts["running"]
    return found | {"stopDate": run.stopped_ms}


def _items(run: MapRunReport, statuses: "Counter[str]") -> dict[str, int]:
    """Without batches an execution is an item; with them the failed ones are known, and the rest by the run's end."""
    if not run.batched:
        return _counts(statuses, run.total)
    left = {"SUCCEEDED": "succeeded", "RUNNING": "pending"}.get(run.status, "aborted")
    return _counts(Counter({"failed": run.failed, left: max(0, run.total - run.failed)}), run.total)


def _counts(statuses: "Counter[str]", total: int) -> dict[str, int]:
    counts = {name: statuses[name] for name in _COUNTED.values()}
    pending = max(statuses["pending"], total - sum(counts.values()))
    none = dict.fromkeys(("resultsWritten", "failuresNotRedrivable", "pendingRedrive"), 0)
    return {**counts, "pending": pending, "total": total, **none}


def _child(execution: ChildExecution, with_history: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "executionArn": execution.arn,
        "stateMachineArn": execution.machine_arn,
        "name": execution.name,
        "status": execution.status,
        "startDate": execution.started_ms,
        "input": compact(execution.input),
    }
    if execution.status == "SUCCEEDED":
        found["output"] = compact(execution.output)
    found |= {name: told for name, told in (("error", execution.error), ("cause", execution.cause)) if told is not None}
    if with_history:
        found["events"] = execution.history
    return found if execution.stopped_ms is None else found | {"stopDate": execution.stopped_ms}

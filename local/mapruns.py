"""The runs of distributed Maps as they are told and kept.

Decides what is kept of a run when its execution has ended: numbers, and the first thousand of its executions. It does
not know how a run goes. Invariant: times are milliseconds since 1970.
"""

from collections import Counter
from typing import Any

from local.asl import Execution
from local.asl.maprun import MapRun

MOST_EXECUTIONS = 1000
_COUNTED = {"RUNNING": "running", "SUCCEEDED": "succeeded", "FAILED": "failed"} | {
    "TIMED_OUT": "timedOut",
    "ABORTED": "aborted",
}


def kept(execution: Execution) -> list[dict[str, Any]]:
    """Returns what is told of the Map Runs of an execution, as DescribeMapRun names it."""
    return [_told(run, execution) for run in execution.map_runs]


def _told(run: MapRun, above: Execution) -> dict[str, Any]:
    statuses = Counter(_COUNTED[one.status] for one in run.executions)
    found: dict[str, Any] = {
        "mapRunArn": run.arn,
        "executionArn": above.arn,
        "stateMachineArn": run.machine_arn,
        "status": run.status,
        "startDate": run.started_ms,
        "maxConcurrency": run.max_concurrency,
        "toleratedFailureCount": int(run.tolerated[0] or 0),
        "toleratedFailurePercentage": float(run.tolerated[1] or 0),
        "executionCounts": _counts(statuses, len(run.executions)),
        "itemCounts": _items(run, statuses),
        "redriveCount": 0,
        "executions": [_child(one) for one in run.executions[:MOST_EXECUTIONS]],
    }
    return found if run.stopped_ms is None else found | {"stopDate": run.stopped_ms}


def _items(run: MapRun, statuses: "Counter[str]") -> dict[str, int]:
    """Without batches an execution is an item; with them the failed ones are known, and the rest by the run's end."""
    if run.state.batcher is None:
        return _counts(statuses, run.total)
    left = {"SUCCEEDED": "succeeded", "RUNNING": "pending"}.get(run.status, "aborted")
    return _counts(Counter({"failed": run.failed, left: max(0, run.total - run.failed)}), run.total)


def _counts(statuses: "Counter[str]", total: int) -> dict[str, int]:
    counts = {name: statuses[name] for name in _COUNTED.values()}
    pending = max(statuses["pending"], total - sum(counts.values()))
    return {**counts, "pending": pending, "total": total, "resultsWritten": 0}


def _child(execution: Execution) -> dict[str, Any]:
    found: dict[str, Any] = {
        "executionArn": execution.arn,
        "stateMachineArn": execution.machine_arn,
        "name": execution.name,
        "status": execution.status,
        "startDate": execution.started_ms,
    }
    return found if execution.stopped_ms is None else found | {"stopDate": execution.stopped_ms}

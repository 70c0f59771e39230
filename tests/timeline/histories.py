"""Makes histories from a few words."""

from typing import Any


def history(*events: tuple[int, int, str, int]) -> list[dict[str, Any]]:
    """Events from (id, previousEventId, type, milliseconds)."""
    return [{"id": i, "previousEventId": p, "type": kind, "timestamp": at} for i, p, kind, at in events]


TWO_LANES = history(
    (1, 0, "ExecutionStarted", 0),
    (2, 0, "ParallelStateEntered", 5),
    (3, 2, "ParallelStateStarted", 5),
    (4, 3, "TaskStateEntered", 5),
    (5, 3, "WaitStateEntered", 5),
    (6, 4, "TaskScheduled", 5),
    (7, 6, "TaskStarted", 5),
    (8, 5, "WaitStateExited", 35),
    (9, 8, "TaskStateEntered", 36),
    (10, 9, "LambdaFunctionScheduled", 36),
    (11, 10, "LambdaFunctionStarted", 36),
    (12, 7, "TaskFailed", 40),
    (13, 12, "TaskScheduled", 41),
    (14, 13, "TaskStarted", 41),
    (15, 14, "TaskTimedOut", 50),
    (16, 11, "TaskStateAborted", 50),
)
"""Lane B fails once and times out; lane A waits, runs and is aborted."""

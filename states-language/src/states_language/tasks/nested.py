"""Completes states:startExecution.sync when the execution that it started has ended.

`.sync` returns input and output as texts, `.sync:2` as JSON. Source: AWS Step Functions Developer Guide, "Start a new
AWS Step Functions workflow"; the failure's shape is recorded.
"""

import json
from dataclasses import dataclass
from typing import Any

from states_language.tasks.callbacks import Pending
from states_language.tasks.integrations import SYNC_2
from states_language.values import compact


@dataclass(frozen=True)
class Ended:
    """An execution that has ended: `input` and `output` are JSON texts, times milliseconds since 1970."""

    arn: str
    machine_arn: str
    name: str
    status: str
    input: str
    started_ms: int
    stopped_ms: int
    output: str | None = None
    error: str | None = None
    cause: str | None = None


def settle(pending: Pending, pattern: str, ended: Ended) -> None:
    """Complete the Task that waits for the execution: it succeeds or fails with it."""
    if ended.status == "SUCCEEDED":
        pending.succeed(_described(ended, parse=pattern == SYNC_2))
    else:
        # The input of one that failed is a text in both forms (measured by others).
        pending.fail("States.TaskFailed", compact(_described(ended, parse=False)))


def _described(ended: Ended, *, parse: bool) -> dict[str, Any]:
    result: dict[str, Any] = {
        "Cause": ended.cause,
        "Error": ended.error,
        "ExecutionArn": ended.arn,
        "Input": json.loads(ended.input) if parse else ended.input,
        "InputDetails": {"Included": True},
        "Name": ended.name,
    }
    if ended.output is not None:
        result["Output"] = json.loads(ended.output) if parse else ended.output
        result["OutputDetails"] = {"Included": True}
    result |= {
        "StartDate": ended.started_ms,
        "StateMachineArn": ended.machine_arn,
        "Status": ended.status,
        "StopDate": ended.stopped_ms,
    }
    return {name: value for name, value in result.items() if value is not None or name in ("Input", "Output")}

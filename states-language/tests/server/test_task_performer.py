"""Tasks are performed until the service stops."""

import asyncio
from pathlib import Path
from typing import Any

from endpoint import client, invoke
from states_language import load
from states_language.clock import RealClock
from states_language.server import StepFunctions, TaskPerformer

TASK = {
    "Type": "Task",
    "Resource": "arn:aws:states:::dynamodb:getItem",
    "Parameters": {"TableName": "none", "Key": {"PK": {"S": "none"}}},
    "End": True,
}


def test_a_stop_at_any_moment_of_a_task_is_quiet(tmp_path: Path) -> None:
    """Whether the call has been made, is about to be or waits for a thread: nothing is raised that nobody handles."""
    machine = load({"StartAt": "Ask", "States": {"Ask": TASK}})
    problems: list[dict[str, Any]] = []

    async def stopped_after(turns: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, problem: problems.append(problem))
        clock = RealClock()
        performer = TaskPerformer(invoke, client, StepFunctions(tmp_path, clock))
        execution = machine.start({}, clock=clock, perform=performer.perform)
        for _ in range(turns):
            await asyncio.sleep(0)
        execution.stop()
        performer.close()
        for _ in range(3):
            await asyncio.sleep(0)

    for turns in range(6):
        asyncio.run(stopped_after(turns))
    assert problems == []

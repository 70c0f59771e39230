"""Starts and describes the executions of one machine, as Step Functions does.

Invariant: executions are kept in the order in which they began, and none is forgotten.
"""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from states_language import Execution, Latencies, Machine, Pending, Perform, TaskCall, TaskFailure
from states_language.clock import Clock
from states_language.tasks.callbacks import Ended, complete_from_execution
from states_language.tasks.resources import SYNC
from states_language.values import compact


class VirtualExecutions:
    """The executions of one machine, which may be replaced while they run; `all` has them, oldest first."""

    def __init__(self, machine: Machine, clock: Clock, latencies: Latencies) -> None:
        self.machine = machine
        self._clock = clock
        self._latencies = latencies
        self.all: list[Execution] = []

    @property
    def newest_execution(self) -> Execution:
        """Returns the youngest running execution; without one, the execution that ended last."""
        return max(self.all, key=lambda one: (one.status == "RUNNING", one.stopped_ms or one.started_ms))

    def begin(self, data: Any, perform: Perform) -> Execution:
        """Starts the first execution and returns it; `perform` carries out its Tasks and those of its successors."""
        self._perform = perform
        return self._start(data, None)

    async def wait_until_over(self) -> None:
        """Returns once no execution runs."""
        while any(one.status == "RUNNING" for one in self.all):
            await next(one for one in self.all if one.status == "RUNNING").wait()

    def start(self, call: TaskCall) -> Any:
        """Returns StartExecution's answer; raises TaskFailure with AWS's error name."""
        parameters = call.parameters
        machine_arn, name = self.all[0].machine_arn, parameters.get("Name")
        if parameters.get("StateMachineArn") != machine_arn:
            cause = f"State Machine Does Not Exist: '{parameters.get('StateMachineArn')}'"
            raise TaskFailure("StepFunctions.StateMachineDoesNotExistException", cause)
        data = parameters.get("Input", {})
        data = json.loads(data) if isinstance(data, str) else data
        execution = next((one for one in self.all if name is not None and one.name == name), None)
        if execution is None:
            execution = self._start(data, name)
        elif execution.status != "RUNNING" or execution.input != data:
            # StartExecution returns a running execution with the same input again; otherwise the name is taken.
            raise TaskFailure("StepFunctions.ExecutionAlreadyExistsException", f"Execution Already Exists: '{name}'")
        if call.pending is not None and call.pattern.startswith(SYNC):
            waiting = asyncio.ensure_future(_finish(call.pending, call.pattern, execution))
            execution.background.add(waiting)
            waiting.add_done_callback(execution.background.discard)
        return {"ExecutionArn": execution.arn, "StartDate": execution.started_ms / 1000}

    def describe(self, call: TaskCall) -> Any:
        """Returns DescribeExecution's answer; raises TaskFailure with AWS's error name."""
        arn = call.parameters["ExecutionArn"]
        for one in self.all:
            if one.arn == arn:
                return {"ExecutionArn": arn, "Name": one.name, "Status": one.status}
        raise TaskFailure("Sfn.ExecutionDoesNotExistException", f"Execution Does Not Exist: '{arn}'")

    def _start(self, data: Any, name: str | None) -> Execution:
        execution = self.machine.start(
            data, clock=self._clock, perform=self._perform, name=name, latencies=self._latencies
        )
        self.all.append(execution)
        return execution


async def _finish(pending: Pending, pattern: str, execution: Execution) -> None:
    await execution.wait()
    assert execution.stopped_ms is not None
    ended = Ended(
        arn=execution.arn,
        machine_arn=execution.machine_arn,
        name=execution.name,
        status=execution.status,
        input=compact(execution.input),
        started_ms=execution.started_ms,
        stopped_ms=execution.stopped_ms,
        output=compact(execution.output) if execution.status == "SUCCEEDED" else None,
        error=execution.error,
        cause=execution.cause,
    )
    complete_from_execution(pending, pattern, ended)


class StatesClient:
    """Step Functions with the methods of boto3's client: `find` returns an execution by its ARN, `start` starts one."""

    def __init__(self, find: Callable[[str], Execution | None], start: Callable[[str, Any], Execution]) -> None:
        self._find, self._start = find, start

    def describe_execution(self, *, executionArn: str) -> dict[str, Any]:
        """As boto3's; raises ExecutionDoesNotExist."""
        one = self._find(executionArn)
        if one is None:
            raise ClientError({"Error": {"Code": "ExecutionDoesNotExist"}}, "DescribeExecution")
        output = {"output": json.dumps(one.output)} if one.status == "SUCCEEDED" else {}
        return {"status": one.status, "startDate": datetime.fromtimestamp(one.started_ms / 1000, UTC), **output}

    def start_execution(self, *, name: str, input: str, **_machine: str) -> dict[str, Any]:
        """As boto3's."""
        return {"executionArn": self._start(name, json.loads(input)).arn}

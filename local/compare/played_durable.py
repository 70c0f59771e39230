"""Plays Lambda for a durable function (`durable.py`), in virtual time.

AWS's own testing package keeps the executions: it validates and applies checkpoints, builds what an invocation is
given, and its clock is ours. This module is what its runner does on threads and in real time: it invokes the handler
when an operation is over, calls the functions that the handler invokes, and ends waits when they are due.

Invariant: while the handler runs the time stands still, and what it asked for begins once it has returned, in the order
of the lanes. So the threads of the SDK change nothing in a result.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aws_durable_execution_sdk_python import state
from aws_durable_execution_sdk_python.lambda_service import (
    CheckpointOutput,
    DurableServiceClient,
    ErrorObject,
    InvocationStatus,
    OperationStatus,
    OperationType,
    OperationUpdate,
    StateOutput,
)
from aws_durable_execution_sdk_python_testing.checkpoint.processor import CheckpointProcessor
from aws_durable_execution_sdk_python_testing.execution import Execution
from aws_durable_execution_sdk_python_testing.invoker import InProcessInvoker
from aws_durable_execution_sdk_python_testing.model import StartDurableExecutionInput
from aws_durable_execution_sdk_python_testing.observer import ExecutionObserver
from aws_durable_execution_sdk_python_testing.stores.memory import InMemoryExecutionStore

from local.compare.durable import OPERATIONS, handler_on
from local.compare.played_world import World
from local.compare.result import Result
from local.simulation.scenario import Scenario
from local.simulation.virtual_stage import INPUT
from states_language import TaskFailure
from states_language.clock import VirtualClock
from timeline.spans import Span

OWN = "durable"
HANDLER_MS = 100
"""What an invocation of the handler is billed: an estimate, for nobody measured it."""
RETENTION_DAYS = 14
_YEAR_S, _GB, _DAYS_A_MONTH = 31_536_000, 1e9, 365 / 12
# How long the SDK's own thread may take to see that an invocation is over, in real time; its 0.1 s would be waited for.
_POLL_S = 0.001


class _Clock:
    """The virtual clock as the testing package reads it."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)

    def arm(self, wake: datetime) -> float:
        raise NotImplementedError(f"{wake}: this clock's timers are armed by {__name__}")


class _Service(DurableServiceClient):
    """Lambda's checkpoints, as the SDK calls them."""

    def __init__(self, processor: CheckpointProcessor) -> None:
        self._processor = processor

    def checkpoint(
        self,
        durable_execution_arn: str,  # noqa: ARG002
        checkpoint_token: str,
        updates: list[OperationUpdate],
        client_token: str | None,
    ) -> CheckpointOutput:
        return self._processor.process_checkpoint(checkpoint_token, updates, client_token)

    def get_execution_state(
        self,
        durable_execution_arn: str,  # noqa: ARG002
        checkpoint_token: str,
        next_marker: str,
        max_items: int = 1000,
    ) -> StateOutput:
        return self._processor.get_execution_state(checkpoint_token, next_marker, max_items)


class PlayedDurable(ExecutionObserver):
    """The durable executions of one stream; `invocations` are the handler's, `written` the bytes of checkpoints."""

    def __init__(self, world: World, operations: int = OPERATIONS) -> None:
        self._world = world
        self._clock = _Clock(world.clock)
        self._store = InMemoryExecutionStore()
        processor = CheckpointProcessor(self._store, None, self._clock)  # type: ignore[arg-type]  # it keeps no scheduler
        processor.add_execution_observer(self)
        service: Any = _Service(processor)
        self._invoker = InProcessInvoker(handler_on(self, operations), service)
        self._asked: list[tuple[str, str, dict[str, Any]]] = []
        self._fresh: list[dict[str, Any]] = []
        self._armed: set[tuple[str, str]] = set()
        self.executions: list[Execution] = []
        self.invocations = 0
        self.written = 0

    def invoke(self, **request: Any) -> Any:
        """Takes an asynchronous invocation of the function itself: of two with a name the first starts an execution."""
        names = [execution.start_input.execution_name for execution in self.executions]
        if request["DurableExecutionName"] not in [*names, *(one["DurableExecutionName"] for one in self._fresh)]:
            self._fresh.append(request)
        return {"StatusCode": 202}

    def begin(self, payload: str, name: str) -> None:
        """Starts an execution now."""
        started = StartDurableExecutionInput(
            "123456789012", OWN, "$LATEST", name, _YEAR_S, RETENTION_DAYS, invocation_id=name, input=payload
        )
        execution = Execution.new(started)
        execution.start(self._clock.now())
        self._store.save(execution)
        self.executions.append(execution)
        self.written += len(payload)
        self._advance(execution)

    def _advance(self, execution: Execution) -> None:
        """Invokes the handler, then begins what it asked for."""
        if execution.is_complete:
            return
        execution.begin_new_invocation()
        given = self._invoker.create_invocation_input(execution)
        execution.mark_state_delivered()
        self.invocations += 1
        output = self._invoker.invoke(OWN, given).invocation_output
        if output.status is InvocationStatus.SUCCEEDED:
            execution.complete_success(output.result, self._clock.now())
        elif output.status is not InvocationStatus.PENDING:
            raise RuntimeError(f"the durable handler failed: {output.error}")
        self._arm(execution)
        asked, self._asked = sorted(self._asked, key=lambda one: one[0]), []
        latency_ms = self._world.latencies.wait_to_task_ms
        for lane, operation_id, payload in asked:
            at_ms = self._world.after(latency_ms())
            self._world.clock.call_at(at_ms, partial(self._call, execution, lane, operation_id, payload))
        fresh, self._fresh = self._fresh, []
        for request in fresh:
            begin = partial(self.begin, request["Payload"], request["DurableExecutionName"])
            self._world.clock.call_at(self._world.after(latency_ms()), begin)

    def _arm(self, execution: Execution) -> None:
        """Sets a timer for each wait that has begun."""
        for operation in sorted(execution.operations, key=lambda one: one.name or ""):
            mark = (execution.durable_execution_arn, operation.operation_id)
            details = operation.wait_details
            if operation.status is OperationStatus.STARTED and details is not None and mark not in self._armed:
                self._armed.add(mark)
                assert details.scheduled_end_timestamp is not None
                due_ms = round(details.scheduled_end_timestamp.timestamp() * 1000)
                at_ms = due_ms + self._world.latencies.wait_overshoot_ms()
                self._world.clock.call_at(at_ms, partial(self._waited, execution, operation.operation_id))

    def _waited(self, execution: Execution, operation_id: str) -> None:
        if execution.is_complete:
            return
        _, operation = execution.find_operation(operation_id)
        if operation.status is OperationStatus.STARTED:  # a checkpoint ends waits that are due, too
            execution.complete_wait(operation_id, self._clock.now())
        self._advance(execution)

    def _call(self, execution: Execution, lane: str, operation_id: str, payload: dict[str, Any]) -> None:
        """Calls the function that the handler invoked; its answer ends the operation."""

        def answered(done: asyncio.Future[Any]) -> None:
            failure, now = None if done.cancelled() else done.exception(), self._clock.now()
            if execution.is_complete or done.cancelled():
                return
            if failure is None:
                result = json.dumps(done.result()["status"])
                self.written += len(result)
                execution.complete_chained_invoke(operation_id, OperationStatus.SUCCEEDED, result, None, now)
            elif isinstance(failure, TaskFailure):
                error = ErrorObject(message=failure.cause, type=failure.error, data=None, stack_trace=None)
                self.written += len(json.dumps(error.to_dict()))
                execution.complete_chained_invoke(operation_id, OperationStatus.FAILED, None, error, now)
            else:
                raise failure
            self._advance(execution)

        self._world.connect(payload, lane).add_done_callback(answered)

    def waits(self, origin_ms: int) -> list[Span]:
        """Returns the waits of all executions."""
        return [
            Span(one.name or "", "wait", _ms(one.start_timestamp, origin_ms) or 0, _ms(one.end_timestamp, origin_ms))
            for execution in self.executions
            for one in execution.operations
            if one.operation_type is OperationType.WAIT
        ]

    # --- what the testing package reports of a checkpoint -------------------------------------------------------------

    def on_chained_invoke_started(
        self,
        execution_arn: str,
        operation_id: str,
        function_name: str,  # noqa: ARG002
        tenant_id: str | None,  # noqa: ARG002
        payload: str | None,
    ) -> None:
        """Notes that a function is to be called."""
        _, operation = self._store.load(execution_arn).find_operation(operation_id)
        self.written += len(payload or "")
        self._asked.append((operation.name or "", operation_id, json.loads(payload or "{}")))

    def on_completed(self, execution_arn: str, result: str | None = None) -> None:
        """Does nothing: the answer of the handler says it."""

    def on_failed(self, execution_arn: str, error: Any) -> None:
        """Does nothing: the answer of the handler says it."""

    def on_timed_out(self, execution_arn: str, error: Any) -> None:
        """Does nothing: no execution lasts a year."""

    def on_stopped(self, execution_arn: str, error: Any) -> None:
        """Does nothing: nobody stops one."""

    def on_callback_created(self, execution_arn: str, operation_id: str, options: Any, token: Any) -> None:
        """Does nothing: the handler has no callbacks."""


def _ms(at: datetime | None, origin_ms: int) -> int | None:
    return None if at is None else round(at.timestamp() * 1000) - origin_ms


@contextmanager
def _polling() -> Iterator[None]:
    before = state._STOP_SIGNAL_POLL_SECONDS
    state._STOP_SIGNAL_POLL_SECONDS = _POLL_S
    try:
        yield
    finally:
        state._STOP_SIGNAL_POLL_SECONDS = before


def play(source: Scenario, operations: int = OPERATIONS) -> tuple[World, PlayedDurable]:
    """Returns what happened until the scenario's end."""
    world = World(source)
    played = PlayedDurable(world, operations)
    event = {
        "function": world.names["connection_manager"],
        "request": INPUT,
        "own": OWN,
        "wait_s": source.settings["wait_s"],
        "first": "B",
        "number": 0,
    }

    async def begin() -> None:
        name = f"{INPUT['pathParameters']['streamId']}-0"
        world.clock.call_at(world.after(world.latencies.start_ms()), partial(played.begin, json.dumps(event), name))

    with _polling():
        world.run(begin())
    world.waits = played.waits(world.origin_ms)
    return world, played


def run(name: str, source: Scenario) -> Result:
    """Returns what a durable function came to."""
    world, played = play(source)
    gigabytes = played.written / _GB
    charges = {
        ("lambda_durable", "million_operations"): sum(len(one.operations) for one in played.executions),
        ("lambda_durable", "gb_written"): gigabytes,
        ("lambda_durable", "gb_month_retained"): gigabytes * RETENTION_DAYS / _DAYS_A_MONTH,
    }
    return world.result(name, played.invocations * HANDLER_MS, played.invocations, charges=charges)

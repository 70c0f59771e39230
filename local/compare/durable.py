"""A durable function of AWS Lambda that keeps a stream connected, without a state machine. For comparison only.

Two branches take turns: each invokes the connection manager, and waits once it was taken over. Lambda checkpoints every
operation and invokes the handler again when one is over; the handler then runs from its beginning, and finished
operations return their recorded results. So a long execution is slow to replay, and it must end before 3,000
operations: the handler then starts a fresh execution, whose first connection takes over from its last.

AWS's own testing package keeps the executions: it validates and applies checkpoints and builds the input of an
invocation, by our clock. What its runner does with threads in real time is done here in virtual time.

Invariants: an execution has at most `operations` operations. Time stands still while the handler runs, and what it
requested begins after it has returned, in the order of the lanes; so the threads of the SDK do not affect the result.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

from aws_durable_execution_sdk_python import DurableContext, InvokeError, durable_execution, state
from aws_durable_execution_sdk_python.config import CompletionConfig, Duration, NestingType, ParallelConfig
from aws_durable_execution_sdk_python.lambda_service import (
    ErrorObject,
    InvocationStatus,
    OperationStatus,
    OperationType,
)
from aws_durable_execution_sdk_python_testing.checkpoint.processor import CheckpointProcessor
from aws_durable_execution_sdk_python_testing.execution import Execution
from aws_durable_execution_sdk_python_testing.invoker import InProcessInvoker
from aws_durable_execution_sdk_python_testing.model import StartDurableExecutionInput
from aws_durable_execution_sdk_python_testing.stores.memory import InMemoryExecutionStore

from local.compare.queue_strategy import wait_before_retry_s
from local.compare.strategy_world import StrategyResult, StrategyWorld
from local.simulation.scenario import Scenario
from local.simulation.virtual_stage import INPUT
from states_language import TaskFailure
from timeline.spans import Span

FUNCTION_NAME = "durable"
# Lambda's quota of an execution.
MOST_OPERATIONS = 3000
# After this many, a fresh execution costs less than replaying them again and again.
OPERATIONS = 50
RENEW = "renew"
# The execution itself, its parallel operation, and the step that starts the next.
_OTHER_OPERATIONS = 3
# Two lanes, which each wait and invoke.
_OPERATIONS_PER_CYCLE = 4
# The billed time of an invocation of the handler, which is estimated, not measured.
HANDLER_MS = 100
RETENTION_DAYS = 14
_YEAR_S, _GB, _DAYS_A_MONTH = 31_536_000, 1e9, 365 / 12
# How soon the SDK's thread sees the end of an invocation, in real time; its default of 0.1 s would slow us down.
_POLL_S = 0.001


def make_handler(renew: Callable[[dict[str, Any]], None], operations: int = OPERATIONS) -> Callable[[Any, Any], Any]:
    """Returns the function's handler; `renew` starts an execution with an event.

    The event has the `function` to invoke with `request`, `wait_s`, the lane that connects `first`, and the `number` of
    the execution, from 0.
    """
    cycles = (min(operations, MOST_OPERATIONS) - _OTHER_OPERATIONS) // _OPERATIONS_PER_CYCLE

    @durable_execution
    def handler(event: Any, context: DurableContext) -> str:
        lanes = [_lane_branch(name, event, cycles) for name in "AB"]
        config = ParallelConfig(completion_config=CompletionConfig(min_successful=1), nesting_type=NestingType.FLAT)
        ending, lane = context.parallel(lanes, name="lanes", config=config).get_results()[0]
        if ending == RENEW:
            context.step(lambda _: renew({**event, "first": lane, "number": event["number"] + 1}), name="renew")
        return ending

    return handler


def _lane_branch(name: str, event: Mapping[str, Any], cycles: int) -> Callable[[DurableContext], tuple[str, str]]:
    def run(context: DurableContext) -> tuple[str, str]:
        rest: int | None = 0 if name == event["first"] else event["wait_s"]
        failures = 0
        for _ in range(cycles):
            if rest:
                context.wait(Duration(rest), name=name)
            try:
                answer: Any = context.invoke(event["function"], event["request"], name=name)
            except InvokeError as error:
                failures = 0 if error.error_type == "StreamTakenOver" else failures + 1
                rest = wait_before_retry_s(error.error_type, failures, event["wait_s"])
                if rest is None:
                    return error.error_type, name
            else:
                return str(answer), name
        return RENEW, name

    return run


class DurableExecutions:
    """The durable executions of one stream; `invocations` counts the handler's, `written` the bytes of checkpoints."""

    def __init__(self, world: StrategyWorld, operations: int = OPERATIONS) -> None:
        self._world = world
        clock: Any = SimpleNamespace(now=self._now)  # its timers are replaced by ours
        scheduler: Any = None  # it keeps none
        self._store = InMemoryExecutionStore()
        self._processor = CheckpointProcessor(self._store, scheduler, clock)
        observer: Any = SimpleNamespace(on_chained_invoke_started=self._record_invocation)  # nothing else is observed
        self._processor.add_execution_observer(observer)
        service: Any = self  # it calls only `checkpoint`
        self._invoker = InProcessInvoker(make_handler(self._renew, operations), service)
        self._requested: list[tuple[str, str, dict[str, Any]]] = []
        self._renewals: dict[str, dict[str, Any]] = {}
        self._timed_waits: set[tuple[str, str]] = set()
        self.executions: list[Execution] = []
        self.invocations = 0
        self.written_bytes = 0

    def checkpoint(self, durable_execution_arn: str, **request: Any) -> Any:  # noqa: ARG002
        """Applies a checkpoint, as Lambda does at the SDK's request."""
        return self._processor.process_checkpoint(**request)

    def start_execution(self, event: Mapping[str, Any]) -> None:
        payload, name = json.dumps(event), _execution_name(event)
        started = StartDurableExecutionInput(
            "123456789012", FUNCTION_NAME, "$LATEST", name, _YEAR_S, RETENTION_DAYS, invocation_id=name, input=payload
        )
        execution = Execution.new(started)
        execution.start(self._now())
        self._store.save(execution)
        self.executions.append(execution)
        self.written_bytes += len(payload)
        self._invoke_handler(execution)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._world.clock.now_ms() / 1000, UTC)

    def _renew(self, event: dict[str, Any]) -> None:
        # Of several invocations with the same name, Lambda starts an execution only for the first.
        if _execution_name(event) not in (one.start_input.execution_name for one in self.executions):
            self._renewals.setdefault(_execution_name(event), event)

    def _record_invocation(
        self, execution_arn: str, operation_id: str, _function: str, _tenant: str | None, payload: str | None
    ) -> None:
        _, operation = self._store.load(execution_arn).find_operation(operation_id)
        self.written_bytes += len(payload or "")
        self._requested.append((operation.name or "", operation_id, json.loads(payload or "{}")))

    def _invoke_handler(self, execution: Execution) -> None:
        """Invokes the handler, then begins what it requested."""
        if execution.is_complete:
            return
        execution.begin_new_invocation()
        given = self._invoker.create_invocation_input(execution)
        execution.mark_state_delivered()
        self.invocations += 1
        output = self._invoker.invoke(FUNCTION_NAME, given).invocation_output
        if output.status is InvocationStatus.SUCCEEDED:
            execution.complete_success(output.result, self._now())
        elif output.status is not InvocationStatus.PENDING:
            raise RuntimeError(f"the durable handler failed: {output.error}")
        self._set_wait_timers(execution)
        requested, self._requested = sorted(self._requested, key=lambda one: one[0]), []
        latency_ms = self._world.latencies.wait_to_task_ms
        for one in requested:
            self._world.call_after(latency_ms(), partial(self._call_manager, execution, *one))
        fresh, self._renewals = self._renewals, {}
        for event in fresh.values():
            self._world.call_after(latency_ms(), partial(self.start_execution, event))

    def _set_wait_timers(self, execution: Execution) -> None:
        """Sets a timer for each wait that has begun."""
        for operation in sorted(execution.operations, key=lambda one: one.name or ""):
            mark = (execution.durable_execution_arn, operation.operation_id)
            details = operation.wait_details
            if operation.status is OperationStatus.STARTED and details is not None and mark not in self._timed_waits:
                self._timed_waits.add(mark)
                assert details.scheduled_end_timestamp is not None
                due_ms = round(details.scheduled_end_timestamp.timestamp() * 1000)
                at_ms = due_ms + self._world.latencies.wait_overshoot_ms()
                self._world.clock.call_at(at_ms, partial(self._end_wait, execution, operation.operation_id))

    def _end_wait(self, execution: Execution, operation_id: str) -> None:
        if execution.is_complete:
            return
        _, operation = execution.find_operation(operation_id)
        if operation.status is OperationStatus.STARTED:  # a checkpoint also ends waits that are due
            execution.complete_wait(operation_id, self._now())
        self._invoke_handler(execution)

    def _call_manager(self, execution: Execution, lane: str, operation_id: str, payload: dict[str, Any]) -> None:
        """Calls the function that the handler has invoked; its answer ends the operation."""

        def on_answer(done: asyncio.Future[Any]) -> None:
            if execution.is_complete or done.cancelled():
                return
            status, result, error = OperationStatus.SUCCEEDED, None, None
            try:
                written = result = json.dumps(done.result()["status"])
            except TaskFailure as failure:
                status = OperationStatus.FAILED
                error = ErrorObject(message=failure.cause, type=failure.error, data=None, stack_trace=None)
                written = json.dumps(error.to_dict())
            self.written_bytes += len(written)
            execution.complete_chained_invoke(operation_id, status, result, error, self._now())
            self._invoke_handler(execution)

        self._world.connect(payload, lane).add_done_callback(on_answer)

    def waits(self) -> list[Span]:
        def ms(at: datetime | None) -> int | None:
            return None if at is None else round(at.timestamp() * 1000) - self._world.origin_ms

        return [
            Span(one.name or "", "wait", ms(one.start_timestamp) or 0, ms(one.end_timestamp))
            for execution in self.executions
            for one in execution.operations
            if one.operation_type is OperationType.WAIT
        ]


def _execution_name(event: Mapping[str, Any]) -> str:
    return f"{event['request']['pathParameters']['streamId']}-{event['number']}"


@contextmanager
def _fast_polling() -> Iterator[None]:
    before = state._STOP_SIGNAL_POLL_SECONDS
    state._STOP_SIGNAL_POLL_SECONDS = _POLL_S
    try:
        yield
    finally:
        state._STOP_SIGNAL_POLL_SECONDS = before


def simulate(source: Scenario, operations: int = OPERATIONS) -> tuple[StrategyWorld, DurableExecutions]:
    """Returns what happened until the scenario's end."""
    world = StrategyWorld(source)
    played = DurableExecutions(world, operations)
    event = {
        "function": world.names["connection_manager"], "request": INPUT, "wait_s": source.settings["wait_s"],
        "first": "B", "number": 0,
    }  # fmt: skip
    with _fast_polling():
        world.run(lambda: world.call_after(world.latencies.start_ms(), partial(played.start_execution, event)))
    world.waits = played.waits()
    return world, played


def run(name: str, source: Scenario) -> StrategyResult:
    """Returns the result of a durable function."""
    world, played = simulate(source)
    gigabytes = played.written_bytes / _GB
    charges = {
        ("lambda_durable", "million_operations"): sum(len(one.operations) for one in played.executions),
        ("lambda_durable", "gb_written"): gigabytes,
        ("lambda_durable", "gb_month_retained"): gigabytes * RETENTION_DAYS / _DAYS_A_MONTH,
    }
    return world.make_result(name, played.invocations * HANDLER_MS, played.invocations, charges=charges)

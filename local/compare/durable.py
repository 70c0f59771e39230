"""A durable function of AWS Lambda that keeps a stream connected, without a state machine. For comparison only.

Two branches take turns: each invokes the connection manager, and where it was taken over it waits. Lambda checkpoints
every operation and invokes the handler anew when one is over; the handler then runs from its beginning, and operations
that are over return what they returned. So a long execution is slow to replay, and over 3,000 operations none goes on:
before that many the handler starts a fresh execution, whose first connection takes over from its last.

Invariant: an execution has at most `operations` operations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from aws_durable_execution_sdk_python import DurableContext, InvokeError, durable_execution
from aws_durable_execution_sdk_python.config import CompletionConfig, Duration, NestingType, ParallelConfig

from local.compare.by_queue import rest_s

MOST_OPERATIONS = 3000
"""Of an execution, by Lambda's quotas."""
OPERATIONS = 50
"""After so many a fresh execution costs less than to replay them again and again."""
RENEW = "renew"
# The execution itself, its parallel operation, and the step that starts the next.
_BESIDES = 3
# Two lanes, which each wait and invoke.
_A_CYCLE = 4


class LambdaClient(Protocol):
    """What the handler calls of boto3's Lambda client."""

    def invoke(self, **request: Any) -> Any:
        """Invokes a function."""


def handler_on(client: LambdaClient, operations: int = OPERATIONS) -> Callable[[Any, Any], Any]:
    """Returns the function's handler.

    Its event names the `function` to invoke with `request`, itself (`own`), `wait_s`, the lane that connects `first`,
    and the `number` of the execution, from 0.
    """
    cycles = (min(operations, MOST_OPERATIONS) - _BESIDES) // _A_CYCLE

    @durable_execution
    def handler(event: Any, context: DurableContext) -> str:
        lanes = [_lane(name, event, cycles) for name in "AB"]
        config = ParallelConfig(completion_config=CompletionConfig(min_successful=1), nesting_type=NestingType.FLAT)
        ending, lane = context.parallel(lanes, name="lanes", config=config).get_results()[0]
        if ending == RENEW:
            fresh = {**event, "first": lane, "number": event["number"] + 1}
            context.step(lambda _: _start(client, fresh), name="renew")
        return ending

    return handler


def _lane(name: str, event: Mapping[str, Any], cycles: int) -> Callable[[DurableContext], tuple[str, str]]:
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
                rest = rest_s(error.error_type, failures, event["wait_s"])
                if rest is None:
                    return error.error_type, name
            else:
                return str(answer), name
        return RENEW, name

    return run


def _start(client: LambdaClient, event: Mapping[str, Any]) -> None:
    """Starts an execution; of two with the same name Lambda starts one."""
    client.invoke(
        FunctionName=event["own"],
        InvocationType="Event",
        DurableExecutionName=f"{event['request']['pathParameters']['streamId']}-{event['number']}",
        Payload=json.dumps(event),
    )

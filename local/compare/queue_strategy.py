"""A function that SQS calls and that keeps a stream connected by hand, without a state machine. For comparison only.

Each of two lanes has a message. The function that gets it connects; when it is taken over, it hides the message for the
time of a wait, and SQS delivers it again. Standard queues sometimes deliver a message more than once, and keep none for
longer than 14 days. So each lane has an item in DynamoDB, and every write of it is conditional:

    lease_ms    until when a function owns this step; the function extends it, and hides the message for longer
    owner       the delivery that owns it
    next_ms     until when the lane has nothing to do
    message     the only message of this lane; any other one is a leftover and is deleted
    failures    endings in succession, except take-overs

Invariant: no step of a lane is taken by two functions at the same time, and a message is deleted only if the lane has
another one or is over.
"""

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from handlers.store.typed_values import item_key, number_value
from local.compare.strategy_world import StrategyResult, StrategyWorld
from local.simulation.scenario import Scenario
from local.simulation.virtual_queue import MOST_DELAY_S, MOST_HIDDEN_S, VirtualQueue
from local.simulation.virtual_stage import INPUT
from states_language import TaskFailure
from timeline.spans import Span

QUEUE = {"QueueUrl": "https://sqs.invalid/lanes"}
# For how long a message stays hidden after its function was last heard of.
LEASE_S = 60
EXTEND_S = 20
RETENTION_S = 14 * 86_400
# A message older than this share of the retention is replaced by a new one.
REPLACE_AT_SHARE = 13 / 14
# What a handler without a machine does after an ending, as the deployed machine does.
MOST_BACKOFF_S = 20
RETRIED_AT_ONCE = frozenset({"ConnectionExpired", "Sandbox.Timedout", "Runtime.ExitError"})
FINAL = frozenset({"StreamRejected", "InvalidRequest"})
# The share of deliveries that SQS makes twice; it calls them rare and gives no number.
COPIED_SHARE = 0.01
# The number of parallel long polls with which Lambda reads an idle queue, and their seconds.
POLLERS, POLL_S = 5, 20
_MINE = "message = :message AND owner = :owner"
_CLAIM = (
    "(attribute_not_exists(message) OR message = :message) AND (attribute_not_exists(lease_ms) OR lease_ms <= :now) "
    "AND (attribute_not_exists(next_ms) OR next_ms <= :now)"
)


class QueueStrategy:
    """The queue of one stream, its table, and the functions that its messages start.

    `writes` counts the requests to DynamoDB; a failed one costs the same. `functions_started` counts the functions.
    """

    def __init__(self, world: StrategyWorld, copies: float = COPIED_SHARE, retention_s: int = RETENTION_S) -> None:
        self.world = world
        self.retention_s = retention_s
        draw = random.Random(f"copies {world.source.seed}")
        limit_s = world.source.settings["function_timeout_s"]
        # An event source mapping requires a visibility time-out of at least the function's limit.
        self.sqs = VirtualQueue(world.clock, limit_s, retention_s, self._deliver, lambda: draw.random() < copies)
        self.writes = self.functions_started = 0

    def send_first_messages(self) -> None:
        """Sends the first messages: lane B connects, lane A first waits for as long as SQS can delay a message."""
        wait_s = self.world.source.settings["wait_s"]
        for lane, delay_s in (("B", 0), ("A", wait_s)):
            body = json.dumps({"request": INPUT, "lane": lane, "wait_s": wait_s})
            self.sqs.send_message(**QUEUE, MessageBody=body, DelaySeconds=min(delay_s, MOST_DELAY_S))

    def update_item(self, **request: Any) -> dict[str, Any]:
        """Writes an item of a lane; raises botocore's ClientError if the condition does not hold."""
        self.writes += 1
        return self.world.sandbox.tables.update_item(TableName=self.world.names["control_table"], **request)

    def _deliver(self, record: dict[str, Any]) -> None:
        self.world.call_after(self.world.latencies.wait_to_task_ms(), partial(self._start, record))

    def _start(self, record: dict[str, Any]) -> None:
        def on_end(function: asyncio.Future[Any]) -> None:
            # Lambda does not delete the message of a function that failed or whose process died.
            if not function.cancelled() and not isinstance(function.exception(), ClientError) and function.result():
                self.sqs.delete_message(**QUEUE, ReceiptHandle=record["receiptHandle"])

        self.functions_started += 1
        self.world.start_function(keep_connected(LaneStep(self, record)), on_end)


@dataclass(frozen=True)
class LaneStep:
    """One delivery of a lane's message by Lambda."""

    queue: QueueStrategy
    record: Mapping[str, Any]

    @property
    def body(self) -> dict[str, Any]:
        """Returns the message's `request`, `lane` and `wait_s`."""
        return dict(json.loads(self.record["body"]))

    @property
    def now_ms(self) -> int:
        return self.queue.world.clock.now_ms()

    def claim(self) -> int | None:
        """Takes this step and returns the failures before it; None if it must not be taken.

        A leftover is deleted. An early message stays hidden until it is due; one of another owner is left alone.
        """
        now_ms = self.now_ms
        try:
            item = self._update(
                "SET message = :message, owner = :owner, lease_ms = :until",
                _CLAIM,
                {":now": number_value(now_ms), ":until": self._lease_end()},
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )["Attributes"]
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            item = error.response.get("Item", {})
            if item["message"]["S"] != self.record["messageId"]:
                self._sqs("delete_message")
            elif (due_ms := int(item.get("next_ms", number_value(0))["N"])) > now_ms:
                self.hide(-(-(due_ms - now_ms) // 1000))
            return None
        self.hide(LEASE_S)
        return int(item.get("failures", number_value(0))["N"])

    def extend(self) -> None:
        """Extends the lease, and the time for which the message is hidden."""
        self._update("SET lease_ms = :until", _MINE, {":until": self._lease_end()})
        self.hide(LEASE_S)

    def release(self, seconds: int, failures: int) -> None:
        """Gives the lease back for so many seconds; after that SQS delivers the message again."""
        values = {":next": number_value(self.now_ms + seconds * 1000), ":failures": number_value(failures)}
        self._update("SET next_ms = :next, failures = :failures REMOVE lease_ms", _MINE, values)
        sent_ms = int(self.record["attributes"]["SentTimestamp"])
        if self.now_ms - sent_ms < REPLACE_AT_SHARE * self.queue.retention_s * 1000:
            self.hide(seconds)
            return
        delay_s = min(seconds, MOST_DELAY_S)
        fresh = self.queue.sqs.send_message(**QUEUE, MessageBody=self.record["body"], DelaySeconds=delay_s)
        self._update("SET message = :fresh", _MINE, {":fresh": {"S": fresh["MessageId"]}})
        self._sqs("delete_message")

    def hide(self, seconds: int) -> None:
        """Hides the message for so long."""
        self._sqs("change_message_visibility", VisibilityTimeout=min(seconds, MOST_HIDDEN_S))

    def _lease_end(self) -> dict[str, str]:
        return number_value(self.now_ms + LEASE_S * 1000)

    def _update(self, change: str, condition: str, values: dict[str, Any], **more: Any) -> dict[str, Any]:
        body, record = self.body, self.record
        own = {":message": {"S": record["messageId"]}, ":owner": {"S": record["receiptHandle"]}}
        return self.queue.update_item(
            Key=item_key(body["request"]["pathParameters"]["streamId"], f"lane#{body['lane']}"),
            UpdateExpression=change,
            ConditionExpression=condition,
            ExpressionAttributeValues=own | values,
            **more,
        )

    def _sqs(self, action: str, **more: Any) -> None:
        getattr(self.queue.sqs, action)(**QUEUE, ReceiptHandle=self.record["receiptHandle"], **more)


async def keep_connected(step: LaneStep) -> bool:
    """Keeps the stream connected; returns whether Lambda should delete the message."""
    failures = step.claim()
    if failures is None:
        return False
    world = step.queue.world
    connected = world.connect(step.body["request"], step.body["lane"])
    while not await world.has_ended_within(connected, EXTEND_S):
        step.extend()
    try:
        await connected
    except TaskFailure as failure:
        failures = 0 if failure.error == "StreamTakenOver" else failures + 1
        rest = wait_before_retry_s(failure.error, failures, step.body["wait_s"])
        if rest is not None:
            step.release(rest, failures)
            return False
    return True


def wait_before_retry_s(error: str | None, failures: int, wait_s: int) -> int | None:
    """Returns how many seconds a lane waits after an ending of the connection manager; None if the lane is over.

    A lane waits long only if another connection is open. Otherwise it tries again soon, and less often with each of the
    successive `failures`.
    """
    if error in FINAL:
        return None
    if error == "StreamTakenOver":
        return wait_s
    return 0 if error in RETRIED_AT_ONCE and failures <= 1 else min(MOST_BACKOFF_S, 2 ** min(failures - 1, 10))


def simulate(
    source: Scenario, copies: float = COPIED_SHARE, retention_s: int = RETENTION_S
) -> tuple[StrategyWorld, QueueStrategy]:
    """Returns what happened until the scenario's end."""
    world = StrategyWorld(source)
    queue = QueueStrategy(world, copies, retention_s)
    world.run(queue.send_first_messages)
    return world, queue


def run(name: str, source: Scenario) -> StrategyResult:
    """Returns the result of a function that SQS calls."""
    world, queue = simulate(source)
    world.waits = _waits_between_tasks(world)
    polls = POLLERS * source.run_for_ms / (POLL_S * 1000)
    charges = {
        ("sqs", "million_requests"): queue.sqs.requests + polls,
        ("dynamodb", "million_write_units"): queue.writes,
    }
    return world.make_result(name, other_calls=queue.functions_started - len(world.tasks), charges=charges)


def _waits_between_tasks(world: StrategyWorld) -> list[Span]:
    """Returns the waits: the times between a lane's functions, and before its first."""
    waits = []
    for lane in "AB":
        at_ms = 0
        for task in (task for task in world.tasks if task.lane == lane):
            waits.append(Span(lane, "wait", at_ms, task.from_ms))
            at_ms = world.source.run_for_ms if task.to_ms is None else task.to_ms
    return waits

"""A function that SQS calls and that keeps a stream connected by hand, without a state machine. For comparison only.

There is a message for each of two lanes. The function that gets it connects; where it was taken over it hides the
message for as long as it waits, and SQS delivers it again. Standard queues deliver a message more than once at times,
and keep none for longer than 14 days. So each lane has an item in DynamoDB, and every write of it is conditional:

    lease_ms    until when a function has this step; as it goes on it puts that off, and so it does with the message
    owner       which delivery has it
    next_ms     before when the lane has nothing to do
    message     the one message of this lane: another is a leftover, and deleted
    failures    endings in succession but take-overs

Invariant: no step of a lane is taken by two functions at the same time, and a message is deleted only where the lane
has another or is over.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from botocore.exceptions import ClientError

from states_language import TaskFailure

LEASE_S = 60
"""For how long a message stays hidden after the last word of the function that has it."""
EXTEND_S = 20
MOST_DELAY_S, MOST_HIDDEN_S = 900, 43_200
RETENTION_S = 14 * 86_400
FRESH = 13 / 14
"""A message that is older than this share of the retention is replaced by a new one."""
# What a handler without a machine does after an ending, as the deployed machine does it in short.
MOST_REST_S = 20
AT_ONCE = frozenset({"ConnectionExpired", "Sandbox.Timedout", "Runtime.ExitError"})
FINAL = frozenset({"StreamRejected", "InvalidRequest"})
_MINE = "message = :message AND owner = :owner"
_CLAIM = (
    "(attribute_not_exists(message) OR message = :message) AND (attribute_not_exists(lease_ms) OR lease_ms <= :now) "
    "AND (attribute_not_exists(next_ms) OR next_ms <= :now)"
)


class Platform(Protocol):
    """What the function has of AWS: two of boto3's clients, and its own time."""

    queue_url: str
    retention_s: int
    table: str
    sqs: Any
    dynamodb: Any

    def now_ms(self) -> int:
        """Returns the time."""

    def connect(self, event: Mapping[str, Any], lane: str) -> Awaitable[Any]:
        """Runs the connection manager in this function; its errors are TaskFailures."""

    async def ended_within(self, connected: Awaitable[Any], seconds: float) -> bool:
        """Returns whether the connection is over before that time is."""


@dataclass(frozen=True)
class Step:
    """One delivery of a lane's message, as Lambda hands it over."""

    platform: Platform
    record: Mapping[str, Any]

    @property
    def body(self) -> dict[str, Any]:
        """Returns the message's `request`, `lane` and `wait_s`."""
        return dict(json.loads(self.record["body"]))

    def claim(self) -> int | None:
        """Returns the failures before this step, which is taken then; None where it is not to be taken.

        A leftover is deleted. What comes early stays hidden until it is due; of what another has nothing is touched.
        """
        now_ms = self.platform.now_ms()
        try:
            item = self._update(
                "SET message = :message, owner = :owner, lease_ms = :until",
                _CLAIM,
                {":now": _number(now_ms), ":until": self._until()},
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )["Attributes"]
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            item = error.response.get("Item", {})
            if item["message"]["S"] != self.record["messageId"]:
                self._sqs("delete_message")
            elif (due_ms := int(item.get("next_ms", _number(0))["N"])) > now_ms:
                self.hide(-(-(due_ms - now_ms) // 1000))
            return None
        self.hide(LEASE_S)
        return int(item.get("failures", _number(0))["N"])

    def extend(self) -> None:
        """Puts the end of the lease off, and the end of the message's rest."""
        self._update("SET lease_ms = :until", _MINE, {":until": self._until()})
        self.hide(LEASE_S)

    def rest(self, seconds: int, failures: int) -> None:
        """Gives the lease back until so many seconds from now; SQS delivers the message again then."""
        next_ms = self.platform.now_ms() + seconds * 1000
        values = {":next": _number(next_ms), ":failures": _number(failures)}
        self._update("SET next_ms = :next, failures = :failures REMOVE lease_ms", _MINE, values)
        sent_ms = int(self.record["attributes"]["SentTimestamp"])
        if self.platform.now_ms() - sent_ms < FRESH * self.platform.retention_s * 1000:
            self.hide(seconds)
            return
        delay = {"MessageBody": self.record["body"], "DelaySeconds": min(seconds, MOST_DELAY_S)}
        fresh = self.platform.sqs.send_message(QueueUrl=self.platform.queue_url, **delay)["MessageId"]
        self._update("SET message = :fresh", _MINE, {":fresh": {"S": fresh}})
        self._sqs("delete_message")

    def hide(self, seconds: int) -> None:
        """Hides the message for so long."""
        self._sqs("change_message_visibility", VisibilityTimeout=min(seconds, MOST_HIDDEN_S))

    def _until(self) -> dict[str, str]:
        return _number(self.platform.now_ms() + LEASE_S * 1000)

    def _update(self, change: str, condition: str, values: dict[str, Any], **more: Any) -> dict[str, Any]:
        stream_id = self.body["request"]["pathParameters"]["streamId"]
        answer: dict[str, Any] = self.platform.dynamodb.update_item(
            TableName=self.platform.table,
            Key={"PK": {"S": stream_id}, "SK": {"S": f"lane#{self.body['lane']}"}},
            UpdateExpression=change,
            ConditionExpression=condition,
            ExpressionAttributeValues={
                ":message": {"S": self.record["messageId"]},
                ":owner": {"S": self.record["receiptHandle"]},
                **values,
            },
            **more,
        )
        return answer

    def _sqs(self, action: str, **more: Any) -> None:
        request = {"QueueUrl": self.platform.queue_url, "ReceiptHandle": self.record["receiptHandle"], **more}
        getattr(self.platform.sqs, action)(**request)


async def handler(event: Mapping[str, Any], platform: Platform) -> dict[str, Any]:
    """Returns which messages Lambda is not to delete, as an event source mapping with partial failures asks."""
    (record,) = event["Records"]
    kept = {"batchItemFailures": [{"itemIdentifier": record["messageId"]}]}
    step = Step(platform, record)
    failures = step.claim()
    if failures is None:
        return kept
    connected = platform.connect(step.body["request"], step.body["lane"])
    while not await platform.ended_within(connected, EXTEND_S):
        step.extend()
    try:
        await connected
    except TaskFailure as failure:
        failures = 0 if failure.error == "StreamTakenOver" else failures + 1
        rest = rest_s(failure.error, failures, step.body["wait_s"])
        if rest is not None:
            step.rest(rest, failures)
            return kept
    return {"batchItemFailures": []}


def first_messages(request: Mapping[str, Any], wait_s: int) -> list[dict[str, Any]]:
    """Returns what to send so that a stream begins: lane B connects, lane A waits first."""
    bodies = [{"request": request, "lane": lane, "wait_s": wait_s} for lane in "BA"]
    return [{"MessageBody": json.dumps(body), "DelaySeconds": wait_s if body["lane"] == "A" else 0} for body in bodies]


def rest_s(error: str | None, failures: int, wait_s: int) -> int | None:
    """Returns for how many seconds a lane rests after an ending of the connection manager; None where that is final.

    It waits only where another is connected, else it tries again, soon and then less often. `failures` came in
    succession.
    """
    if error in FINAL:
        return None
    if error == "StreamTakenOver":
        return wait_s
    return 0 if error in AT_ONCE and failures <= 1 else min(MOST_REST_S, 2 ** min(failures - 1, 10))


def _number(value: int) -> dict[str, str]:
    return {"N": str(value)}

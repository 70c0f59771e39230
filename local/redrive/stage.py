"""The queue, the tables and the machine of a stage, deployed or of the run on this machine.

Names follow from the stage, account and region from the queue itself, endpoints from the SDK. Invariant: what cannot be
reached is one sentence that names it, before any message was received.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from handlers.connection.lease import Lease
from handlers.store.leases import Leases
from handlers.store.objects import Objects
from handlers.store.stream_records import Layout, StreamRecords
from local import stages
from local.listener import HOST
from local.redrive.letters import Message
from local.redrive.restore import Events
from local.user_error import UserError

# A run of this many seconds has its messages for itself; those of one that was killed are back after them.
HELD_S = 900
# SQS: with a wait every server is asked, so an empty answer means an empty queue.
WAIT_S = 1
TRIES, TRIES_HERE = 4, 2


@dataclass(frozen=True)
class Stage:
    """What `redrive` works on."""

    sqs: Any
    queue_url: str
    dynamodb: Any
    control_table: str
    events: Events
    states: Any
    machine_arn: str
    _layouts: dict[str, Layout] = field(default_factory=dict)

    def messages(self) -> Iterator[list[Message]]:
        """Every message of the queue, once, as many as come together; each is held for HELD_S."""
        seen: set[str] = set()
        while received := self.sqs.receive_message(
            QueueUrl=self.queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=WAIT_S, VisibilityTimeout=HELD_S
        ).get("Messages"):
            fresh = [one for one in received if one["MessageId"] not in seen]
            if not fresh:
                return
            seen.update(one["MessageId"] for one in fresh)
            yield [Message(one["MessageId"], one["ReceiptHandle"], one["Body"]) for one in fresh]

    def delete(self, messages: Sequence[Message]) -> None:
        """Takes the messages of one letter out of the queue for good, ten in a request."""
        for at in range(0, len(messages), 10):
            entries = [{"Id": str(n), "ReceiptHandle": one.receipt} for n, one in enumerate(messages[at : at + 10])]
            answer = self.sqs.delete_message_batch(QueueUrl=self.queue_url, Entries=entries)
            if answer.get("Failed"):
                raise ClientError({"Error": {"Code": answer["Failed"][0]["Code"]}}, "DeleteMessageBatch")

    def release(self, message: Message) -> None:
        """Lets others receive the message at once."""
        self.sqs.change_message_visibility(QueueUrl=self.queue_url, ReceiptHandle=message.receipt, VisibilityTimeout=0)

    def layout(self, stream_id: str) -> Layout:
        """How the stream's events lie, as its lease says."""
        if stream_id not in self._layouts:
            known = StreamRecords(self.dynamodb, self.control_table).layout(stream_id)
            self._layouts[stream_id] = Layout() if known is None else known
        return self._layouts[stream_id]

    def lease(self, stream_id: str) -> Lease:
        """The stream's lease; an empty one where it was never started."""
        return Leases(self.dynamodb, self.control_table).read(stream_id)

    def is_running(self, execution: str) -> bool:
        """Whether the execution runs; one that Step Functions has forgotten does not."""
        try:
            return bool(self.states.describe_execution(executionArn=execution)["status"] == "RUNNING")
        except self.states.exceptions.ExecutionDoesNotExist:
            return False

    def start(self, stream_id: str) -> str:
        """The ARN of an execution that keeps the stream connected, started now."""
        text = json.dumps({"pathParameters": {"streamId": stream_id}})
        execution: str = self.states.start_execution(stateMachineArn=self.machine_arn, input=text)["executionArn"]
        return execution


def connect(name: str | None, environment: Mapping[str, str]) -> Stage:
    """The deployed stage of this name; None: that of the run on this machine. Raises UserError."""
    local = name is None
    name = name or environment.get("STREAMKEEPER_STAGE") or "local"
    stages.check_name(name)
    names = stages.names(name)
    where = _of_this_machine(environment) if local else _deployed(environment)
    place = where.get("endpoint_url") or environment.get("AWS_ENDPOINT_URL") or f"the region {where['region_name']}"
    tries = TRIES_HERE if local else TRIES
    config = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": tries})
    try:
        sqs, dynamodb, states, s3 = (
            boto3.client(service, config=config, **where) for service in ("sqs", "dynamodb", "stepfunctions", "s3")
        )
        queue_url = sqs.get_queue_url(QueueName=names["dead_letter_queue"])["QueueUrl"]
        answer = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])
    except (BotoCoreError, ClientError, ValueError) as problem:
        whether = "is `make run` running there, with this PORT" if local else "is the stage deployed there"
        reason = f"{problem}".rstrip(".")
        raise UserError(
            f"The queue {names['dead_letter_queue']} cannot be reached at {place}: {whether}? ({reason})."
        ) from None
    _, partition, _, region, account, _ = answer["Attributes"]["QueueArn"].split(":")
    bucket = f"{stages.SERVICE}-{name}-events-{account}-{region}"
    return Stage(
        sqs,
        queue_url,
        dynamodb,
        names["control_table"],
        Events(dynamodb, names["events_table"], Objects(lambda: s3, bucket)),
        states,
        f"arn:{partition}:states:{region}:{account}:stateMachine:{names['connections']}",
    )


def _of_this_machine(environment: Mapping[str, str]) -> dict[str, str]:
    port = environment.get("PORT") or "3000"
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65533):
        raise UserError(f"PORT must be a number from 1 to 65533, not {port!r}.")
    return {
        "endpoint_url": f"http://{HOST}:{int(port) + 1}",
        "region_name": "us-east-1",
        "aws_access_key_id": "local",
        "aws_secret_access_key": "local",
    }


def _deployed(environment: Mapping[str, str]) -> dict[str, str]:
    # As serverless.yml chooses.
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    return {"region_name": region}


def here(name: str | None) -> Stage:
    """As `connect`, by this process's environment."""
    return connect(name, os.environ)

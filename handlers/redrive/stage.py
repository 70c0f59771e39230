"""The queue, the tables and the machine of a stage, as redriving its dead letters needs them.

Invariant: a message is received once in a walk, and nobody else gets it meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from handlers.connection.lease import Lease
from handlers.redrive.letters import Message
from handlers.redrive.restore import Events
from handlers.store.leases import Leases
from handlers.store.stream_records import Layout, StreamRecords

# A run of this many seconds has its messages for itself; those of one that was killed are back after them.
HELD_S = 900
# SQS: with a wait every server is asked, so an empty answer means an empty queue.
WAIT_S = 1


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
    held_s: int = HELD_S
    is_late: Callable[[], bool] = lambda: False
    _layouts: dict[str, Layout] = field(default_factory=dict)

    def messages(self) -> Iterator[list[Message]]:
        """Every message of the queue, once, as many as come together, until it is late; each is held for `held_s`."""
        seen: set[str] = set()
        while not self.is_late() and (
            received := self.sqs.receive_message(
                QueueUrl=self.queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=WAIT_S, VisibilityTimeout=self.held_s
            ).get("Messages")
        ):
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

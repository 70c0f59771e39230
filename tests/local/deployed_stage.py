"""A deployed stage as the embedded AWS plays it: its tables, its dead-letter queue and its bucket."""

import contextlib
import json
from typing import Any

from handlers.framing.events import StreamEvent
from handlers.store.connection_store import Store
from local import stages
from tests.handlers.aws import ATTRIBUTES, CONTROL, EVENTS, INDEXES, Aws, keys

ROLE = "arn:aws:iam::000000000000:role/any"
# What the ARNs of executions begin with.
EXECUTIONS = "arn:aws:states:eu-central-1:000000000000:execution:streamkeeper-any-connections"


class Deployed:
    """The tables, the queue and the bucket of a stage on the embedded AWS."""

    def __init__(self, aws: Aws, stage: str) -> None:
        names = stages.names(stage)
        self.aws, self.stage = aws, stage
        self.events_table, self.control_table = names["events_table"], names["control_table"]
        for like, table in ((EVENTS, self.events_table), (CONTROL, self.control_table)):
            kinds = {"PK": "S", "SK": "S"} | ATTRIBUTES[like]
            aws.dynamodb.create_table(
                TableName=table,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": key, "AttributeType": kind} for key, kind in kinds.items()],
                KeySchema=keys("SK"),
                GlobalSecondaryIndexes=INDEXES[like],
            )
        self.queue_url: str = aws.sqs.create_queue(QueueName=names["dead_letter_queue"])["QueueUrl"]
        self.bucket = f"streamkeeper-{stage}-events-000000000000-eu-central-1"
        with contextlib.suppress(aws.s3.exceptions.BucketAlreadyOwnedByYou):
            place = {"LocationConstraint": "eu-central-1"}
            aws.s3.create_bucket(Bucket=self.bucket, CreateBucketConfiguration=place)

    def close(self) -> None:
        """Deletes the tables and the queue."""
        self.aws.sqs.delete_queue(QueueUrl=self.queue_url)
        for table in (self.events_table, self.control_table):
            self.aws.dynamodb.delete_table(TableName=table)

    def write(self, stream_id: str, *events: StreamEvent) -> None:
        """Writes as a connection without a bucket does: a large event becomes a mark and four messages."""
        self.store().write(stream_id, 1, 0, events)

    def store(self, **more: Any) -> Store:
        """A store on these tables."""
        return Store(
            self.aws.dynamodb,
            lambda: self.aws.sqs,
            events_table=self.events_table,
            control_table=self.control_table,
            dead_letter_queue_url=self.queue_url,
            **more,
        )

    def marks(self, stream_id: str) -> list[str]:
        """Returns the keys under which there is a mark in place of an event."""
        items = self.aws.items(self.events_table, stream_id)
        return [key for key, item in items.items() if "dead_letter" in item]

    def send(self, body: str) -> None:
        """Sends a message that no connection sent."""
        self.aws.sqs.send_message(QueueUrl=self.queue_url, MessageBody=body)

    def waiting(self) -> int:
        """Returns how many messages can be received now."""
        name = "ApproximateNumberOfMessages"
        return int(
            self.aws.sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=[name])["Attributes"][name]
        )

    def run(self, stream_id: str, fence: int, **more: Any) -> None:
        """Writes the control record of a running stream, with connection `fence`, and the ledger before it."""
        opened_ms = fence * 10_000
        live = {"fence": fence, "opened_ms": opened_ms, "seen_ms": opened_ms + 5_000, "claimed_ms": opened_ms}
        for before in range(1, fence):
            closed = {"opened_ms": {"N": str(before * 10_000)}, "seen_ms": {"N": "1"}, "fence": {"N": str(before)}}
            self.put(stream_id, f"connection#{before:012d}", request_id={"S": f"r{before}"}, **closed)
        numbers = {"fence": fence, "connected": fence, "released": fence - 1, "generation": 1, "layout": 2}
        numbers |= {
            "expires_at_ms": opened_ms + 9_000,
            "cursor_fence": fence,
            "saved_at_ms": opened_ms,
            "partitions": 1,
        }
        attributes: dict[str, Any] = {name: {"N": str(value)} for name, value in numbers.items()}
        shown = {name: {"N": str(value)} for name, value in live.items()} | {"request_id": {"S": f"r{fence}"}}
        attributes |= {"cursor": {"S": f"c{fence}"}, "execution": {"S": f"{EXECUTIONS}:gone"}, "live": {"M": shown}}
        attributes |= {"holder": {"S": "A/1"}, "started_at": {"S": "2026-01-01T00:00:00.000Z"}}
        self.put(stream_id, "lease", **attributes | more)

    def put(self, stream_id: str, sort_key: str, **attributes: Any) -> None:
        item = {"PK": {"S": stream_id}, "SK": {"S": sort_key}} | attributes
        self.aws.dynamodb.put_item(TableName=self.control_table, Item=item)

    def clear(self) -> None:
        tables = {"events": self.events_table, "control": self.control_table}
        for name, items in self.items().items():
            for partition, sort_key in items:
                key = {"PK": {"S": partition}, "SK": {"S": sort_key}}
                self.aws.dynamodb.delete_item(TableName=tables[name], Key=key)

    def items(self) -> dict[str, dict[tuple[str, str], Any]]:
        """Returns all items of both tables by their keys."""
        tables = {"events": self.events_table, "control": self.control_table}
        pages = {name: self.aws.dynamodb.scan(TableName=table)["Items"] for name, table in tables.items()}
        return {name: {(one["PK"]["S"], one["SK"]["S"]): one for one in items} for name, items in pages.items()}


def running(aws: Aws) -> str:
    """Starts an execution that waits, and returns its ARN."""
    definition = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 3600, "End": True}}}
    machine = aws.states.create_state_machine(
        name="streamkeeper-any-connections", definition=json.dumps(definition), roleArn=ROLE
    )
    execution: str = aws.states.start_execution(stateMachineArn=machine["stateMachineArn"])["executionArn"]
    return execution

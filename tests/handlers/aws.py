"""The store's tests' AWS, in memory or embedded: tables, a queue, a bucket, and a client whose answers can be lost."""

import io
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError

from handlers.connection.effects import Progress
from handlers.connection.inputs import GapsRecorded
from handlers.store import ledger_records
from handlers.store.connection_store import Store
from handlers.store.control_table import Table
from local.simulation.tables import MemoryDynamoDB
from tests.permission_edges import own_requests

EVENTS, CONTROL, BUCKET = "events", "control", "bodies"
SECRETS = "/streamkeeper/test/"


def keys(sort_key: str) -> list[dict[str, str]]:
    """Return the keys of a table, or of an index with another order."""
    return [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": sort_key, "KeyType": "RANGE"}]


def index(name: str, schema: list[dict[str, str]]) -> dict[str, Any]:
    """Return an index that holds only keys."""
    return {"IndexName": name, "KeySchema": schema, "Projection": {"ProjectionType": "KEYS_ONLY"}}


_SWAPPED = [{"AttributeName": "SK", "KeyType": "HASH"}, {"AttributeName": "PK", "KeyType": "RANGE"}]
BY_RECORD = index("by-record", _SWAPPED)
BY_RECORD["Projection"] = {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["execution", "generation"]}
INDEXES = {EVENTS: [index("by-position", keys("position"))], CONTROL: [BY_RECORD]}
ATTRIBUTES = {EVENTS: {"position": "S"}, CONTROL: {}}


@cache
def _client(service: str, endpoint: str) -> Any:
    """Return the one client of all tests, because making it takes longer than most of them."""
    # The server of a queue or a bucket may close an idle connection just as a request is sent.
    attempts = 1 if service == "dynamodb" else 2
    config = Config(parameter_validation=False, retries={"total_max_attempts": attempts})
    return boto3.client(service, endpoint_url=endpoint, config=config)


@cache
def _queue(endpoint: str) -> str:
    """Return the address of the queue, which is made once, and again after a test that used it."""
    url: str = _client("sqs", endpoint).create_queue(QueueName="dead-letters")["QueueUrl"]
    return url


@cache
def _make_bucket(endpoint: str) -> None:
    """Make the bucket, even if a function of the product uses it first."""
    s3 = _client("s3", endpoint)
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou), own_requests():
        place = {"LocationConstraint": os.environ["AWS_DEFAULT_REGION"]}
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration=place)


class Memory:
    """Tables, a queue and a bucket in memory, and stores on them; `delays` has the delays of those stores.

    The tables answer as the embedded ones do (`tests/contracts/test_table.py`). It is the client of queue and bucket.
    """

    queue_url = "queue"

    def __init__(self, dynamodb: Any = None) -> None:
        self.dynamodb: Any = MemoryDynamoDB(EVENTS, CONTROL) if dynamodb is None else dynamodb
        self.delays: list[float] = []
        self._letters: list[dict[str, Any]] = []
        self._objects: dict[str, bytes] = {}

    @property
    def sqs(self) -> Any:
        """Return the client of the queue."""
        return self

    @property
    def s3(self) -> Any:
        """Return the client of the bucket."""
        return self

    def send_message(self, *, QueueUrl: str, MessageBody: str) -> None:
        """Take a message, as boto3's client does."""
        assert QueueUrl == self.queue_url
        self._letters.append(json.loads(MessageBody))

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:
        """Put an object, as boto3's client does."""
        assert Bucket == BUCKET
        self._objects[Key] = Body

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        """Return an object, as boto3's client does."""
        assert Bucket == BUCKET
        if Key not in self._objects:
            raise ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject")
        return {"Body": io.BytesIO(self._objects[Key])}

    def delete_object(self, *, Bucket: str, Key: str) -> None:
        """Delete an object, as boto3's client does."""
        assert Bucket == BUCKET
        del self._objects[Key]

    def objects(self) -> dict[str, bytes]:
        """Return the objects in the bucket, by key."""
        return dict(self._objects)

    def dead_letters(self) -> list[dict[str, Any]]:
        """Return the messages in the dead-letter queue, and empty it."""
        letters, self._letters = self._letters, []
        return letters

    def store(self, dynamodb: Any = None, bucket: str = "", **settings: Any) -> Store:
        """Return a store on these tables, or on another client to them; with the bucket if one is named."""
        return Store(
            dynamodb or self.dynamodb,
            lambda: self.sqs,
            events_table=EVENTS,
            control_table=CONTROL,
            dead_letter_queue_url=self.queue_url,
            events_bucket=bucket,
            s3=lambda: self.s3,
            sleep=self.delays.append,
            **settings,
        )

    def items(self, table: str, stream_id: str) -> dict[str, dict[str, Any]]:
        """Return the items of one stream by their sort key, with each attribute's bare value."""
        items = self.dynamodb.query(
            TableName=table,
            KeyConditionExpression="PK = :stream",
            ExpressionAttributeValues={":stream": {"S": stream_id}},
            ConsistentRead=True,
        )["Items"]
        return {item["SK"]["S"]: {name: _bare(value) for name, value in item.items()} for item in items}

    def put_control(self, stream_id: str, key: str, **attributes: Any) -> None:
        """Write attributes into a record of the control table, as another writer would."""
        names = {f"#{name}": name for name in attributes}
        self.dynamodb.update_item(
            TableName=CONTROL,
            Key={"PK": {"S": stream_id}, "SK": {"S": key}},
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in attributes),
            ExpressionAttributeNames=names,
            ExpressionAttributeValues={f":{name}": value for name, value in attributes.items()},
        )

    def stop(self, stream_id: str, *, stop: bool = True) -> None:
        """Request a stop of the stream, or take the request back."""
        self.put_control(stream_id, "lease", stop={"BOOL": stop})

    def losses(self, stream_id: str) -> list[str]:
        """Return the causes of the losses that are recorded."""
        records = self.items(CONTROL, stream_id)
        return [one["cause"] for key, one in records.items() if re.fullmatch("gap#[0-9]+#[0-9]+", key)]


class Aws(Memory):
    """Tables and a queue in the emulators, and stores on them.

    Queue and bucket are emptied only if they were used, because emptying them takes longer than most tests.
    """

    def __init__(self) -> None:
        self._endpoint = os.environ["AWS_ENDPOINT_URL"]
        self._used: set[str] = set()
        super().__init__(_client("dynamodb", os.environ["AWS_ENDPOINT_URL_DYNAMODB"]))
        for table in (EVENTS, CONTROL):
            self.dynamodb.create_table(
                TableName=table,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[
                    {"AttributeName": name, "AttributeType": kind}
                    for name, kind in ({"PK": "S", "SK": "S"} | ATTRIBUTES[table]).items()
                ],
                KeySchema=keys("SK"),
                GlobalSecondaryIndexes=INDEXES[table],
            )
        self.queue_url = _queue(self._endpoint)

    @property
    def sqs(self) -> Any:
        self._used.add("sqs")
        return _client("sqs", self._endpoint)

    @property
    def states(self) -> Any:
        """Return the client of Step Functions."""
        return _client("stepfunctions", self._endpoint)

    @property
    def s3(self) -> Any:
        self._used.add("s3")
        _make_bucket(self._endpoint)
        return _client("s3", self._endpoint)

    def close(self) -> None:
        """Delete the tables and the queue, with all that is in them."""
        for table in (EVENTS, CONTROL):
            self.dynamodb.delete_table(TableName=table)
        if "s3" in self._used:
            for key in self.objects():
                self.s3.delete_object(Bucket=BUCKET, Key=key)
        # A function in a sandbox uses a client of its own.
        if "sqs" in self._used or os.environ.get("DEAD_LETTER_QUEUE_URL") == self.queue_url:
            with suppress(ClientError):
                self.sqs.delete_queue(QueueUrl=self.queue_url)
            _queue.cache_clear()

    def objects(self) -> dict[str, bytes]:
        """Return the objects in the bucket, by key."""
        keys = [entry["Key"] for entry in self.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]
        return {key: self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}

    def dead_letters(self) -> list[dict[str, Any]]:
        bodies: list[dict[str, Any]] = []
        while messages := self.sqs.receive_message(QueueUrl=self.queue_url, MaxNumberOfMessages=10).get("Messages"):
            bodies += [json.loads(message["Body"]) for message in messages]
        return bodies


def save_connection(store: Store, stream_id: str, progress: Progress, **who: str) -> bool:
    """Save the record of a connection; return whether the ledger accepted it."""
    return store.ledger.save(stream_id, ledger_records.connection_item(progress, **who))


def record_gaps(
    store: Store, stream_id: str, now_ms: int, dead_after_ms: int, gaps_recorded_by: int = 0, *, again: bool = False
) -> GapsRecorded:
    """Let the newest connection record which gaps there were."""
    (own,) = Table(store._dynamodb, CONTROL).newest_records(stream_id, "connection#", 1)
    return store.ledger.record_gaps(stream_id, now_ms, dead_after_ms, own, gaps_recorded_by, has_open_gap=again)


def put_secret(name: str, text: str) -> None:
    """Make the secret, or give it another value."""
    manager = boto3.client("secretsmanager")
    try:
        manager.create_secret(Name=name, SecretString=text)
    except manager.exceptions.ResourceExistsException:
        manager.put_secret_value(SecretId=name, SecretString=text)


def carry_out(call: Callable[..., Any], **parameters: Any) -> Any:
    """Carry out the request and return its answer."""
    return call(**parameters)


class Client:
    """A client to the real tables in which one operation fails in a given `way`."""

    def __init__(self, real: Any, operation: str, way: Callable[..., Any] = carry_out) -> None:
        self._real = real
        self._operation = operation
        self.way = way

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._real, name)
        return call if name != self._operation else lambda **parameters: self.way(call, **parameters)


class CountingClient:
    """A client that notes its requests and how many statements each has; `before` is called before each is sent."""

    def __init__(self, real: Any, before: Callable[[str, dict[str, Any]], object] = lambda *_: None) -> None:
        self._real = real
        self._before = before
        self.requests: list[str] = []
        self.statements: list[int] = []

    def __getattr__(self, name: str) -> Any:
        def call(**parameters: Any) -> Any:
            self._before(name, parameters)
            self.requests.append(name)
            self.statements.append(len(parameters.get("Statements", [None])))
            return getattr(self._real, name)(**parameters)

        return call


def lose_answer(call: Callable[..., Any], **parameters: Any) -> Any:
    """Carry out the request, and raise as if its answer never came."""
    call(**parameters)
    raise ReadTimeoutError(endpoint_url="https://dynamodb")


def drop_request(_call: Callable[..., Any], **_parameters: Any) -> Any:
    """Raise as if no answer came, without carrying out the request."""
    raise ReadTimeoutError(endpoint_url="https://dynamodb")


def send_twice(call: Callable[..., Any], **parameters: Any) -> Any:
    """Carry out the request twice, as if the first answer was lost; the answer has the number of retries."""
    call(**parameters)
    try:
        answer = call(**parameters)
        answer.setdefault("ResponseMetadata", {})["RetryAttempts"] = 1
        return answer
    except ClientError as error:
        error.response["ResponseMetadata"]["RetryAttempts"] = 1
        raise


def fail_with(code: str) -> Callable[..., Any]:
    """Return a way in which AWS refuses with an error code and a message that quotes the data."""

    def way(_call: Callable[..., Any], **parameters: Any) -> Any:
        raise ClientError({"Error": {"Code": code, "Message": f"secret {parameters}"}}, "Operation")

    return way


def _bare(value: dict[str, Any]) -> Any:
    ((kind, content),) = value.items()
    return int(content) if kind == "N" else content

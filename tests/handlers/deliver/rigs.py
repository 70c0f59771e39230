"""Each sink with a real consumer: makes the sink, and reads its arrivals in order."""

import base64
import gzip
import hashlib
import hmac
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from handlers.profile.deliver_field import Target
from handlers.profile.secret_references import Reference
from tests.handlers.deliver import fault_proxy
from tests.handlers.deliver.fault_proxy import Proxy
from tests.http_server import Answer, Request, answering
from tests.local.support import client

SECRET = "whsec_" + base64.b64encode(b"a secret of 24 bytes long").decode()
_SEEN_BY_LAMBDA = """
import json, os, urllib.request
def handler(event, context):
    request = urllib.request.Request(os.environ["SEEN_AT"], data=json.dumps(event).encode(), method="POST")
    urllib.request.urlopen(request, timeout=20).close()
"""


@dataclass
class Rig:
    """One sink: its target, the proxy before it, and its arrivals, each an event as JSON."""

    target: Target
    proxy: Proxy
    client: Callable[[str], Any]
    received: Callable[[], list[dict[str, Any]]]
    # The body of an event that the sink refuses for good.
    poison: str = "x" * 1_200_000


def fifo(sqs: Any, name: str) -> str:
    attributes = {"FifoQueue": "true", "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    url: str = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return url


def receive_all(sqs: Any, url: str) -> list[str]:
    bodies = []
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
        for message in messages:
            bodies.append(message["Body"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return bodies


def _sqs(endpoint: str | None, name: str) -> tuple[Target, Callable[[], list[dict[str, Any]]]]:
    sqs = client("sqs", endpoint)
    url = fifo(sqs, f"{name}.fifo")
    return Target("sqs", f"{name}.fifo"), lambda: flat(receive_all(sqs, url))


def _eventbridge(endpoint: str | None, name: str) -> tuple[Target, Callable[[], list[dict[str, Any]]]]:
    events, sqs = client("events", endpoint), client("sqs", endpoint)
    events.create_event_bus(Name=name)
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name=name, EventBusName=name, EventPattern=json.dumps({"source": ["streamkeeper"]}))
    events.put_targets(Rule=name, EventBusName=name, Targets=[{"Id": "1", "Arn": arn}])
    return Target("eventbridge", name), lambda: [json.loads(body)["detail"] for body in receive_all(sqs, url)]


def _kinesis(endpoint: str | None, name: str) -> tuple[Target, Callable[[], list[dict[str, Any]]]]:
    kinesis = client("kinesis", endpoint)
    kinesis.create_stream(StreamName=name, ShardCount=2)
    kinesis.get_waiter("stream_exists").wait(StreamName=name, WaiterConfig={"Delay": 1})

    def received() -> list[dict[str, Any]]:
        records = []
        for shard in kinesis.describe_stream(StreamName=name)["StreamDescription"]["Shards"]:
            begin = {"StreamName": name, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
            place = kinesis.get_shard_iterator(**begin)["ShardIterator"]
            records += kinesis.get_records(ShardIterator=place)["Records"]
        return flat(record["Data"] for record in records)

    return Target("kinesis", name), received


def _firehose(endpoint: str | None, name: str) -> tuple[Target, Callable[[], list[dict[str, Any]]]]:
    client("s3", endpoint).create_bucket(Bucket=name)
    bucket = {"BucketARN": f"arn:aws:s3:::{name}", "RoleARN": "arn:aws:iam::000000000000:role/firehose"}
    client("firehose", endpoint).create_delivery_stream(
        DeliveryStreamName=name, ExtendedS3DestinationConfiguration=bucket
    )
    return Target("firehose", name), lambda: lines(client("s3", endpoint), name)


def _s3(endpoint: str | None, name: str) -> tuple[Target, Callable[[], list[dict[str, Any]]]]:
    client("s3", endpoint).create_bucket(Bucket=name)
    return Target("s3", name, prefix="raw/"), lambda: lines(client("s3", endpoint), name)


def lines(s3: Any, bucket: str) -> list[dict[str, Any]]:
    """Return the events of all objects of a bucket, sorted by the objects' keys."""
    events: list[dict[str, Any]] = []
    for entry in sorted(s3.list_objects_v2(Bucket=bucket).get("Contents", []), key=lambda one: one["Key"]):
        content = s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
        text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        events += [json.loads(line) for line in text.splitlines()]
    return events


def created(endpoint: str, name: str, text: str, **variables: str) -> None:
    """Return a new function that runs this module."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("index.py", text)
    client("lambda", endpoint).create_function(
        FunctionName=name, Runtime="python3.13", Handler="index.handler", Code={"ZipFile": packed.getvalue()},
        Role="arn:aws:iam::000000000000:role/consumer", Timeout=30, Environment={"Variables": variables},
    )  # fmt: skip


@contextmanager
def listening(check: Callable[[Any, bytes], bool]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the address of a server, and the valid bodies that were posted to it."""
    bodies: list[Any] = []

    def answer(request: Request) -> Answer:
        is_sound = check(request.headers, request.body)
        if is_sound:
            bodies.append(json.loads(request.body))
        return Answer(204 if is_sound else 401)

    with answering(answer) as url:
        yield url, bodies


def is_signed(headers: Any, body: bytes) -> bool:
    """Return whether the three headers are valid Standard Webhooks headers, by the library's own steps."""
    id_, at = headers["webhook-id"], headers["webhook-timestamp"]
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, f"{id_}.{at}.".encode() + body, hashlib.sha256).digest()).decode()
    return hmac.compare_digest(headers["webhook-signature"], f"v1,{expected}")


def flat(bodies: Iterable[str | bytes]) -> list[dict[str, Any]]:
    """Return the events of messages, each with one event or a batch."""
    return [event for body in bodies for one in [json.loads(body)] for event in one.get("events", [one])]


AWS_RIGS = {"sqs": _sqs, "eventbridge": _eventbridge, "kinesis": _kinesis, "firehose": _firehose, "s3": _s3}
# A size in bytes that a sink never accepts.
POISON = {"s3": 33 << 20, "lambda": 6_000_000}
_SENDS = {"SendMessageBatch", "PutEvents", "PutRecords", "PutRecordBatch"}


@contextmanager
def rig(kind: str, endpoint: str, name: str, batch: int = 1) -> Iterator[Rig]:
    """Yield one sink of this kind, made at `endpoint`, behind a proxy."""
    if kind == "webhook":
        with listening(is_signed) as (url, bodies), fault_proxy.running(url) as proxy:
            target = Target(
                "webhook", f"{proxy.url}/hook", secret=Reference("secret", "hook"), allow_private=True, batch=batch
            )
            received = lambda: flat(map(json.dumps, bodies))  # noqa: E731
            yield Rig(target, proxy, lambda service: client(service, proxy.url), received)
        return
    with fault_proxy.running(endpoint) as proxy, listening(lambda *_: True) as (url, bodies):
        if kind == "lambda":
            created(endpoint, name, _SEEN_BY_LAMBDA, SEEN_AT=url)
            target = Target("lambda", name)

            def received() -> list[dict[str, Any]]:
                return [event for call in bodies for event in call["events"]]
        else:
            target, received = AWS_RIGS[kind](endpoint, name)
        proxy.sends = lambda method, operation: operation in _SENDS or (not operation and method in ("PUT", "POST"))
        made = cache(lambda service: client(service, proxy.url))
        yield Rig(replace(target, batch=batch), proxy, made, received, "x" * POISON.get(kind, 1_200_000))

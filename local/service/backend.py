"""Provides the AWS services that the run does not implement itself: tables, queues, the bucket, secrets and the rest.

They are two child processes (`embedded_aws.py`), or the environment's endpoints instead.
Invariants: no request is sent to a child before it answers; functions are replaced when tables are restored to an older
state; the addresses that a function gets lead only to this run, or to endpoints of the user's environment.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from local.aws_endpoints import Endpoints, needs_dynamodb
from local.checkout import ROOT
from local.listener import HOST, port_of
from local.service import embedded_aws
from local.service.embedded_aws import EmbeddedAws, EmbeddedDynamoDB
from local.stack import Stack
from local.terminal import UserError


@dataclass(frozen=True)
class Sockets:
    """The listening sockets, all on 127.0.0.1; `embedded_aws` is None if the user's endpoints replace it."""

    api: socket.socket
    aws: socket.socket
    upstreams: socket.socket
    embedded_aws: socket.socket | None


class FunctionAddresses:
    """The addresses for functions; `is_guarded` says whether the AWS endpoint checks their requests.

    `aws` is the AWS endpoint, `upstreams` the variables with which the addresses of profiles may begin.
    """

    def __init__(
        self, endpoints: Endpoints, sockets: Sockets, environment: Mapping[str, str], *, is_guarded: bool
    ) -> None:
        self.aws = f"http://{HOST}:{port_of(sockets.aws)}"
        own = {name: value for name, value in environment.items() if name.startswith("UPSTREAM_") and value}
        self.upstreams = {"UPSTREAM_DEMO": f"http://{HOST}:{port_of(sockets.upstreams)}"} | own
        # With a guard, all requests go through the AWS endpoint.
        self._endpoints = Endpoints({}, self.aws) if is_guarded else endpoints
        self._is_guarded = is_guarded

    def variables(self) -> dict[str, str]:
        """Returns the variables of every function's environment that contain addresses."""
        # Step Functions and the functions are always this service's own.
        own = {"AWS_ENDPOINT_URL_SFN": self.aws, "AWS_ENDPOINT_URL_LAMBDA": self.aws}
        # At AWS, StartSyncExecution has a different host name; here it has the same.
        own["AWS_DISABLE_HOST_PREFIX_INJECTION"] = "true"
        return self._endpoints.environment() | self.upstreams | own

    def queues(self, queue_urls: Mapping[str, str]) -> dict[str, str]:
        if not self._is_guarded:
            return dict(queue_urls)
        origin = self._endpoints.url_of("sqs")
        return {name: f"{origin}{urlsplit(address).path}" for name, address in queue_urls.items()}


class Backend:
    """The services of one run, in the folder `data`; `listening` is the embedded AWS's socket, or None.

    If the child with the tables dies, `on_death` is called, and `on_restart` once another one has them. `on_failure`
    gets a sentence if a child cannot be restarted; `say` prints a line.
    """

    def __init__(
        self,
        data: Path,
        listening: Any,
        lock_file: IO[str],
        environment: Mapping[str, str],
        on_death: Callable[[], None],
        on_restart: Callable[[], Awaitable[None]],
        on_failure: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        self._data = data
        self._has_tables = needs_dynamodb(environment)
        self._say = say
        self._aws: EmbeddedAws | None = None
        if listening is not None:
            self._aws = EmbeddedAws(data, listening, lock_file, on_death, on_restart, on_failure, say)
        self._dynamodb: EmbeddedDynamoDB | None = None
        # A wheel has no node_modules; `npm install dynoxide` creates it in the working folder.
        binary = embedded_aws.find_dynoxide(ROOT) or embedded_aws.find_dynoxide(Path.cwd())
        if binary is not None and self._has_tables:
            self._dynamodb = EmbeddedDynamoDB(data, binary, lock_file, on_failure, say)
        self.endpoints = Endpoints(
            environment, self._aws.url if self._aws else None, self._dynamodb.url if self._dynamodb else None
        )

    async def start(self, stack: Stack) -> dict[str, str]:
        """Returns the queues' addresses by name, once all resources of the stack exist; raises UserError."""
        if self._has_tables:
            for line in embedded_aws.unreadable_tables(self._data, is_embedded=self._dynamodb is not None):
                self._say(line)
        for child in (self._aws, self._dynamodb):
            if child is not None:
                await child.start()
        return await asyncio.to_thread(self.provision, stack)

    def provision(self, stack: Stack) -> dict[str, str]:
        """Creates the stack's missing resources, and returns the queues' addresses by name; raises UserError."""
        return provision(self.endpoints, stack.tables, stack.queues, stack.buckets)

    def put_secret(self, name: str, value: str) -> None:
        """Creates a secret unless it exists; only in the embedded AWS."""
        if self._aws is not None and self.endpoints.url_of("secretsmanager") == self._aws.url:
            # It is for a demonstration, without which the run is whole.
            with contextlib.suppress(BotoCoreError, ClientError):
                self.endpoints.client("secretsmanager").create_secret(Name=name, SecretString=value)

    async def stop(self) -> None:
        """Returns once every child has ended."""
        for child in (self._dynamodb, self._aws):
            if child is not None:
                await child.stop()

    @property
    def can_lose_writes(self) -> bool:
        """Whether the embedded AWS has the tables, which it may restore to an older state than functions know."""
        return self._dynamodb is None

    @property
    def is_durable(self) -> bool:
        """Whether an acknowledged write survives a SIGKILL of any process here; otherwise seconds may be lost."""
        return self._dynamodb is not None or not self._has_tables


_TABLE = (
    "TableName",
    "KeySchema",
    "AttributeDefinitions",
    "BillingMode",
    "ProvisionedThroughput",
    "GlobalSecondaryIndexes",
    "LocalSecondaryIndexes",
)
_QUEUE = (
    "DelaySeconds",
    "FifoQueue",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "ReceiveMessageWaitTimeSeconds",
    "VisibilityTimeout",
)


def provision(
    endpoints: Endpoints,
    tables: Iterable[Mapping[str, Any]],
    queues: Iterable[Mapping[str, Any]],
    buckets: Iterable[str] = (),
) -> dict[str, str]:
    """Creates what is missing and returns the queues' addresses by name; raises UserError if a service is away."""
    try:
        for bucket in buckets:
            # In REGION, which needs no LocationConstraint, creating an existing own bucket changes nothing.
            endpoints.client("s3").create_bucket(Bucket=bucket)
        for table in tables:
            _create_table(endpoints.client("dynamodb"), table)
        return {str(queue["QueueName"]): _create_queue(endpoints.client("sqs"), queue) for queue in queues}
    except (BotoCoreError, ClientError) as problem:
        raise UserError(f"The tables, queues and buckets cannot be created: {problem}.") from None


def _create_table(client: Any, properties: Mapping[str, Any]) -> None:
    name = properties["TableName"]
    try:
        client.create_table(**{key: properties[key] for key in _TABLE if key in properties})
        client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    except client.exceptions.ResourceInUseException:
        _add_indexes(client, properties)
        _set_stream(client, properties)
        return
    _set_stream(client, properties)
    ttl = properties.get("TimeToLiveSpecification")
    if ttl and ttl.get("Enabled"):
        client.update_time_to_live(
            TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": ttl["AttributeName"]}
        )


def _set_stream(client: Any, properties: Mapping[str, Any]) -> None:
    """Enables or disables an existing table's stream, as CloudFormation does."""
    wanted = properties.get("StreamSpecification", {}).get("StreamViewType")
    described = client.describe_table(TableName=properties["TableName"])["Table"].get("StreamSpecification", {})
    present = described.get("StreamViewType") if described.get("StreamEnabled") else None
    if wanted == present:
        return
    if present is not None:
        client.update_table(TableName=properties["TableName"], StreamSpecification={"StreamEnabled": False})
    if wanted is not None:
        stream = {"StreamEnabled": True, "StreamViewType": wanted}
        client.update_table(TableName=properties["TableName"], StreamSpecification=stream)


def _add_indexes(client: Any, properties: Mapping[str, Any]) -> None:
    described = client.describe_table(TableName=properties["TableName"])["Table"]
    known = {index["IndexName"] for index in described.get("GlobalSecondaryIndexes", [])}
    for index in properties.get("GlobalSecondaryIndexes", []):
        if index["IndexName"] not in known:
            client.update_table(
                TableName=properties["TableName"],
                AttributeDefinitions=properties["AttributeDefinitions"],
                GlobalSecondaryIndexUpdates=[{"Create": index}],
            )


def _create_queue(client: Any, properties: Mapping[str, Any]) -> str:
    name = properties["QueueName"]
    try:
        address: str = client.get_queue_url(QueueName=name)["QueueUrl"]
    except client.exceptions.QueueDoesNotExist:
        attributes = {key: str(properties[key]) for key in _QUEUE if key in properties}
        address = client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return address

"""Creates the tables, queues and buckets of the stack that do not exist yet.

Invariant: what exists stays as it is, except that a table gets the indexes and the stream that it lacks.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from local.aws_endpoints import Endpoints
from local.user_error import UserError

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
    """Creates what is missing and returns the queues' addresses by name; UserError where a service does not answer."""
    try:
        for bucket in buckets:
            # In REGION, which needs no LocationConstraint, creating one's own bucket again changes nothing.
            endpoints.client("s3").create_bucket(Bucket=bucket)
        for table in tables:
            _table(endpoints.client("dynamodb"), table)
        return {str(queue["QueueName"]): _queue(endpoints.client("sqs"), queue) for queue in queues}
    except (BotoCoreError, ClientError) as problem:
        raise UserError(f"The tables, queues and buckets cannot be created: {problem}.") from None


def _table(client: Any, properties: Mapping[str, Any]) -> None:
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
    """Gives a table that is there its stream, or takes it away, as CloudFormation does."""
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


def _queue(client: Any, properties: Mapping[str, Any]) -> str:
    name = properties["QueueName"]
    try:
        address: str = client.get_queue_url(QueueName=name)["QueueUrl"]
    except client.exceptions.QueueDoesNotExist:
        attributes = {key: str(properties[key]) for key in _QUEUE if key in properties}
        address = client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return address

"""Tables and queues of the stack, made where they are absent.

Decides which of CloudFormation's properties the embedded services need. It does not know what they will hold.
Invariant: a table or queue that exists is left as it is.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from local.aws import Endpoints
from local.errors import UserError

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
    endpoints: Endpoints, tables: Iterable[Mapping[str, Any]], queues: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """Returns the addresses of the queues by name, with every table and queue there. No answer: UserError."""
    try:
        for table in tables:
            _table(endpoints.client("dynamodb"), table)
        return {str(queue["QueueName"]): _queue(endpoints.client("sqs"), queue) for queue in queues}
    except (BotoCoreError, ClientError) as problem:
        raise UserError(f"The tables and queues cannot be made: {problem}.") from None


def _table(client: Any, properties: Mapping[str, Any]) -> None:
    name = properties["TableName"]
    try:
        client.create_table(**{key: properties[key] for key in _TABLE if key in properties})
        client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    except client.exceptions.ResourceInUseException:
        return
    ttl = properties.get("TimeToLiveSpecification")
    if ttl and ttl.get("Enabled"):
        client.update_time_to_live(
            TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": ttl["AttributeName"]}
        )


def _queue(client: Any, properties: Mapping[str, Any]) -> str:
    name = properties["QueueName"]
    try:
        found: str = client.get_queue_url(QueueName=name)["QueueUrl"]
    except client.exceptions.QueueDoesNotExist:
        attributes = {key: str(properties[key]) for key in _QUEUE if key in properties}
        found = client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return found

"""Reaches the services of a deployed stage, or of the run on this machine, with the user's credentials.

The stage gives the names of its resources, the dead-letter queue the account and the region, the SDK the endpoints.
Invariant: if a service cannot be reached, one sentence names it.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from local import stages
from local.aws_endpoints import OWN_KEYS
from local.listener import HOST
from local.template import REGION
from local.terminal import UserError, read_port

TRIES, TRIES_HERE = 4, 2
# Twice the number of threads that send requests at once (local/backup).
MOST_CONNECTIONS = 16


@dataclass(frozen=True)
class StageClients:
    """The clients of a stage, by boto3's names of the services, and the names of its resources."""

    clients: Mapping[str, Any]
    names: Mapping[str, str]
    queue_url: str
    bucket: str
    machine_arn_prefix: str  # the beginning of the ARNs of its state machines

    def machine_arn(self, name: str) -> str:
        """The ARN of a state machine, such as "connections"."""
        return self.machine_arn_prefix + self.names[name]


def region_of_environment() -> str:
    """The region, chosen as in serverless.yml."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def make_client(service: str, tries: int, where: Mapping[str, str]) -> Any:
    """A client with short limits; `where` has boto3's other arguments."""
    retries = {"mode": "standard", "total_max_attempts": tries}
    # For one call, Step Functions' host name begins with "sync-"; the user's own endpoint has no such name.
    has_names = "endpoint_url" not in where and not os.environ.get("AWS_ENDPOINT_URL")
    limits = {"connect_timeout": 5, "read_timeout": 30, "max_pool_connections": MOST_CONNECTIONS}
    config = Config(**limits, retries=retries, inject_host_prefix=has_names)
    return boto3.client(service, config=config, **where)


def client_factory_of(name: str | None, region: str = "", port: int = 0) -> tuple[str, Callable[[str], Any]]:
    """The stage's name, and a function that makes its boto3 clients; None means the run on this machine, at its port.

    Without `region` or `port`, the environment decides.
    """
    stage = name or os.environ.get("STREAMKEEPER_STAGE") or "local"
    stages.check_name(stage)
    where, tries = _client_arguments(name, region, port), TRIES_HERE if name is None else TRIES
    return stage, lambda service: make_client(service, tries, where)


def connect_to_stage(name: str | None, region: str = "", port: int = 0) -> StageClients:
    """Returns the stage that `client_factory_of` names, once its queue has answered; raises UserError."""
    stage, made = client_factory_of(name, region, port)
    names, where = stages.names(stage), _client_arguments(name, region, port)
    url = where.get("endpoint_url") or os.environ.get("AWS_ENDPOINT_URL")
    place = f"at {url}" if url else f"in {where['region_name']}"
    try:
        clients = {service: made(service) for service in ("sqs", "dynamodb", "stepfunctions", "s3")}
        queue_url = clients["sqs"].get_queue_url(QueueName=names["dead_letter_queue"])["QueueUrl"]
        answer = clients["sqs"].get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])
    except (BotoCoreError, ClientError, ValueError) as problem:
        there = "is the stage deployed there, and do the credentials of the environment allow it"
        whether = there if name is not None else "does `streamkeeper run` run there (PORT)"
        reason = f"{problem}".rstrip(".")
        raise UserError(
            f"The queue {names['dead_letter_queue']} cannot be reached {place}: {whether}? ({reason})."
        ) from None
    _, partition, _, region, account, _ = answer["Attributes"]["QueueArn"].split(":")
    bucket = f"{stages.SERVICE}-{stage}-events-{account}-{region}"
    return StageClients(clients, names, queue_url, bucket, f"arn:{partition}:states:{region}:{account}:stateMachine:")


def _client_arguments(name: str | None, region: str, port: int) -> dict[str, str]:
    if name is not None:
        return {"region_name": region or region_of_environment()}
    return {
        "endpoint_url": f"http://{HOST}:{(port or read_port(os.environ)) + 1}",
        "region_name": REGION,
        "aws_access_key_id": OWN_KEYS[0],
        "aws_secret_access_key": OWN_KEYS[1],
    }

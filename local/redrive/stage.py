"""The queue, the tables and the machine of a stage, deployed or of the run on this machine.

Names follow from the stage, account and region from the queue itself, endpoints from the SDK. Invariant: what cannot be
reached is one sentence that names it, before any message was received.
"""

import os
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from handlers.redrive.redriving import Stage
from handlers.redrive.restore import Events
from handlers.store.overflow import Objects
from local import stages
from local.aws_endpoints import OWN_KEYS
from local.listener import HOST, read_port
from local.template import REGION
from local.user_error import UserError

TRIES, TRIES_HERE = 4, 2


def connect(name: str | None) -> Stage:
    """The deployed stage of this name; None: that of the run on this machine. Raises UserError."""
    local = name is None
    name, client = clients_of(name)
    names = stages.names(name)
    place = place_of(local=local)
    try:
        sqs, dynamodb, states, s3 = (client(service) for service in ("sqs", "dynamodb", "stepfunctions", "s3"))
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


def clients_of(name: str | None) -> tuple[str, Callable[[str], Any]]:
    """The stage's name, and what makes boto3's client of a service there; None: the run on this machine."""
    stage = name or os.environ.get("STREAMKEEPER_STAGE") or "local"
    stages.check_name(stage)
    where = _of_this_machine() if name is None else {"region_name": _region()}
    tries = TRIES_HERE if name is None else TRIES
    config = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": tries})
    return stage, lambda service: boto3.client(service, config=config, **where)


def place_of(*, local: bool) -> str:
    """Where that is, in words."""
    if local:
        return _of_this_machine()["endpoint_url"]
    return os.environ.get("AWS_ENDPOINT_URL") or f"the region {_region()}"


def _region() -> str:
    # As serverless.yml chooses the region.
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def _of_this_machine() -> dict[str, str]:
    return {
        "endpoint_url": f"http://{HOST}:{read_port(os.environ) + 1}",
        "region_name": REGION,
        "aws_access_key_id": OWN_KEYS[0],
        "aws_secret_access_key": OWN_KEYS[1],
    }

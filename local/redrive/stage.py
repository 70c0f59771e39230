"""The queue, the tables and the machine of a stage, deployed or of the run on this machine.

Names follow from the stage, account and region from the queue itself, endpoints from the SDK. Invariant: what cannot be
reached is one sentence that names it, before any message was received.
"""

import os
from collections.abc import Mapping

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from handlers.redrive.redriving import Stage
from handlers.redrive.restore import Events
from handlers.store.overflow import Objects
from local import stages
from local.listener import HOST
from local.user_error import UserError

TRIES, TRIES_HERE = 4, 2


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

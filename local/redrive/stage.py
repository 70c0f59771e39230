"""The queue, the tables and the machine of a stage, deployed or of the run on this machine.

Names follow from the stage, account and region from the queue itself, endpoints from the SDK. Invariant: what cannot be
reached is one sentence that names it, before any message was received.
"""

import os

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
    name = name or os.environ.get("STREAMKEEPER_STAGE") or "local"
    stages.check_name(name)
    names = stages.names(name)
    # As serverless.yml chooses the region.
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    where = _of_this_machine() if local else {"region_name": region}
    place = where.get("endpoint_url") or os.environ.get("AWS_ENDPOINT_URL") or f"the region {where['region_name']}"
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


def _of_this_machine() -> dict[str, str]:
    return {
        "endpoint_url": f"http://{HOST}:{read_port(os.environ) + 1}",
        "region_name": REGION,
        "aws_access_key_id": OWN_KEYS[0],
        "aws_secret_access_key": OWN_KEYS[1],
    }

"""Watches all streams: reports once a minute for how long each stream that should be connected is not.

handlers/connection/lease.py says which stream should be connected, and since when one is not. These numbers need
neither Lambda's nor Step Functions' API, so they show their outages too. Then the function names those streams in a
message to the alerts' topic (handlers/alerts.py), asks Step Functions about them, and starts an execution for each that
is orphaned (handlers/orphans.py).

It also asks how many messages are in the dead-letter queue. "CloudWatch considers a queue to be active for up to six
hours if it contains any messages, or if any action accesses it", and a queue that was not active has its metrics up to
15 minutes late (SQS developer guide, "Monitoring Amazon SQS queues using CloudWatch"): the first message after a quiet
day would come too late for its alarm.

Invariants: it writes nothing to the table; it reports its numbers in every run, also where there is no stream, because
the alarm treats missing data as a breach, and before it asks anybody else, who may be slow.
"""

import os
import time
from functools import cache, partial
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from handlers.alerts import Names
from handlers.connection.lease import Lease, unconnected_ms
from handlers.connection.orphans import in_turn, is_suspect
from handlers.orphans import Orphans, StepFunctions
from handlers.settings import load_watch
from handlers.store.leases import all_leases, read_lease

CLIENT = Config(
    connect_timeout=1,
    read_timeout=2,
    retries={"mode": "standard", "total_max_attempts": 3},
    max_pool_connections=1,
    tcp_keepalive=True,
    parameter_validation=False,
)

# Step Functions answers ten requests a second; where the upstreams of many streams are away, each has its turn.
ASKED = 100
# The function has 50 seconds.
ASK_S = 25

logger = Logger()
metrics = Metrics()
settings = load_watch(os.environ)
dynamodb = boto3.client("dynamodb", config=CLIENT)


@cache
def step_functions() -> Any:
    """The client of Step Functions; most runs need none."""
    return boto3.client("stepfunctions", config=CLIENT)


@cache
def sqs() -> Any:
    """The client of the dead-letter queue."""
    return boto3.client("sqs", config=CLIENT)


@cache
def sns() -> Any:
    """The client of the alerts' topic; most runs need none."""
    return boto3.client("sns", config=CLIENT)


def publish(subject: str, text: str) -> None:
    """Sends a message to whoever has subscribed to the alerts."""
    sns().publish(TopicArn=settings.alerts_topic_arn, Subject=subject, Message=text)


names = Names(publish)


def handler(_event: object, _lambda_context: object) -> dict[str, Any]:
    """How many streams should be connected, for how long each that is not has not been, in seconds, and the orphans.

    A log line names each that has not been for UNCONNECTED_AFTER_S, and each orphan; of the first a message too, once.
    What DynamoDB refuses is raised, and the metrics of this run are missing. What another service refuses is logged.
    """
    late_at_s = time.monotonic() + ASK_S
    now_ms = time.time_ns() // 1_000_000
    wanted = 0
    missing_s: dict[str, int] = {}
    away_s: dict[str, int] = {}
    suspects: dict[str, Lease] = {}
    for stream_id, lease in all_leases(dynamodb, settings.control_table):
        wanted += bool(lease.execution) and not lease.stop
        length_ms = unconnected_ms(lease, now_ms)
        if length_ms:
            missing_s[stream_id] = length_ms // 1000
        if length_ms >= settings.unconnected_after_ms:
            away_s[stream_id] = length_ms // 1000
            fields = {"stream_id": stream_id, "execution": lease.execution, "unconnected_s": away_s[stream_id]}
            logger.error("a stream that should be connected is not", extra=fields)
        if is_suspect(lease, now_ms):
            suspects[stream_id] = lease
    longest_s = max(missing_s.values(), default=0)
    metrics.add_metric("Wanted", MetricUnit.Count, wanted)
    metrics.add_metric("Unconnected", MetricUnit.Count, len(missing_s))
    metrics.add_metric("LongestUnconnected", MetricUnit.Seconds, longest_s)
    metrics.flush_metrics()
    named, dead_letters = tell_names(away_s), count_dead_letters()
    orphans = mend(suspects, now_ms, late_at_s)
    seen = {"wanted": wanted, "unconnected_s": missing_s, "named": named}
    return seen | {"dead_letters": dead_letters, "orphans": orphans}


def tell_names(away_s: dict[str, int]) -> list[str]:
    """The ids of the streams that a message names now."""
    try:
        return names.report(away_s)
    except (BotoCoreError, ClientError) as problem:
        logger.error("no message names the streams", extra={"problem": type(problem).__name__})
        return []


def count_dead_letters() -> int | None:
    """About how many messages are in the dead-letter queue; None where it does not answer."""
    name = "ApproximateNumberOfMessages"
    try:
        answer = sqs().get_queue_attributes(QueueUrl=settings.dead_letter_queue_url, AttributeNames=[name])
        return int(answer["Attributes"][name])
    except (BotoCoreError, ClientError) as problem:
        logger.error("the dead-letter queue does not answer", extra={"problem": type(problem).__name__})
        return None


def mend(suspects: dict[str, Lease], now_ms: int, late_at_s: float) -> list[str]:
    """The ids of those of the suspects that are orphaned; for each an execution was started if one may be."""
    states = StepFunctions(step_functions, settings.state_machine_arn)
    lease_of = partial(read_lease, dynamodb, settings.control_table)
    orphans = Orphans(states, lease_of, states.youngest, may_start=lambda _: True)
    orphaned = []
    for stream_id in in_turn(sorted(suspects), now_ms, ASKED):
        if time.monotonic() > late_at_s:
            logger.error("Step Functions is slow: the rest of the streams is looked at in a minute")
            break
        try:
            orphan = orphans.check(stream_id, suspects[stream_id], now_ms)
        except (BotoCoreError, ClientError) as problem:
            fields = {"stream_id": stream_id, "problem": type(problem).__name__}
            logger.error("whether the stream is orphaned could not be found out, or not mended", extra=fields)
            continue
        if orphan is not None:
            orphaned.append(stream_id)
            fields = {"stream_id": stream_id, "execution": orphan.execution, "started": orphan.started}
            logger.error(orphan.sentence, extra=fields)
    if orphaned:
        # In no other run: a metric is paid for by the hours in which it has data.
        metrics.add_metric("Orphaned", MetricUnit.Count, len(orphaned))
        metrics.flush_metrics()
    return orphaned

"""Watches all streams: reports once a minute which streams should be connected but are not, and for how long.

These numbers need neither Lambda's nor Step Functions' API, so they show the outages of both too. Then the function
names these streams in a message to the alerts' topic (handlers/watching/alerts.py), queries Step Functions about them,
and starts an execution for each orphaned stream (handlers/watching/orphan_recovery.py). Each run continues where the
previous one ran out of time (handlers/watching/lease_rounds.py); `python -m bench.watch` measures how many streams a
run reaches.

Invariants: the watch writes nothing to the table but the end of a stopped stream whose execution is over. It reports
its numbers in every run, even without a stream, because the alarm treats missing data as a breach; it does so before it
calls any other service, which may be slow.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from botocore.exceptions import BotoCoreError, ClientError

from handlers.api.verdict import away_words as away_words
from handlers.aws.error_translation import describe_error
from handlers.aws.executions import Pace
from handlers.aws.lambda_environment import LambdaContext, boto3_client, plain_aws
from handlers.aws.lambda_environment import dynamodb as dynamodb_client
from handlers.errors import StoreUnavailable
from handlers.repair.work import RepairWork, start_due, start_repair
from handlers.settings import WatchSettings
from handlers.store.control_table import Table
from handlers.store.leases import Leases
from handlers.watching import alerts
from handlers.watching.lease_rounds import Findings, Rounds, Turn
from handlers.watching.orphan_recovery import Orphans, StepFunctions, release_stopped

TRIES = 3
# The function has 55 seconds. It reads leases for READ_S, and queries Step Functions until ASK_S after its start.
READ_S, ASK_S = 30, 42
# The streams about which a run queries Step Functions. A running stream costs one request, an orphan about seven.
ASKED = 100
# DescribeExecution has a bucket of 250 requests and a refill of 10 a second, for the whole account, in all regions but
# the three largest (Step Functions developer guide, "Service quotas", "Other quotas"). The machines use the same
# bucket, so the watch takes half of the refill.
AT_ONCE, A_SECOND = 50, 5.0

logger = Logger()
metrics = Metrics()
settings = WatchSettings.load(os.environ)
dynamodb = dynamodb_client(plain_aws(os.environ), tries=TRIES)


def client(service: str) -> Any:
    """Returns the client of a service; most runs need only the dead-letter queue's."""
    return boto3_client(service, TRIES)


def publish(subject: str, text: str) -> None:
    """Sends a message to all subscribers of the alerts."""
    client("sns").publish(TopicArn=settings.alerts_topic_arn, Subject=subject, Message=text)


class Memory:
    """The memory of a sandbox, which one run leaves to the next."""

    def __init__(self) -> None:
        self.leases = Leases(dynamodb, settings.control_table)
        self.suspects = Turn(ASKED)
        self.rounds = Rounds(self.leases, settings.unconnected_after_ms, self.suspects)
        self.names = {kind: alerts.StreamAlerts(publish, words) for kind, words in alerts.KINDS.items()}
        # Whether subscribers were notified that a run does not reach every stream.
        self.is_partial_reported = False
        self.pace = Pace(AT_ONCE, A_SECOND, time.monotonic, time.sleep)


@cache
def memory() -> Memory:
    """Returns the memory, which the first run makes."""
    return Memory()


def handler(_event: object, lambda_context: LambdaContext) -> dict[str, Any]:
    """Returns how many streams should be connected, how many are not, and which were named or found orphaned now.

    In each run the log names all streams that are not well: away for UNCONNECTED_AFTER_S, quiet, near their budget,
    orphaned, or with ids that start over or a lease that cannot be read whole. A message names each of them once,
    except orphans. If DynamoDB refuses a request, the error is raised, and the metrics of this run are missing. A
    refusal by another service is logged.
    """
    logger.append_keys(request_id=lambda_context.aws_request_id)
    began_s = time.monotonic()
    now_ms = time.time_ns() // 1_000_000
    rounds = memory().rounds
    seen = rounds.check(now_ms, lambda: time.monotonic() - began_s > READ_S)
    wanted, missing, longest_ms = rounds.numbers()
    # A metric is billed by the month, so only the alarm's number is a metric. The dashboard reads the other numbers
    # from this document.
    metrics.add_metric("LongestUnconnected", MetricUnit.Seconds, longest_ms // 1000)
    metrics.add_metadata("Wanted", wanted)
    metrics.add_metadata("Unconnected", missing)
    metrics.flush_metrics()
    named = send_alerts(seen)
    dead_letters = count_dead_letters()
    repairs = start_repairs(now_ms)
    orphans = recover_orphans(now_ms, began_s + ASK_S, seen.groups)
    return {
        "is_whole": seen.is_whole,
        "wanted": wanted,
        "unconnected": missing,
        "named": named[: alerts.MOST_NAMES],
        "dead_letters": dead_letters,
        "repairs": repairs,
        "orphans": orphans,
    }


@contextlib.contextmanager
def log_refusals(words: str, **fields: str) -> Iterator[None]:
    """Logs a service's refusal in its block, and continues."""
    try:
        yield
    except (BotoCoreError, ClientError, StoreUnavailable) as problem:
        logger.error(words, extra=fields | {"problem": describe_error(problem)})


def send_alerts(findings: Findings) -> list[str]:
    """Logs the streams that are not well, and sends a message about the new ones; returns their ids."""
    group_words = alerts.group_words(findings.groups)
    away = {
        one: f"{away_words(length_ms).lower()}{group_words.get(one, '')}" for one, length_ms in findings.away_ms.items()
    }
    damage = {stream_id: ", ".join(names) for stream_id, names in findings.damage.items()}
    logged = {
        "streams that should be connected are not": away,
        "leases cannot be read whole": damage,
        "connected streams are quiet, or their ids start over": findings.quiet | findings.restarted,
        "streams have used most of their budget": findings.budgets,
    }
    if not findings.is_whole:
        logger.error("not every stream was checked: the next run continues with the others")
        report_partial(findings.wanted)
    for words, streams in logged.items():
        for part in alerts.lines(streams):
            logger.error(words, extra={"streams": part})
    last, named = memory().rounds.last, memory().names
    if findings.is_whole and last is not None:
        for kind, names in named.items():
            names.keep_only(getattr(last, kind))
    by_kind = {kind: getattr(findings, kind) for kind in named} | {"away_ms": away, "damage": damage}
    return [stream_id for kind, names in named.items() for stream_id in send_alert(names, by_kind[kind])]


def send_alert(names: alerts.StreamAlerts, streams: Mapping[str, str]) -> list[str]:
    """Sends a message that names the new streams; returns their ids, or none if the topic refuses it."""
    with log_refusals("the message that names the streams was not sent"):
        return names.report(streams)
    return []


def report_partial(reached: int) -> None:
    """Sends one message that a run does not reach every stream, with the number that it reached."""
    if memory().is_partial_reported:
        return
    with log_refusals("the message that the watch is late was not sent"):
        publish(*alerts.partial_run_message(reached))
        memory().is_partial_reported = True


def count_dead_letters() -> int | None:
    """Returns about how many messages are in the dead-letter queue; None if it does not answer.

    The request keeps the queue's metrics from being late: "CloudWatch considers a queue to be active for up to six
    hours if it contains any messages, or if any action accesses it", and the metrics of an inactive queue are up to 15
    minutes late (SQS developer guide, "Monitoring Amazon SQS queues using CloudWatch").
    """
    name = "ApproximateNumberOfMessages"
    with log_refusals("the dead-letter queue does not answer"):
        answer = client("sqs").get_queue_attributes(QueueUrl=settings.dead_letter_queue_url, AttributeNames=[name])
        return int(answer["Attributes"][name])
    return None


def start_repairs(now_ms: int) -> list[str]:
    """Starts the repairing function for each stream whose repair is due; returns these streams."""

    def start_one(stream_id: str) -> bool:
        return start_repair(lambda: client("lambda"), settings.repair_function, stream_id)

    with log_refusals("the due repairs could not be read"):
        return start_due(RepairWork(dynamodb, settings.control_table), now_ms, start_one)
    return []


def recover_orphans(now_ms: int, late_at_s: float, groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Starts an execution for each suspect of this turn that is orphaned; returns the orphans.

    A stopped suspect is released instead. `groups` has the streams of each group that are away: the log names them
    beside an orphaned group.
    """
    states = StepFunctions(lambda: client("stepfunctions"), settings.state_machine_arn, memory().pace.take)
    orphans = Orphans(states, memory().leases.read, states.newest_successor, may_start=lambda _: True)
    table = Table(dynamodb, settings.control_table)
    orphaned = []
    for stream_id, lease in memory().suspects.take():
        if time.monotonic() > late_at_s:
            logger.error("Step Functions is slow: the other streams are checked in a minute")
            break
        orphan = None
        with log_refusals("the stream could not be checked, or an orphan not started", stream_id=stream_id):
            if not lease.stop:
                orphan = orphans.check(stream_id, lease, now_ms)
            elif release_stopped(table, stream_id, lease, now_ms, states.newest_successor):
                logger.info("let go of a stopped stream", extra={"stream_id": stream_id, "execution": lease.execution})
        if orphan is not None:
            orphaned.append(stream_id)
            fields = {"stream_id": stream_id, "execution": orphan.execution, "started": orphan.started}
            logger.error(alerts.with_streams(orphan.sentence, groups.get(stream_id, ())), extra=fields)
    if orphaned:
        # A run without an orphan does not report this: a metric is billed by the hours in which it has data.
        metrics.add_metric("Orphaned", MetricUnit.Count, len(orphaned))
        metrics.flush_metrics()
    return orphaned

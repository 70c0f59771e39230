"""Sends stored events on, called by Lambda with the records of the events table's stream.

It answers which record to go on from, as an event source mapping with ReportBatchItemFailures wants it. The template
has this function only where a profile delivers (packaging/delivery.cjs). Invariant: a log line, a document of metrics
and a dead-letter message hold a stream's id, a sink's label, a key and a reason, never a body, an address or a secret.
"""

import functools
import json
import os
import time
import tomllib
from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools import Logger

from handlers.aws.clients import boto3_client, dynamodb
from handlers.aws.error_translation import translate_errors
from handlers.aws.secret_values import SecretValues
from handlers.deliver import delivery_records
from handlers.deliver.batch import Delivered, Letter, Ports, deliver
from handlers.deliver.contract import Tools, sending
from handlers.deliver.delivery_metrics import documents
from handlers.deliver.delivery_records import Count, Place
from handlers.deliver.sinks.lambda_function import INVOKE_S
from handlers.errors import StoreUnavailable
from handlers.profile.addresses import check_stream_id
from handlers.profile.checked_fields import Fields
from handlers.profile.deliver_field import Target, targets
from handlers.profile.secret_references import Reference
from handlers.settings import DeliverySettings, TimedContext, plain_aws

# One try a request: Lambda tries again, after a back-off.
TRIES = 2
# So long before Lambda would end it all was sent that will be: then come dead-letter messages and counts.
MARGIN_MS = 10_000


logger = Logger()
settings = DeliverySettings.load(os.environ)
control = dynamodb(plain_aws(os.environ), tries=TRIES)
secrets = SecretValues(boto3_client, settings.secrets_prefix)
delivered = Delivered()


def handler(event: Mapping[str, Any], lambda_context: TimedContext) -> dict[str, Any]:
    """{"batchItemFailures": [...]}: the sequence number of the first record that is not done, or none."""
    logger.append_keys(request_id=lambda_context.aws_request_id)
    ports = Ports(
        targets=lambda stream_id: targets_of(check_stream_id(stream_id)),
        sending=lambda target: sending(target, TOOLS),
        dead_letter=dead_letter,
        now_ms=now_ms,
        left_ms=lambda: lambda_context.get_remaining_time_in_millis() - MARGIN_MS,
    )
    result = deliver(event["Records"], ports, delivered)
    report(result.counts)
    return {"batchItemFailures": [{"itemIdentifier": result.failed_at}] if result.failed_at else []}


def now_ms() -> int:
    """The time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


@functools.cache
def targets_of(profile: str) -> tuple[Target, ...]:
    """Where the events of a profile's streams go; raises ValueError where it is wrong."""
    try:
        text = (settings.streams_dir / f"{profile}.toml").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()  # no such profile ships any more
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        # The parser's own message quotes the file, which may hold a secret.
        raise ValueError(f"the profile {profile!r} is not valid TOML") from None
    fields = Fields(profile, table, [])
    several = targets(fields)
    if fields.problems:
        raise ValueError(fields.problems[0])
    return several


def secret(reference: Reference) -> str:
    """The secret's value, a minute old at most."""
    return secrets.read([reference])[reference]


def client(service: str) -> Any:
    """The client of a service. A function is waited for, and not called again at once where it has not answered."""
    return boto3_client("lambda", 1, INVOKE_S) if service == "lambda" else boto3_client(service, TRIES)


TOOLS = Tools(client, secret, now_ms)


def dead_letter(letter: Letter) -> bool:
    """Whether the dead-letter queue took the message; the event itself is in the table."""
    said = {"stream": letter.stream_id, "sink": letter.label, "key": letter.key, "position": letter.position}
    try:
        with translate_errors("SendMessage"):
            body = json.dumps({**said, "reason": letter.reason})
            boto3_client("sqs", TRIES).send_message(QueueUrl=settings.dead_letter_queue_url, MessageBody=body)
    except StoreUnavailable as problem:
        logger.error(str(problem), extra={"stream_id": letter.stream_id, "sink": letter.label})
        return False
    logger.error("not delivered", extra={**said, "reason": letter.reason})
    return True


def report(counts: Mapping[Place, Count]) -> None:
    """Prints a document for each stream and sink, and adds to their counts; that these are late stops no event."""
    for place, count in counts.items():
        if count.reason:
            said = {"stream_id": place.stream_id, "sink": place.label, "reason": count.reason}
            logger.warning("events wait", extra={**said, "lag_ms": count.lag_ms})
    by, namespace = settings.metrics_by, settings.metrics_namespace
    for document in documents(counts, service=logger.service, namespace=namespace, by=by, now_ms=now_ms()):
        # CloudWatch reads the metrics out of the log, whatever level the logger has.
        print(json.dumps(document, separators=(",", ":")), flush=True)
    try:
        delivery_records.add(control, settings.control_table, counts, now_ms())
    except StoreUnavailable as problem:
        logger.error(str(problem))

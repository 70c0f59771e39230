"""Repairs the gaps of streams: fetches the events that each stream missed from the address that its profile names.

A connection that ends a gap calls the function, the watch calls it for unfinished repairs, and a person calls it
through the API. Lambda's event names a stream; the function repairs the due gaps of this stream and of the others of
its profile (`handlers/repair/function.py`). Invariants: a log line and a message contain streams, instants, counts and
our own words, never an address or its answer; the function ends before Lambda would end it, and the next call goes on.
"""

import json
import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import uuid4

from aws_lambda_powertools import Logger

from handlers.api.answers import to_iso
from handlers.api.figures import repair_json
from handlers.aws.eks_tokens import sign_cluster_token
from handlers.aws.error_translation import translate_errors
from handlers.aws.lambda_environment import TimedContext, boto3_client, dynamodb, now_ms, plain_aws
from handlers.aws.secret_values import SecretValues
from handlers.connection.gap_record import Gap, Repair
from handlers.errors import InvalidRequest
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.repair.function import dry_run, repair_streams
from handlers.repair.gap_ports import Deps, OwnTokens
from handlers.repair.work import RepairWork
from handlers.run.deployed_profiles import read_profile
from handlers.run.group_ports import perform_needs
from handlers.run.profile_source import Profiles
from handlers.run.refresh_tokens import RefreshTokens
from handlers.settings import RepairSettings
from handlers.store.connection_store import Store
from handlers.store.event_reader import EventReader
from handlers.store.overflow import Objects
from handlers.store.stream_records import StreamRecords

TRIES = 4
# The function requests no more pages this long before Lambda would end it: a page may take half a minute.
MARGIN_MS = 45_000

logger = Logger()
settings = RepairSettings.load(os.environ)
plain = plain_aws(os.environ)
client = dynamodb(plain, tries=TRIES)
sqs, s3 = partial(boto3_client, "sqs", TRIES), partial(boto3_client, "s3", TRIES)
store = Store(
    client,
    sqs,
    events_table=settings.events_table,
    control_table=settings.control_table,
    dead_letter_queue_url=settings.dead_letter_queue_url,
    events_bucket=settings.events_bucket,
    s3=s3,
)
reader = EventReader(client, settings.events_table, Objects(s3, settings.events_bucket).find)
records = StreamRecords(client, settings.control_table, settings.events_table)
work = RepairWork(client, settings.control_table)
secrets = SecretValues(boto3_client, settings.secrets_prefix)
profiles = Profiles(settings, s3, s3, logger.warning, settings.keep_days)


def handler(event: Mapping[str, Any], lambda_context: TimedContext) -> dict[str, Any]:
    """Returns {"status", "gaps"} of the repair. With `dry_run` it fetches gaps in [from_ms, to_ms) and stores nothing.

    Raises StoreUnavailable; then Lambda and the watch call the function again.
    """
    stream_id = str(event["stream"])
    logger.append_keys(request_id=lambda_context.aws_request_id, stream_id=stream_id)
    deps = Deps(
        work,
        records,
        store,
        reader,
        profile_of,
        secrets_of,
        tokens.fetch,
        alert,
        now_ms,
        lambda: lambda_context.get_remaining_time_in_millis() - MARGIN_MS,
        str(uuid4()),
    )
    if event.get("dry_run"):
        steps = dry_run(deps, stream_id, int(event.get("from_ms", 0)), int(event.get("to_ms", 1 << 62)))
    else:
        steps = repair_streams(deps, stream_id)
    try:
        outcome = perform_needs(steps, lambda request: request(), lambda for_s: time.sleep(max(0, for_s)))
    finally:
        for stream, gap, repair in deps.done:
            fields = {"stream_id": stream, "from_at": to_iso(gap.from_ms), "to_at": to_iso(gap.to_ms)}
            logger.info(f"gap {repair.state}", extra={**fields, **repair_json(repair)})
    return {"status": outcome.status, "gaps": [_answer(gap, repair) for _, gap, repair in deps.done]}


def profile_of(stream_id: str) -> Profile | None:
    """Returns the profile of the stream; None if there is none, or if it is invalid."""
    try:
        return read_profile(stream_id, profiles)
    except InvalidRequest as error:
        logger.warning(str(error))
        return None


def secrets_of(profile: Profile) -> Secrets:
    """Returns the secrets of the address and of its headers, and the stream's token."""
    repair = profile.repair
    assert repair is not None
    read = secrets.read([*repair.secrets, *(profile.secrets if repair.headers is None else [])])
    return tokens.add_token(profile, read)


def alert(stream_id: str, gap: Gap, repair: Repair) -> None:
    """Notifies a person that a gap stays open, by a message in the dead-letter queue, which has an alarm."""
    fields = {"stream": stream_id, "from_at": to_iso(gap.from_ms), "to_at": to_iso(gap.to_ms), "repair": repair.state}
    with translate_errors("SendMessage"):
        body = json.dumps({**fields, "reason": f"a gap could not be repaired: {repair.reason}"})
        sqs().send_message(QueueUrl=settings.dead_letter_queue_url, MessageBody=body)


tokens = OwnTokens(now_ms, RefreshTokens(client, settings.control_table), partial(sign_cluster_token, plain))


def _answer(gap: Gap, repair: Repair) -> dict[str, Any]:
    span = {"from_at": to_iso(gap.from_ms), "to_at": to_iso(gap.to_ms)}
    return {**span, "state": repair.state, "repair": repair_json(repair)}

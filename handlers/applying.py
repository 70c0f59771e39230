"""Starts and stops streams as a document requests; the machine of `statemachines/fleet.asl.yml` calls it.

`handlers/fleet/` decides which streams, and when. The function starts a stream as a POST does, by an execution of the
machine that answers a POST. It does not use the API, and so does not use up the API's throttle. Invariants: each step
may be repeated; a request that AWS throttles is repeated, later and more slowly.
"""

import os
import random
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger

from handlers.api import status
from handlers.api.answers import to_iso
from handlers.api.last_error import Retries
from handlers.aws.lambda_environment import TimedContext, boto3_client, dynamodb, now_ms, plain_aws
from handlers.connection.lease import LEASE_TTL_READS
from handlers.fleet.fleet_records import FleetRecords
from handlers.fleet.fleet_steps import Ports, Round, step
from handlers.fleet.request_pacing import AT_ONCE, Outcome, StreamRequest, most_per_s, start_stream
from handlers.settings import FleetSettings
from handlers.store.stream_records import StreamRecords

TRIES, PAGE = 4, 1000
# API Gateway waits as long for the same machine.
START_S = 29
# A step ends this long before Lambda would end it, because a request may be under way.
MARGIN_MS = 45_000

logger = Logger()
settings = FleetSettings.load(os.environ)
# The same as the control API's.
DEAD_AFTER_MS = LEASE_TTL_READS * max(settings.lease_every_ms, settings.progress_every_ms)
RETRIES = Retries(settings.retried_within_ms, settings.throttled_within_ms)


@cache
def store() -> StreamRecords:
    """Returns the store, which the first step makes."""
    return StreamRecords(dynamodb(plain_aws(os.environ), tries=TRIES), settings.control_table)


def handler(event: Mapping[str, Any], lambda_context: TimedContext) -> dict[str, Any]:
    """Carries out a step; returns {"is_done", "wait_s"}."""
    logger.append_keys(request_id=lambda_context.aws_request_id, fleet=event["execution"])
    is_dry = bool(event.get("is_dry"))
    records = FleetRecords(store().dynamodb, settings.control_table, is_dry=is_dry)
    is_late = lambda: lambda_context.get_remaining_time_in_millis() < MARGIN_MS  # noqa: E731
    round_of = lambda fleet, number: Round(records.document(fleet), known_streams, read_states, number)  # noqa: E731
    ports = Ports(
        records,
        round_of,
        request_stream,
        most_per_s(settings.streams_per_function),
        now_ms,
        lambda: time.monotonic_ns() // 1_000_000,
        is_late,
        random.random,
    )
    if not is_dry:
        start_client()  # made here, because otherwise each thread would make a client
    answer = step(ports, event["execution"], is_dry=is_dry)
    logger.info("applied", extra={"answer": answer})
    return answer


def known_streams(after: str) -> Any:
    """Yields the ids of the streams that were ever started, in order, beginning after this one."""
    while ids := store().streams(after, PAGE):
        yield from ids
        after = ids[-1]


def read_states(stream_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Returns the status and the reason of each stream that was ever started, as its `GET` shows them."""
    read, at_ms = store().read_for_status(stream_ids), now_ms()
    records = ((one, read(one)) for one in stream_ids)
    shown = {
        one: status.answer(one, found, at_ms, DEAD_AFTER_MS, RETRIES, is_brief=True)
        for one, found in records
        if found is not None
    }
    return {one: (answer["status"], answer["reason"] or "") for one, answer in shown.items()}


def start_client() -> Any:
    return boto3_client("stepfunctions", 1, START_S, AT_ONCE)


def request_stream(wanted: StreamRequest) -> tuple[Outcome, str]:
    """Starts or stops the stream; returns the outcome, and why it failed if it did."""
    if not wanted.is_connected:
        store().stop(wanted.stream_id, to_iso(now_ms()) or "", may_start=False)
        return Outcome.DONE, ""
    return start_stream(start_client(), settings.start_machine_arn, wanted.stream_id)

"""Watches all streams: reports once a minute for how long each stream that should be connected is not.

handlers/connection/lease.py says which stream should be connected, and since when one is not. The function needs
neither Lambda's nor Step Functions' API, so it sees their outages too. Invariants: it writes nothing; it reports its
numbers in every run, also where there is no stream, because the alarm treats missing data as a breach.
"""

import os
import time
from collections.abc import Iterator
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from botocore.config import Config

from handlers.connection.lease import Lease, unconnected_ms
from handlers.settings import load_watch
from handlers.store import control_items
from handlers.store.control_table import LEASES

CLIENT = Config(
    connect_timeout=1,
    read_timeout=2,
    retries={"mode": "standard", "total_max_attempts": 3},
    max_pool_connections=1,
    tcp_keepalive=True,
    parameter_validation=False,
)

logger = Logger()
metrics = Metrics()
settings = load_watch(os.environ)
dynamodb = boto3.client("dynamodb", config=CLIENT)


def handler(_event: object, _lambda_context: object) -> dict[str, Any]:
    """How many streams should be connected, and for how long each that is not has not been, in seconds.

    A log line names each that has not been for UNCONNECTED_AFTER_S. What DynamoDB refuses is raised, and the metrics of
    this run are missing.
    """
    now_ms = time.time_ns() // 1_000_000
    wanted = 0
    missing_s: dict[str, int] = {}
    for stream_id, lease in leases():
        wanted += bool(lease.execution) and not lease.stop
        length_ms = unconnected_ms(lease, now_ms)
        if length_ms:
            missing_s[stream_id] = length_ms // 1000
        if length_ms >= settings.unconnected_after_ms:
            fields = {"stream_id": stream_id, "execution": lease.execution, "unconnected_s": length_ms // 1000}
            logger.error("a stream that should be connected is not", extra=fields)
    longest_s = max(missing_s.values(), default=0)
    metrics.add_metric("Wanted", MetricUnit.Count, wanted)
    metrics.add_metric("Unconnected", MetricUnit.Count, len(missing_s))
    metrics.add_metric("LongestUnconnected", MetricUnit.Seconds, longest_s)
    metrics.flush_metrics()
    return {"wanted": wanted, "unconnected_s": missing_s}


def leases() -> Iterator[tuple[str, Lease]]:
    """Every stream that was ever started, with its lease as it stands now."""
    pages = dynamodb.get_paginator("scan").paginate(TableName=settings.control_table, IndexName=LEASES)
    for page in pages:
        for entry in page["Items"]:
            key = {name: entry[name] for name in ("PK", "SK")}
            # The index may be behind, and has no heartbeat in it; the lease itself is read consistently.
            answer = dynamodb.get_item(TableName=settings.control_table, Key=key, ConsistentRead=True)
            yield key["PK"]["S"], control_items.lease(answer.get("Item", {}))

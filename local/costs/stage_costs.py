"""Prices the fixed parts of a stage, and what each stream adds to them.

Invariant: nothing here depends on how a stream is stored.
"""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from handlers.connection.steps import Report
from handlers.group import GROUP
from handlers.group.group_lease import GroupHeartbeat
from handlers.run.connection_metrics import metrics_to_keep, numbers
from handlers.store.group_store import heartbeat_name, heartbeat_value
from handlers.store.leases import Leases
from handlers.store.typed_values import DAY_S
from handlers.watching.lease_rounds import Rounds, Turn
from local.costs.prices import GB, HOURS, MONTH_S, Prices
from local.costs.request_meter import Meter, MeteredDynamoDb, control_table
from local.costs.units import Item

MEASURED = Path(__file__).with_name("measured.toml")
# The alarms of packaging/resources/alarms.cjs, each of one metric, which is billed.
ALARMS = 23
# The watch runs once a minute (serverless.yml).
WATCHES = MONTH_S / 60
# The metrics that the watch prints in each run (handlers/watch.py); a test compares them.
WATCH_METRICS = ("LongestUnconnected",)
# "one vCPU-second of credits per second" at this much memory; with less, Lambda gives a smaller share of a core.
MB_PER_CORE = 1769
HOUR_S = 3600
# What a function in a VPC reaches through interface endpoints, besides some sinks; DynamoDB and S3 have
# gateways, which are free (docs/deploy.md).
ENDPOINTS = ("sqs", "secretsmanager", "ssm", "lambda")
KEY_REFRESH_S = 300
EXPRESS_MB = 64  # the least memory that is billed
# The events and the control table. For each function that keeps streams a tenth more run in handovers; besides, the
# watch and the function that answers the API use the tables.
TABLES, IN_HANDOVERS, BESIDE_CONNECTIONS = 2, 1.1, 2
_STREAMS = 50
TABLE = "control"
_NOW_MS = 1_767_225_600_000


def fixed_usd(settings: Mapping[str, Any], prices: Prices) -> dict[str, float]:
    """The monthly cost of a stage without streams, by part."""
    metric_usd = prices.usd("cloudwatch", "metric_month")
    return endpoints_usd("vpc", ENDPOINTS, settings, prices) | {
        "alarms": ALARMS * prices.usd("cloudwatch", "alarm_month"),
        "metrics": len(WATCH_METRICS) * metric_usd,
        "dashboard": prices.usd("cloudwatch", "dashboard_month"),
        "watch": _watch_usd(settings, prices),
        "encryption": encryption_usd(BESIDE_CONNECTIONS, TABLES, prices),
    }


def endpoints_usd(part: str, services: Sequence[str], settings: Mapping[str, Any], prices: Prices) -> dict[str, float]:
    """The part that interface endpoints to these services cost a month; empty without any, or without a VPC."""
    # Each subnet should be in a different zone.
    zones = len([one for one in settings["vpc_subnet_ids"].split(",") if one])
    usd = len(services) * zones * HOURS * prices.usd("vpc", "endpoint_hour")
    return {part: usd} if usd else {}


def stream_metrics_usd(
    reports: Sequence[Report], length_s: float, settings: Mapping[str, Any], prices: Prices
) -> float:
    """The cost of the metrics of connections with these ends; each is billed by the hours in which it has data."""
    seen = Counter(name for report in reports for name in metrics_to_keep(numbers(report, 0), settings["metrics_by"]))
    hours = length_s / HOUR_S
    return sum(min(1.0, times / hours) for times in seen.values()) * prices.usd("cloudwatch", "metric_month")


def watch_stream_usd(prices: Prices, per_function: int = 1) -> float:
    """The cost of the watch's reads of one stream in a month, if so many streams share a function."""
    streams = max(_STREAMS, per_function)
    units = (watch_read_units(streams, per_function) - watch_read_units(0)) / streams
    return units * WATCHES * prices.usd("dynamodb", "million_read_units")


def storage_usd(bytes_a_month: float, backed_up: float, keep_days: int, prices: Prices) -> float:
    """The cost of storage, and of a backup of so many of the bytes, once as much expires as comes.

    If it is kept forever, it is the mean of the first month.
    """
    months = keep_days * DAY_S / MONTH_S if keep_days else 0.5
    usd = bytes_a_month * prices.usd("dynamodb", "gb_month") + backed_up * prices.usd("dynamodb", "backup_gb_month")
    return months * usd / GB


def encryption_usd(connections: float, tables: int, prices: Prices) -> float:
    """The highest monthly cost of KMS for tables with a key of the account that so many functions use at a time.

    "The key is refreshed once every five minutes per client connection with active traffic" (Amazon DynamoDB Developer
    Guide, "Encryption at rest: how it works"); a function has one connection, and each table has a key of its own.
    """
    return connections * tables * MONTH_S / KEY_REFRESH_S * prices.usd("kms", "million_requests")


def post_usd(prices: Prices) -> float:
    """The cost of a POST without what it starts: the API's request, an Express execution, and a read of the lease."""
    express_gb_s = measurements()["post_billed_ms"] / 1000 * EXPRESS_MB / 1024
    usd = prices.usd("api_gateway", "million_requests") + prices.usd("step_functions", "million_express_requests")
    usd += express_gb_s * prices.usd("step_functions", "express_gb_second")
    return usd + prices.usd("dynamodb", "million_read_units")


def most_events_per_s(memory_mb: int, event_bytes: int) -> float:
    """How many such events per second one function stores with its share of a core."""
    figures = measurements()
    cpu_us = figures["store_cpu_us_per_event"] + figures["store_cpu_us_per_kb"] * event_bytes / 1024
    return memory_mb / MB_PER_CORE * 1_000_000 / cpu_us


@cache
def measurements() -> dict[str, float]:
    """The measurements of the real functions."""
    table: dict[str, float] = tomllib.loads(MEASURED.read_text(encoding="utf-8"))
    return table


def _watch_usd(settings: Mapping[str, Any], prices: Prices) -> float:
    memory_mb = float(settings["watch_memory_mb"])
    busy_ms = measurements()["watch_cpu_ms"] * max(1.0, MB_PER_CORE / memory_mb) + measurements()["watch_wait_ms"]
    read_usd = watch_read_units(0) * prices.usd("dynamodb", "million_read_units")
    queue_usd = prices.usd("sqs", "million_requests")
    return WATCHES * (
        prices.lambda_usd(1, busy_ms, memory_mb)
        + prices.log_usd(measurements()["log_bytes_per_watch"])
        + queue_usd
        + read_usd
    )


# --- what the watch reads ---------------------------------------------------------------------------------------------


def watch_read_units(streams: int, per_function: int = 1) -> float:
    """The units of a run with so many connected streams and functions."""
    meter = Meter({TABLE: control_table()})
    client = MeteredDynamoDb(meter)
    for number in range(streams):
        stream_id, group_id = f"stream-{number:06d}", f"{GROUP}{number // per_function}"
        member = {}
        if per_function > 1:
            heartbeat = GroupHeartbeat(1, _NOW_MS, _NOW_MS + 60_000, 2 * per_function)
            group = {**_lease(group_id), heartbeat_name("0" * 36): heartbeat_value(heartbeat)}
            client.put_item(TableName=TABLE, Item=group)
            member = {"execution": group["execution"], "group": {"S": group_id}}
        client.put_item(TableName=TABLE, Item={**_lease(stream_id), **member})
    seen = Rounds(Leases(client, TABLE), 1, Turn(1)).check(_NOW_MS, lambda: False)
    assert (seen.wanted, seen.missing, seen.damage) == (streams, 0, {})
    return meter.counts.read_units(TABLE)


def _lease(stream_id: str) -> Item:
    arn = f"arn:aws:states:us-east-1:000000000000:execution:streamkeeper-prod-connections:{stream_id:0>36}"
    texts = {"PK": stream_id, "SK": "lease", "execution": arn, "holder": "A/" + "0" * 36}
    texts["started_at"] = "2026-01-01T00:00:00.000Z"
    numbers = {"generation": 1, "fence": 1, "connected": 1, "expires_at_ms": _NOW_MS + 60_000}
    return {name: {"S": text} for name, text in texts.items()} | {
        name: {"N": str(number)} for name, number in numbers.items()
    }

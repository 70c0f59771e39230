"""Prices what a stage's delivery costs: its function's calls, their counts and log, and what the sinks ask.

How many requests a call makes is counted: `handlers/deliver` gets the records of a call, and sends them by what each
sink promises. Lambda's own reading is free ("You are not charged for GetRecords API calls invoked by AWS Lambda as
part of DynamoDB triggers"). What a consumer asks for is the consumer's. Invariant: a price that is not in the list is
named, and never guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handlers.deliver import contract, delivery_metrics
from handlers.deliver.batch import Delivered, Ports, deliver
from handlers.deliver.contract import Message, Promises, Refusal
from handlers.framing.events import StreamEvent
from handlers.profile.deliver_field import Target
from handlers.run.connection_metrics import By
from handlers.store.event_items import event_item
from local.costs import stage_costs
from local.costs.month import MONTH_S
from local.costs.prices import GB, HOURS, MILLION, Prices
from local.simulation.table_stream import Record, plain

# "Lambda polls shards in your DynamoDB stream for records at a base rate of 4 times per second."
POLLS_PER_S = 4
# As packaging/resources/delivery.yml and packaging/delivery.cjs have it: where all sinks are buckets Lambda waits.
BATCH, PATIENT_S = 100, 60
ALARMS = 2
# SQS and EventBridge bill a message by 64 KB begun, Firehose a record by 5 KB begun.
CHUNK_BYTES, FIREHOSE_BYTES = 64 * 1024, 5 * 1024
_AT_MS = 1_767_225_600_000


@dataclass(frozen=True, slots=True)
class Flow:
    """What is delivered of a stage: so many streams, each with so many writes a second of so many events."""

    streams: int
    writes_per_s: float
    events_per_write: float
    event_bytes: int


@dataclass(frozen=True, slots=True)
class Calls:
    """How often the function is called for the stage, with how many writes, of how many streams."""

    per_s: float
    writes: float
    streams: float


def calls(flow: Flow, *, is_patient: bool) -> Calls:
    """How often the function is called: for each shard that has something when it is polled."""
    shards = min(flow.streams, int(stage_costs.measured()["delivery_shards"]))
    writes_per_s = flow.streams * flow.writes_per_s / shards
    if not writes_per_s:
        return Calls(0, 0, 0)
    seldom = (
        1 / (PATIENT_S + 1 / writes_per_s) if is_patient else POLLS_PER_S * -math.expm1(-writes_per_s / POLLS_PER_S)
    )
    per_s = max(seldom, writes_per_s / BATCH)
    writes = writes_per_s / per_s
    return Calls(per_s * shards, writes, min(writes, flow.streams / shards))


def usd(kinds: Sequence[str], flow: Flow, settings: Mapping[str, Any], prices: Prices) -> dict[str, float]:
    """A month of one stream, by part: the function, its counts and metrics of its own, and the sinks."""
    own = len(kinds) * len(delivery_metrics.NAMES) if settings["metrics_by"] == "stream" else 0
    metrics_usd = own * prices.usd("cloudwatch", "metric_month")
    called = calls(flow, is_patient=set(kinds) == {"s3"})
    if not called.per_s:
        return {"delivery": metrics_usd, "sinks": 0.0}
    # A call has a whole number of events, one or the other of two; what lies between is their mean.
    events = called.writes * flow.events_per_write
    fewer = math.floor(events)
    usd_of = {count: _call_usd(kinds, flow, called, count, settings, prices) for count in (fewer, fewer + 1)}
    function_usd, sinks_usd = (
        (1 - events + fewer) * few + (events - fewer) * more for few, more in zip(*usd_of.values(), strict=True)
    )
    times = called.per_s * MONTH_S / flow.streams
    # One data stream for all streams of the stage stands whatever is sent.
    is_hourly = "kinesis" in kinds and prices.has("kinesis", "stream_hour")
    hours_usd = HOURS * prices.usd("kinesis", "stream_hour") / flow.streams if is_hourly else 0.0
    return {"delivery": times * function_usd + metrics_usd, "sinks": times * sinks_usd + hours_usd}


def _call_usd(
    kinds: Sequence[str], flow: Flow, called: Calls, events: int, settings: Mapping[str, Any], prices: Prices
) -> tuple[float, float]:
    """A call with so many events: its function with the counts, and the sinks."""
    streams = max(1, min(events, round(called.streams)))
    names = [f"replay:{number}" for number in range(streams)]
    batches = {kind: _batches(kind, records(names, events, flow.event_bytes)) for kind in kinds}
    requests = sum(map(len, batches.values()))
    figures = stage_costs.measured()
    cpu_ms = figures["delivery_cpu_ms_per_call"] + figures["delivery_cpu_ms_per_event"] * events * len(kinds)
    cpu_ms += figures["delivery_cpu_ms_per_request"] * requests
    memory_mb = float(settings["control_memory_mb"])
    counts = streams * len(kinds)
    busy_ms = cpu_ms * max(1.0, stage_costs.MB_PER_CORE / memory_mb)
    busy_ms += figures["delivery_wait_ms_per_request"] * (requests + counts)
    function_usd = busy_ms / 1000 * memory_mb / 1024 * prices.usd("lambda", "gb_second_arm64")
    function_usd += prices.usd("lambda", "million_requests") + counts * prices.usd("dynamodb", "million_write_units")
    logged = figures["delivery_log_bytes_per_call"] + figures["delivery_log_bytes_per_document"] * counts
    function_usd += logged / GB * prices.usd("cloudwatch", "log_gb")
    return function_usd, sum(_sink_usd(kind, batches[kind], prices) for kind in kinds)


def fixed_usd(kinds: Sequence[str], settings: Mapping[str, Any], prices: Prices) -> dict[str, float]:
    """What a stage pays besides where a profile delivers: its alarms, and the metrics of what goes well."""
    by: By = settings["metrics_by"]
    usual = delivery_metrics.kept(dict(zip(delivery_metrics.NAMES, (1, 0, 0, 1), strict=True)), by)
    # By stream they are each stream's.
    metrics = len(usual) * {"stage": 1, "profile": len(kinds), "stream": 0}[by]
    return {
        "delivery_alarms": ALARMS * prices.usd("cloudwatch", "alarm_month"),
        "delivery_metrics": metrics * prices.usd("cloudwatch", "metric_month"),
    }


NEEDED: Mapping[str, tuple[str, ...]] = {
    "sqs": ("sqs.million_fifo_requests",),
    "eventbridge": ("eventbridge.million_events",),
    "kinesis": ("kinesis.stream_hour", "kinesis.gb_in"),
    "firehose": ("firehose.gb_in",),
    "s3": ("s3.million_writes",),
    "lambda": ("lambda.million_requests",),
    "webhook": ("transfer.gb_out",),
}


def missing(kinds: Iterable[str], prices: Prices) -> list[str]:
    """The prices that these sinks need and the list does not have."""
    return [name for kind in kinds for name in NEEDED[kind] if not prices.has(*name.split("."))]


def _sink_usd(kind: str, batches: Sequence[Sequence[int]], prices: Prices) -> float:
    """What the requests of a call cost; each is the sizes of its messages."""

    def price(name: str) -> float:
        return prices.usd(*name.split(".")) if prices.has(*name.split(".")) else 0.0

    size = sum(map(sum, batches))
    match kind:
        case "sqs":
            return price("sqs.million_fifo_requests") * sum(-(-sum(one) // CHUNK_BYTES) for one in batches)
        case "eventbridge":
            return price("eventbridge.million_events") * sum(-(-each // CHUNK_BYTES) for one in batches for each in one)
        case "kinesis":
            return price("kinesis.gb_in") * size / GB
        case "firehose":
            billed = sum(-(-each // FIREHOSE_BYTES) * FIREHOSE_BYTES for one in batches for each in one)
            return price("firehose.gb_in") * billed / GB
        case "s3" | "lambda":
            return price("s3.million_writes" if kind == "s3" else "lambda.million_requests") * len(batches)
        case _:
            return price("transfer.gb_out") * size / GB


def _batches(kind: str, made: Sequence[Record]) -> list[list[int]]:
    """The requests that become of a call, each the sizes of its messages."""
    target, sent = Target(kind, "counted"), []
    promises = contract.sink(kind).PROMISES

    def send(batch: Sequence[Message]) -> Mapping[int, Refusal]:
        sent.append([message.size_bytes for message in batch])
        return {}

    def sending(_target: Target) -> tuple[Promises, Any]:
        return promises, send

    ports = Ports(lambda _stream: [target], sending, lambda _letter: False, lambda: _AT_MS, lambda: 100_000)
    result = deliver(made, ports, Delivered())
    assert not result.failed_at
    return sent


def records(streams: Sequence[str], count: int, event_bytes: int) -> list[Record]:
    """The records of so many events of these streams, as items: a sink gets the same of a segment."""
    made = []
    for number in range(count):
        event = StreamEvent(f"{number:08d}", "x" * event_bytes, None, None, None, _AT_MS + number)
        image = plain(event_item(streams[number % len(streams)], 1, number, event))
        keys = {name: image[name] for name in ("PK", "SK")}
        written = {"Keys": keys, "NewImage": image, "SequenceNumber": f"{number:021d}"}
        made.append({"eventName": "INSERT", "dynamodb": {**written, "ApproximateCreationDateTime": _AT_MS / 1000}})
    return made


def priced_by(options: Iterable[str], prices: Prices) -> Prices:
    """The list with prices that the user names, such as `kinesis.gb_in=0.08`; raises ValueError with a sentence."""
    known = {name for names in NEEDED.values() for name in names}
    for option in options:
        name, _, text = option.partition("=")
        try:
            price = float(text)
        except ValueError:
            price = math.nan
        if name not in known or not 0 <= price <= MILLION:
            raise ValueError(f"{option!r} is no price: write NAME=USD, of {', '.join(sorted(known))}")
        table, _, field = name.partition(".")
        prices = prices.also(table, field, price)
    return prices

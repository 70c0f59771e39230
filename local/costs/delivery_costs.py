"""Prices a stage's delivery: noting what arrives, sending it at once, bells, workers, sweeps, and what sinks charge.

Their requests and units are counted: the delivery runs on metered tables in memory
(local/simulation/virtual_delivery.py). Lambda's own reading is free ("You are not charged for GetRecords API calls
invoked by AWS Lambda as part of DynamoDB triggers"). The costs of a consumer are not included.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from handlers.deliver import contract, delivery_metrics
from handlers.deliver.contract import Message, Promises, Refusal
from handlers.deliver.table_records import decode_image
from handlers.deliver.worker import BATCH
from handlers.framing.events import StreamEvent
from handlers.profile.deliver_field import S3_WAIT_S, Target
from handlers.run.connection_metrics import By, metrics_to_keep
from handlers.store.event_items import event_item
from local.costs import stage_costs
from local.costs.prices import HOURS, MONTH_S, Prices, sink_usd
from local.costs.request_meter import Meter, MeteredDynamoDb, Table, events_table
from local.simulation import virtual_delivery
from local.simulation.table_stream import Record, Write
from local.simulation.tables import key_of
from local.simulation.virtual_delivery import DELIVERY, VirtualDelivery

# "Lambda polls shards in your DynamoDB stream for records at a base rate of 4 times per second."
POLLS_PER_S = 4
# How many bells a call answers, or streams a noting call sends of side by side (handlers/delivery.py).
STREAMS_PER_CALL = 10
ALARMS, SWEEPS = 2, MONTH_S / 60
# The sinks that a function in a VPC reaches through endpoints of their own; those of SQS and Lambda are there already.
ENDPOINTS = ("eventbridge", "kinesis", "firehose")
# A sweep reads the bells: one unit for each partition without one.
SWEEP_READS = 4
# The largest number of events of one wake that is counted; more events cost proportionally more.
MOST_COUNTED = 500
EVENTS = "events"
_AT_MS = 1_767_225_600_000


@dataclass(frozen=True, slots=True)
class DeliveryLoad:
    """What a stage delivers: its streams, each with so many writes a second of so many events."""

    streams: int
    writes_per_s: float
    events_per_write: float
    event_bytes: int


@dataclass(frozen=True, slots=True)
class NotingCalls:
    """How often the function notes arrivals of the stage, with how many writes and streams in each call."""

    per_s: float
    writes: float
    streams: float


class WakeUsage(NamedTuple):
    """The usage of one stream's events at some sinks, from noting on: units, and requests to tables and to sinks.

    `requests` has the requests to each kind of sink, each with the sizes of its messages. The noting call made
    `at_once` of them, which was all that `taken` sinks needed. For the other sinks workers answered `bells`, with
    `table_requests` requests to tables.
    """

    write_units: float
    read_units: float
    requests: Mapping[str, list[list[int]]]
    immediate_requests: int
    finished_sinks: int
    bells: int
    table_requests: float


def noting_calls(flow: DeliveryLoad) -> NotingCalls:
    """How often the function notes: once for each shard that has something when it is polled."""
    shards = min(flow.streams, int(stage_costs.measurements()["delivery_shards"]))
    writes_per_s = flow.streams * flow.writes_per_s / shards
    if not writes_per_s:
        return NotingCalls(0, 0, 0)
    per_s = max(POLLS_PER_S * -math.expm1(-writes_per_s / POLLS_PER_S), writes_per_s / BATCH)
    writes = writes_per_s / per_s
    # With writes at random, the number of streams that have at least one of them.
    of_shard = flow.streams / shards
    streams = of_shard * -math.expm1(-writes / of_shard) if of_shard > 1 else 1.0
    return NotingCalls(per_s * shards, writes, max(1.0, min(streams, writes)))


def stream_month_usd(
    kinds: Sequence[str], flow: DeliveryLoad, settings: Mapping[str, Any], prices: Prices
) -> dict[str, float]:
    """A month of one stream, by part: the function with its table, the stream's metrics, and the sinks."""
    own = len(kinds) * len(delivery_metrics.NAMES) if settings["metrics_by"] == "stream" else 0
    metrics_usd = own * prices.usd("cloudwatch", "metric_month")
    called = noting_calls(flow)
    # The stage's one data stream costs the same whatever is sent.
    hours_usd = HOURS * prices.usd("kinesis", "stream_hour") / flow.streams if "kinesis" in kinds else 0.0
    if not called.per_s:
        return {"delivery": metrics_usd, "sinks": hours_usd}
    notes_per_s = called.per_s * called.streams / flow.streams
    prompt = tuple(kind for kind in kinds if kind != "s3")
    events = flow.writes_per_s * flow.events_per_write / notes_per_s
    cost = _StreamCost(flow, called, settings, prices)
    parts = [_interpolate(cost.note_usd, prompt, events, notes_per_s)]
    if "s3" in kinds:
        parts.append(_bucket_usd(cost, notes_per_s, is_alone=not prompt))
    delivery_usd, sinks_usd = (sum(each) for each in zip(*parts, strict=True))
    return {"delivery": MONTH_S * delivery_usd + metrics_usd, "sinks": MONTH_S * sinks_usd + hours_usd}


def _bucket_usd(cost: "_StreamCost", notes_per_s: float, *, is_alone: bool) -> tuple[float, float]:
    """The price of a second of one stream at a bucket, which gathers objects: a sweep or a later note wakes it."""
    flow = cost.flow
    wakes_per_s = 1 / (S3_WAIT_S + 1 / notes_per_s)
    events = flow.writes_per_s * flow.events_per_write / wakes_per_s
    delivery_usd, sinks_usd = _interpolate(
        lambda kinds, count: cost.work_usd(kinds, count, STREAMS_PER_CALL), ("s3",), events, wakes_per_s
    )
    # A refused ring and, unless another sink notes it, the arrival.
    refused = (notes_per_s - wakes_per_s) * (1 + is_alone)
    return delivery_usd + refused * cost.prices.usd("dynamodb", "million_write_units"), sinks_usd


def _interpolate(
    usd: Callable[[tuple[str, ...], int], tuple[float, float]], kinds: tuple[str, ...], events: float, per_s: float
) -> tuple[float, float]:
    """A second with so many wakes, which have a whole number of events: between two, the costs are interpolated."""
    fewer = max(1, math.floor(events))
    share = min(max(0.0, events - fewer), 1.0)
    few, more = usd(kinds, fewer), usd(kinds, fewer + 1) if share else (0.0, 0.0)
    delivery_usd, sinks_usd = (per_s * ((1 - share) * one + share * two) for one, two in zip(few, more, strict=True))
    return delivery_usd, sinks_usd


@dataclass(frozen=True, slots=True)
class _StreamCost:
    """The cost of a stream's share in a call, at the delivery and at the sinks."""

    flow: DeliveryLoad
    called: NotingCalls
    settings: Mapping[str, Any]
    prices: Prices

    def _wake_usage(self, kinds: tuple[str, ...], events: int) -> WakeUsage:
        figures = stage_costs.measurements()
        request_ms = figures["delivery_wait_ms_per_request"]
        request_ms += figures["delivery_cpu_ms_per_request"] * _cpu_factor(self.settings["delivery_memory_mb"])
        return count_wake(kinds, min(events, MOST_COUNTED), self.flow.event_bytes, math.ceil(request_ms))

    def note_usd(self, kinds: tuple[str, ...], events: int) -> tuple[float, float]:
        """One noting of so many events, which are sent at once, or by the workers that it rings for."""
        streams, figures = max(1.0, self.called.streams), stage_costs.measurements()
        wake = self._wake_usage(kinds, events) if kinds else WakeUsage(0, 0, {}, 0, 0, 0, 0)
        bells = streams * wake.bells
        requests = math.ceil(streams / 25) + math.ceil(bells / 25) + math.ceil(bells / STREAMS_PER_CALL)
        # Each stream's own requests, beside those of others.
        requests += bool(kinds) * (1 + wake.immediate_requests) * math.ceil(streams / STREAMS_PER_CALL)
        cpu_ms = figures["delivery_cpu_ms_per_request"] * wake.immediate_requests
        cpu_ms += figures["delivery_cpu_ms_per_event"] * min(events, MOST_COUNTED) * wake.finished_sinks
        cpu_ms += figures["delivery_cpu_ms_at_once"] * bool(wake.finished_sinks)
        rings = not kinds or wake.bells > 0
        busy_ms = figures["delivery_cpu_ms_per_note"] * rings + streams * cpu_ms
        note_usd = _function_usd(busy_ms, requests, streams * wake.finished_sinks, self.settings, self.prices) / streams
        delivery_usd, sinks_usd = self.work_usd(kinds, events, min(STREAMS_PER_CALL, bells)) if kinds else (0.0, 0.0)
        return delivery_usd + note_usd, sinks_usd

    def work_usd(self, kinds: tuple[str, ...], events: int, bells_per_call: float) -> tuple[float, float]:
        """One wake of the workers for so many events, where `bells_per_call` bells share a call; and all units."""
        scale = max(1.0, events / MOST_COUNTED)
        wake, figures, prices = self._wake_usage(kinds, events), stage_costs.measurements(), self.prices
        delivery_usd = 0.0
        if wake.bells:
            requests = sum(map(len, wake.requests.values())) - wake.immediate_requests
            cpu_ms = (
                figures["delivery_cpu_ms_per_wake"] * wake.bells + figures["delivery_cpu_ms_per_request"] * requests
            )
            cpu_ms += figures["delivery_cpu_ms_per_event"] * min(events, MOST_COUNTED) * wake.bells
            # Threads wait in parallel: a call lasts as long as one place, plus the others' processor time.
            waits = (requests + wake.table_requests) / wake.bells * scale
            share = wake.bells / bells_per_call
            delivery_usd += share * _function_usd(cpu_ms * scale / share, waits, bells_per_call, self.settings, prices)
        delivery_usd += wake.write_units * scale * prices.usd("dynamodb", "million_write_units")
        delivery_usd += wake.read_units * scale * prices.usd("dynamodb", "million_read_units")
        return delivery_usd, scale * sum(sink_usd(kind, wake.requests[kind], prices) for kind in kinds)


def _cpu_factor(memory_mb: float) -> float:
    return max(1.0, stage_costs.MB_PER_CORE / memory_mb)


def _function_usd(
    cpu_ms: float, requests: float, documents: float, settings: Mapping[str, Any], prices: Prices
) -> float:
    """The cost of a call with this processor time, number of awaited answers, and printed documents."""
    figures, memory_mb = stage_costs.measurements(), float(settings["delivery_memory_mb"])
    busy_ms = cpu_ms * _cpu_factor(memory_mb) + figures["delivery_wait_ms_per_request"] * requests
    logged = figures["delivery_log_bytes_per_call"] + figures["delivery_log_bytes_per_document"] * documents
    return prices.lambda_usd(1, busy_ms, memory_mb) + prices.log_usd(logged)


def stage_fixed_usd(kinds: Sequence[str], settings: Mapping[str, Any], prices: Prices) -> dict[str, float]:
    """What a stage also pays if a profile delivers: alarms, sweeps, and the metrics of successes."""
    by: By = settings["metrics_by"]
    usual = metrics_to_keep(dict(zip(delivery_metrics.NAMES, (1, 0, 0), strict=True)), by)
    # Metrics by stream belong to each stream; the lag belongs to the stage.
    metrics = len(usual) * {"stage": 1, "profile": len(kinds), "stream": 0}[by] + 1
    figures = stage_costs.measurements()
    # A function for each shard notes, and one more sweeps and works; they use the stage's tables and their own.
    keys_usd = stage_costs.encryption_usd(figures["delivery_shards"] + 1, stage_costs.TABLES + 1, prices)
    sweep_usd = _function_usd(figures["delivery_cpu_ms_per_note"], SWEEP_READS, 1, settings, prices)
    sweep_usd += SWEEP_READS * prices.usd("dynamodb", "million_read_units")
    behind = [kind for kind in kinds if kind in ENDPOINTS]
    return stage_costs.endpoints_usd("delivery_vpc", behind, settings, prices) | {
        "delivery_alarms": ALARMS * prices.usd("cloudwatch", "alarm_month"),
        "delivery_metrics": metrics * prices.usd("cloudwatch", "metric_month"),
        "delivery_sweeps": SWEEPS * sweep_usd,
        "delivery_keys": keys_usd,
    }


@functools.lru_cache(maxsize=256)
def count_wake(kinds: tuple[str, ...], events: int, event_bytes: int, request_ms: int) -> WakeUsage:
    """The usage of so many events of one stream, from noting until no bell is out; sinks answer after `request_ms`."""
    meter = Meter({EVENTS: events_table(), DELIVERY: Table(("PK", "SK"), {}, has_events=False)})
    sent: dict[str, list[list[int]]] = {kind: [] for kind in kinds}
    clock = SimpleNamespace(now_ms=_AT_MS)

    def sender_of(target: Target) -> tuple[Promises, Any]:
        def send(batch: Sequence[Message]) -> Mapping[int, Refusal]:
            sent[target.kind].append([message.size_bytes for message in batch])
            clock.now_ms += request_ms
            return {}

        return contract.promises_of(target), send

    targets = [Target(kind, "counted") for kind in kinds]
    virtual = VirtualDelivery(
        MeteredDynamoDb(meter),
        EVENTS,
        clock,
        lambda _stream: targets,
        sender_of,
        lambda _letter: False,
        KeyboardInterrupt,
        tables=meter.tables,
        each=virtual_delivery.concurrent_map(clock),
    )
    first, *brought = make_records(["replay"], events + 1, event_bytes)
    for record in (first, *brought):
        meter.call("PutItem", {"TableName": EVENTS, "Item": decode_image(record["dynamodb"]["NewImage"])})
    # The first record of a sink is written only once, and says how fast it answers.
    virtual.schedule(_AT_MS, lambda: virtual.delivery.note([first]))
    # The next poll after the newest of the others has come.
    at_ms = _AT_MS + events + 1000 // POLLS_PER_S
    virtual.run(at_ms)
    before = meter.counts.copy()
    for requests in sent.values():
        requests.clear()
    virtual.worked.clear()
    virtual.schedule(at_ms, lambda: virtual.delivery.note(brought))
    virtual.run(at_ms + 1)
    noted, at_once, taken = meter.counts - before, sum(map(len, sent.values())), len(virtual.worked)
    virtual.run(at_ms + 30_000)
    counts = meter.counts - before
    tables = counts.requests(DELIVERY) + counts.requests(EVENTS) - noted.requests(DELIVERY) - noted.requests(EVENTS)
    read_units = counts.read_units(DELIVERY) + counts.read_units(EVENTS)
    rung = len({place for _, place, _ in virtual.worked[taken:]})
    return WakeUsage(counts.write_units(DELIVERY), read_units, sent, at_once, taken, rung, tables)


def make_records(
    streams: Sequence[str], count: int, event_bytes: int, first: int = 0, at_ms: int = _AT_MS
) -> list[Record]:
    """The records of so many events of these streams, as items; a sink gets the same from segments."""
    made = []
    for number in range(first, first + count):
        event = StreamEvent(f"{number:08d}", "x" * event_bytes, None, None, None, at_ms + number - first)
        item = event_item(streams[number % len(streams)], 1, number, event)
        made.append(Write(number, at_ms, "INSERT", key_of(item), item).record())
    return made

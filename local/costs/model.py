"""Prices a replayed month and counted runs: a stream's month by part, a stage's month, and a million events.

Invariant: `sum` is the sum of the parts, and a part that costs nothing is 0. Storage is the amount at which as much
expires as comes (`keep_days`); if events are kept forever, it is the mean of the first month.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from handlers.profile.addresses import ProfileError
from handlers.profile.parse import parse
from handlers.segments.codec import SEGMENT_BYTES
from local.costs import delivery_costs, stage_costs
from local.costs.counted_run import NAMES, CountedStream, RunCounts, count, count_group, resolve_machine
from local.costs.month import MonthUsage, MonthUsages
from local.costs.prices import HOURS, MILLION, MONTH_S, Prices
from local.costs.steady_upstream import KEEP_RULE, TICK_MS
from local.simulation.scenario import Scenario
from local.terminal import UserError

# A length with four or five handovers.
RUN_S = 3_600
# The events of a run: enough for usual cursors and segments, in a few seconds of work.
EVENTS, BYTES = 6_000, 64 * 1024 * 1024
LEAST_RUN_S = 10
# If fewer are kept, the run does not get more events for that.
LEAST_KEPT = 0.2
SEGMENTS, MOST_EVENTS = 20, 150_000
# For a group: all its streams without events for one cycle of its function, and a few with events for two; ten if
# events are rare.
IDLE_CYCLES, FLOW_CYCLES, OFTEN_PER_S = 1, 2, 0.2
# Rarer events than these would be missing from a run; each costs as much as one of these.
RAREST_PER_S = 20 / RUN_S
# Denser events than these cost no less each: an item always costs the same, and so does a log's event once segments
# are full, because enough events come while a segment waits. A log that does not wait writes events as they come.
DENSEST_PER_S, FULL_SEGMENTS, LEAST_WAIT_S = 1_000, 2, TICK_MS / 1000
# "A partition … 1,000 write units a second"; an event takes one there, besides those of its index.
PARTITION_UNITS = 1000
PARTS = (
    *("lambda", "step_functions", "events", "control_writes", "reads", "storage", "logs", "watch", "encryption"),
    "metrics",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Load:
    """The streams of a stage whose cost is wanted, all with the same events and store.

    Events arrive at `random`, or by a `clock`. `per_function` streams, or all if there are fewer, share a function.
    `deliver` has kinds of sinks. A share of `keep` is stored; the rest is dropped on arrival.
    """

    streams: int
    events_per_s: float
    event_bytes: int
    store: str
    flush_s: float | None
    order: str = "index"
    per_function: int = 1
    arrivals: str = "random"
    deliver: tuple[str, ...] = ()
    keep: float = 1

    @property
    def stored_per_s(self) -> float:
        """How many events of each stream are stored in a second."""
        return self.events_per_s * self.keep

    @property
    def partitions(self) -> int:
        """Over how many keys a stream's items must be spread; a log has few segments, all with one key."""
        units = -(-self.event_bytes // 1024)
        return max(1, math.ceil(self.stored_per_s * units / PARTITION_UNITS)) if self.store == "items" else 1

    @property
    def group_size(self) -> int:
        """How many streams a function keeps, with the streams spread as evenly as possible."""
        functions = -(-self.streams // self.per_function)
        return -(-self.streams // functions)


@dataclass(frozen=True, slots=True)
class Usage:
    """The counts of a load: the streams without events, what events add, and the number of functions."""

    idle: RunCounts
    with_events: RunCounts
    functions: float | None = None


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs in US dollars; those of a million events are None without events.

    `million_events` is the cost of a million's requests, `million_storage_usd` of their storage: per month, or in total
    if the stage lets them expire.
    """

    stream_month: dict[str, float]
    fixed_month: dict[str, float]
    million_events: dict[str, float] | None
    million_storage_usd: float | None
    alternatives: dict[str, float]
    used: MonthUsage


def costs_of_loads(source: Scenario, months: MonthUsages, loads: Sequence[Load], prices: Prices) -> list[Costs]:
    """The costs of loads that differ only in their events: the streams without events are counted once.

    Raises UserError if a load cannot be stored like this.
    """
    usages = [first := count_load(source, loads[0]), *(count_load(source, load, first) for load in loads[1:])]
    return [price_load(source.settings, months, load, usage, prices) for load, usage in zip(loads, usages, strict=True)]


def price_load(settings: Mapping[str, Any], months: MonthUsages, load: Load, usage: Usage, prices: Prices) -> Costs:
    """The costs of a load with these counts."""
    idle, flow, together = usage.idle, usage.with_events, load.group_size
    used = months.streamkeeper
    if usage.functions is not None:
        # The same month of the machine, but its functions hand over many streams.
        used = replace(used, billed_ms=usage.functions * MONTH_S * 1000)
    parts = dict.fromkeys(PARTS, 0.0)
    parts["lambda"] = prices.lambda_usd(used.invocations, used.billed_ms, settings["memory_mb"]) / together
    parts["step_functions"] = used.transitions * prices.usd("step_functions", "million_transitions") / together
    parts["logs"] = prices.log_usd(used.invocations * stage_costs.measurements()["log_bytes_per_connection"]) / together
    parts["watch"] = stage_costs.watch_stream_usd(prices, together)
    parts["encryption"] = stage_costs.encryption_usd(stage_costs.IN_HANDOVERS / together, stage_costs.TABLES, prices)
    # With events, each connection has stored something.
    reports = idle.reports
    if load.events_per_s:
        reports = [replace(report, progress=replace(report.progress, stored=1)) for report in reports]
    length_s = idle.length_ms / 1000
    parts["metrics"] = stage_costs.stream_metrics_usd(reports, length_s, settings, prices) / load.streams
    added = _requests_usd(flow, settings, prices)
    # The wanted events in such a length, for each that was counted; they come at random.
    share = load.events_per_s * flow.length_ms / 1000 * flow.streams / flow.events if flow.events else 0.0
    is_dense = load.events_per_s > most_counted_per_s(load)
    for name, usd in _requests_usd(idle, settings, prices).items():
        # Dense events do not make the cursor's writes more frequent.
        added[name] *= 1 if is_dense and name in ("control_writes", "reads") else share
        parts[name] += usd + added[name]
    fixed = stage_costs.fixed_usd(settings, prices)
    if load.deliver:
        parts |= delivery_costs.stream_month_usd(load.deliver, _delivery_load(load, flow), settings, prices)
        fixed |= delivery_costs.stage_fixed_usd(load.deliver, settings, prices)
    events_month = load.events_per_s * MONTH_S
    million = {name: usd / events_month * MILLION for name, usd in added.items()} if flow.events else {}
    kept_usd = million.pop("storage", None)
    return Costs(
        stream_month=_with_sum(parts),
        fixed_month=_with_sum(fixed),
        million_events=_with_sum(million) if million else None,
        million_storage_usd=kept_usd,
        alternatives=_alternatives_usd(months.always_two, settings, prices),
        used=used,
    )


def _delivery_load(load: Load, flow: RunCounts) -> delivery_costs.DeliveryLoad:
    """What is delivered: single items, or the segments of a log with their events."""
    events = NAMES["events_table"]
    by_kind = flow.counts.by_kind.items()
    segments = sum(one.requests for kind, one in by_kind if kind.table == events and one.write_units)
    of_a_write = max(1.0, flow.events * load.keep / segments) if load.store == "log" and segments else 1.0
    return delivery_costs.DeliveryLoad(load.streams, load.stored_per_s / of_a_write, of_a_write, load.event_bytes)


def count_load(source: Scenario, load: Load, known_usage: Usage | None = None) -> Usage:
    """The counts of the streams without events, and what events add, at a rate that a run can have.

    One stream, or a few of a group, have events. The counts of the streams without events in
    `known_usage` are reused.
    """
    machine, rate = resolve_machine(source), max(min(load.events_per_s, most_counted_per_s(load)), RAREST_PER_S)
    asked, is_clocked = load_profile(source, load), load.arrivals == "clock"
    still, moving = (CountedStream(asked, each, load.event_bytes, is_clocked, load.keep) for each in (0.0, rate))
    length_s = _run_length_s(rate, load.keep, load.event_bytes, load.flush_s or 0.0)
    if known_usage is not None:
        idle, functions = known_usage.idle, known_usage.functions
    elif load.group_size == 1:
        idle, functions = count(source, machine, still, RUN_S * 1000), None
    else:
        idle, functions = count_group(source, machine, still, load.group_size, IDLE_CYCLES)
    if not load.events_per_s:
        return Usage(idle, idle.subtract(idle), functions)
    if load.group_size > 1 and length_s >= FLOW_CYCLES * source.settings["wait_s"]:
        streams = 2 if rate > OFTEN_PER_S else 10
        flow, base = (count_group(source, machine, one, streams, FLOW_CYCLES)[0] for one in (moving, still))
        return Usage(idle, flow.subtract(base), functions)
    length_ms = round(1000 * length_s)
    base = idle if (load.group_size, length_ms) == (1, idle.length_ms) else count(source, machine, still, length_ms)
    return Usage(idle, count(source, machine, moving, length_ms).subtract(base), functions)


def most_counted_per_s(load: Load) -> float:
    """The most events per second of a run; denser ones cost as much each, and larger ones need no more bytes."""
    most = min(DENSEST_PER_S, BYTES / LEAST_RUN_S / load.event_bytes)
    if load.store == "items":
        return most
    wait_s = max(LEAST_WAIT_S, 1 if load.flush_s is None else load.flush_s)
    return max(most, FULL_SEGMENTS * SEGMENT_BYTES / load.event_bytes / wait_s)


def _run_length_s(rate: float, keep: float, event_bytes: int, flush_s: float) -> float:
    """The length of a run with events: the full one if few are stored."""
    most = min(MOST_EVENTS, BYTES / event_bytes)
    # Segments are written when they are full, at the latest after `flush_s`.
    for_segments_s = min(SEGMENTS * min(flush_s, SEGMENT_BYTES / event_bytes / rate), most / rate)
    for_events_s = min(EVENTS / max(keep, LEAST_KEPT), BYTES / event_bytes) / rate
    return min(RUN_S, max(for_events_s, for_segments_s, LEAST_RUN_S))


def load_profile(source: Scenario, load: Load) -> Any:
    """The profile of the stream: one that can be resumed, with a second connection allowed for a moment."""
    table: dict[str, Any] = {
        "address": "https://upstream.invalid/{streamId}",
        "framing": "sse",
        "overlap": source.upstream.policy,
        "resume": {"header": "Last-Event-ID"},
        "keep_days": source.settings["keep_days"],
    }
    if load.store != "items":
        table |= {"store": load.store} | ({} if load.flush_s is None else {"flush_s": load.flush_s})
    if load.order != "index":
        table |= {"order": load.order}
    if load.keep < 1:
        table |= {"keep": KEEP_RULE}
    try:
        return parse("replay", table, {})
    except ProfileError as error:
        raise UserError(f"--store {load.store}: no profile can have that: {error}.") from None


def event_write_units_per_s(load: Load, usage: Usage) -> float:
    """The write units a second of a stream's events."""
    flow = usage.with_events
    return flow.counts.write_units(NAMES["events_table"]) / flow.events * load.events_per_s if flow.events else 0.0


def log_limit_note(load: Load, usage: Usage) -> str:
    """Why no log can store so much, "" if it can or the load is stored as items, which may have more partitions."""
    if load.store != "log" or (units := event_write_units_per_s(load, usage)) <= PARTITION_UNITS:
        return ""
    return f"a log has one partition, which takes {PARTITION_UNITS:,} write units a second, and it needs {units:,.0f}."


# --- amounts by prices ------------------------------------------------------------------------------------------------


def _requests_usd(counted: RunCounts, settings: Mapping[str, Any], prices: Prices) -> dict[str, float]:
    """The monthly cost of the counts for one stream, by part."""
    counts, times = counted.counts, MONTH_S * 1000 / counted.length_ms / counted.streams
    write_usd, read_usd = (prices.usd("dynamodb", f"million_{kind}_units") for kind in ("write", "read"))
    events, control = NAMES["events_table"], NAMES["control_table"]
    stored_usd = 0.0
    for table, keep_days in ((events, settings["keep_days"]), (control, settings["ledger_keep_days"])):
        grown = times * sum(size for (name, _), size in counts.stored_bytes.items() if name == table)
        # "based on the size of each DynamoDB table, including table data and local secondary indexes": no global one.
        backed_up = times * counts.stored_bytes.get((table, ""), 0) * settings["point_in_time_recovery"]
        stored_usd += stage_costs.storage_usd(grown, backed_up, keep_days, prices)
    return {
        "events": counts.write_units(events) * times * write_usd,
        "control_writes": counts.write_units(control) * times * write_usd,
        "reads": (counts.read_units(events) + counts.read_units(control)) * times * read_usd,
        "storage": stored_usd,
    }


def _alternatives_usd(plain: MonthUsage, settings: Mapping[str, Any], prices: Prices) -> dict[str, float]:
    """The monthly cost of other ways: a container and instances for all streams in them, the plain machine for one.

    The writes of events are left out, because they are the same for all.
    """

    def hours(name: str) -> float:
        return HOURS * prices.usd("container", name)

    fargate_usd = 0.25 * hours("fargate_vcpu_hour_arm64") + 0.5 * hours("fargate_gb_hour_arm64")
    ipv4_usd, disk_usd = hours("ipv4_hour"), 8 * prices.usd("container", "disk_gb_month")
    plain_usd = plain.transitions * prices.usd("step_functions", "million_transitions")
    return {
        "fargate": fargate_usd + ipv4_usd,
        "t4g_nano": hours("t4g_nano_hour") + ipv4_usd + disk_usd,
        "t4g_micro": hours("t4g_micro_hour") + ipv4_usd + disk_usd,
        "always_two": prices.lambda_usd(plain.invocations, plain.billed_ms, settings["memory_mb"]) + plain_usd,
    }


def stage_usd(load: Load, found: Costs) -> float:
    """The monthly cost of a stage with these streams and no others."""
    return found.fixed_month["sum"] + load.streams * found.stream_month["sum"]


def _with_sum(parts: dict[str, float]) -> dict[str, float]:
    return {**parts, "sum": sum(parts.values())}

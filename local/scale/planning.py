"""Chooses how to run the described streams: memory, streams in a function, store and partitions.

Their cost comes from `streamkeeper cost`, the capacity of a function from measurements, their requests to AWS from a
simulated day (`fleet.py`); nothing is computed here by another rule. Invariant: the choice keeps the rules of settings,
so that packaging accepts it; a stream that no function can read is split into connections.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from handlers.api.verdict import plural
from handlers.profile.addresses import MOST_PARTS
from local import stages
from local.costs import model, month, stage_costs
from local.costs.model import PARTITION_UNITS, Costs, Load, Usage
from local.costs.prices import Prices
from local.scale.fleet import Limit, cycle_of, limits_of_day, quota_in_region, read_quotas, scaled_day
from local.simulation.scenario import Scenario
from local.terminal import report_if_slow

# From 1,769 MB on a function has a full core, and one thread decodes, so more is useless.
MEMORY_MB = (128, 256, 512, 1024, stage_costs.MB_PER_CORE)
# A function is planned for half of its capacity, because after an outage it also reads what it missed.
HEADROOM = 2
# How long a profile's log may wait for a segment.
MOST_FLUSH_S = 60.0
# Limits that more streams do not meet, but busier ones.
PER_STREAM = ("stream_partition", "processor")
# The titles of limits that are not quotas.
PROCESSOR, HANDOVER = "events a second of a function", "streams that a handover opens in time"
PARTITION, NEW_EVENTS = "write units a second of a stream's partition", "write units a second of a new table of events"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The streams: their number, what each sends, how long its upstream takes to answer, and what its readers need.

    A share of `keep` is stored. Readers may wait `wait_s` for an event. All streams are started within `within_s`, in a
    region of a kind in quotas.toml. `profile` is "" if none was named; `parts` is how many parts it has, and
    `why_not_in_parts` why it cannot have any, "" if it can.
    """

    streams: int
    events_per_s: float
    event_bytes: int
    connect_s: float
    wait_s: float
    keep: float = 1
    within_s: float = 600
    region: str = "others"
    profile: str = ""
    parts: int = 0
    why_not_in_parts: str = ""


@dataclass(frozen=True, slots=True)
class FunctionSize:
    """What a function holds: `together` streams in `memory_mb`, each split into `connections`."""

    memory_mb: int
    together: int
    connections: int

    @property
    def is_whole(self) -> bool:
        """Whether one function can read a stream."""
        return self.connections == 1


def choose_function_size(asked: PlanRequest, settings: Mapping[str, Any]) -> FunctionSize:
    """The cheapest function for these streams, each split into as few connections as possible."""
    connections = max(1, math.ceil(asked.events_per_s / planned_events_per_s(MEMORY_MB[-1], asked.event_bytes)))
    rate, streams = asked.events_per_s / connections, asked.streams * connections
    most = stages.read_schema()["properties"]["streams_per_function"]["maximum"]
    most = min(most, streams, stages.most_per_handover(settings, round(1000 * asked.connect_s)))
    figures = stage_costs.measurements()
    found = []
    for memory_mb in MEMORY_MB:
        by_memory = (memory_mb * figures["usable_memory"] - figures["function_mb"]) / figures["stream_mb"]
        by_processor = planned_events_per_s(memory_mb, asked.event_bytes) / rate if rate else by_memory
        together = min(most, math.floor(by_memory), math.floor(by_processor + 1e-9))
        if together:
            found.append((memory_mb / together, memory_mb, together))
    _, memory_mb, together = min(found)
    return FunctionSize(memory_mb, together, connections)


def planned_events_per_s(memory_mb: int, event_bytes: int) -> float:
    """The events per second for which a function is planned."""
    return stage_costs.most_events_per_s(memory_mb, event_bytes) / HEADROOM


@dataclass(frozen=True)
class Plan:
    """The proposal for a stage, and its cost."""

    asked: PlanRequest
    source: Scenario
    fit: FunctionSize
    load: Load
    usage: Usage
    costs: Costs
    used: month.MonthUsage
    others: Sequence[tuple[Load, Usage, Costs]]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the stage needs."""
        return {"memory_mb": self.fit.memory_mb, "streams_per_function": self.fit.together}

    @property
    def profile(self) -> dict[str, Any]:
        """The fields that the profile needs."""
        if self.load.store == "log":
            return {"store": "log", "flush_s": self.load.flush_s}
        return {"store": "items"} | ({"partitions": self.load.partitions} if self.load.partitions > 1 else {})

    @property
    def most_per_handover(self) -> int:
        """How many streams with this upstream a handover has time for."""
        return stages.most_per_handover(self.source.settings, round(1000 * self.asked.connect_s))

    @cached_property
    def limits(self) -> list[Limit]:
        """Each limit with its use, the most used one at the top."""
        return self._limits(self.asked.streams)

    def _limits(self, number: int) -> list[Limit]:
        asked, settings, load = self.asked, self.source.settings, self.load
        streams = number * self.fit.connections
        groups = -(-streams // load.group_size)
        cycle = cycle_of(self.source, self.usage, self.used)
        one = scaled_day(groups, cycle, asked.within_s)
        listed = read_quotas()
        known = limits_of_day(one, cycle, asked.within_s, settings["api_requests_per_s"], asked.region)
        rate = stage_costs.most_events_per_s(self.fit.memory_mb, load.event_bytes)
        # Events are written all day long, in addition to the worst second of the control table.
        units = model.event_write_units_per_s(load, self.usage)
        of_stream = units if load.store == "log" else load.stored_per_s * -(-load.event_bytes // 1024) / load.partitions
        own = [
            Limit("events_writes", NEW_EVENTS, quota_in_region(listed["new_table_writes"]), streams * units),
            Limit("stream_partition", PARTITION, PARTITION_UNITS, of_stream),
            Limit("processor", PROCESSOR, rate, load.events_per_s * load.group_size),
        ]
        if load.group_size > 1:
            own.append(Limit("handover", HANDOVER, self.most_per_handover, load.group_size))
        return sorted([*known, *own], key=lambda limit: -limit.share)

    @cached_property
    def limit_met_first(self) -> tuple[Limit, str]:
        """The limit that growth meets first, and at what number."""
        first, streams = limit_met_first(self._limits, self.asked.streams)
        if first.name in PER_STREAM:
            return (
                first,
                f"{plural(round(self.asked.events_per_s / first.share), 'event')} a second of each stream",
            )
        return first, plural(streams, "stream")

    @property
    def notes(self) -> list[str]:
        """Notes about the numbers, a sentence or two each."""
        asked, chosen, load = self.asked, self.fit, self.load
        notes = []
        if not chosen.is_whole:
            most = stage_costs.most_events_per_s(MEMORY_MB[-1], asked.event_bytes)
            notes.append(
                f"a function stores about {most:,.0f} such events a second at most, and the plan uses half of that, so "
                f"one connection is not enough: it takes {chosen.connections}. "
                f"{_parts_advice(asked, chosen.connections)}"
            )
        overlap = self.most_per_handover
        if overlap < min(load.streams, self.source.settings["most_streams_per_function"]):
            notes.append(
                f"a handover has time for {plural(overlap, 'stream')} of such a slow upstream; nothing checks that."
            )
        for other, usage, costs in self.others:
            form, usd = "a log" if other.store == "log" else "items", costs.stream_month["sum"] * chosen.connections
            note = model.log_limit_note(other, usage)
            but = f", but {note}" if note else "."
            notes.append(f"stored as {form}, a stream would cost {usd:,.2f} US dollars a month{but}")
        return notes

    def as_json(self) -> dict[str, Any]:
        first, at = self.limit_met_first
        share = next(one.share for one in self.limits if one.name == first.name)
        return {
            "asked": asdict(self.asked),
            "connections_per_stream": self.fit.connections,
            "settings": self.settings,
            "profile": self.profile,
            "functions": -(-self.load.streams // self.load.group_size),
            "stream_month_usd": self.costs.stream_month["sum"] * self.fit.connections,
            "stream_month_parts": self.costs.stream_month,
            "stage_month_usd": model.stage_usd(self.load, self.costs),
            "met_first": {"limit": first.name, "at": at, "share": share},
            "limits": [asdict(one) | {"share": one.share} for one in self.limits],
            "notes": self.notes,
        }


def limit_met_first(limits_of: Callable[[int], Sequence[Limit]], streams: int) -> tuple[Limit, int]:
    """Returns the limit that these streams, or more or fewer, meet first, and the number of streams that meets it.

    A full group is followed by another one. The busiest second of a thousand streams is less than a thousand times that
    of one, so the limits are computed again for the number found. `limits_of` returns the limits of a number of
    streams.
    """
    for _ in range(10):
        first = max((one for one in limits_of(streams) if one.name != "handover"), key=lambda limit: limit.share)
        if first.name in PER_STREAM:
            break
        before, streams = streams, max(1, math.floor(streams / first.share))
        if abs(streams - before) <= before / 100:
            break
    return first, streams


def make_plan(stage: str, asked: PlanRequest, prices: Prices) -> Plan:
    """The plan for streams of a stage; raises UserError if there is no such stage."""
    source = month.read_scenario(stage)
    chosen = choose_function_size(asked, source.settings)
    settings = {**source.settings, "memory_mb": chosen.memory_mb, "streams_per_function": chosen.together}
    latencies = {**source.latencies_ms, "connect": (round(1000 * asked.connect_s),)}
    source = replace(source, settings=settings, latencies_ms=latencies)
    load = Load(
        streams=asked.streams * chosen.connections,
        events_per_s=asked.events_per_s / chosen.connections,
        event_bytes=asked.event_bytes,
        store="items",
        flush_s=None,
        per_function=chosen.together,
        keep=asked.keep,
    )
    loads = [load]
    if asked.wait_s:
        loads.append(replace(load, store="log", flush_s=min(asked.wait_s, MOST_FLUSH_S)))
    with report_if_slow(f"1 of {1 + len(loads)}: replaying the machine in virtual time …"):
        months = month.replay_months(source)
    usages: list[Usage] = []
    for one in reversed(loads):
        words = f"{2 + len(usages)} of {1 + len(loads)}: counting the requests of {plural(one.group_size, 'stream')} …"
        with report_if_slow(words):
            usages.insert(0, model.count_load(source, one, usages[0] if usages else None))
    found = [
        (one, usage, model.price_load(settings, months, one, usage, prices))
        for one, usage in zip(loads, usages, strict=True)
    ]
    # Items can be spread over as many partitions as one function's events need, a log has one.
    found.sort(key=lambda one: (bool(model.log_limit_note(*one[:2])), one[2].stream_month["sum"]))
    (load, usage, costs), *others = found
    return Plan(asked, source, chosen, load, usage, costs, months.streamkeeper, others)


def _parts_advice(asked: PlanRequest, needed: int) -> str:
    """How the upstream is read by so many connections, or why it cannot be and what to do."""
    fewer = "request fewer events of it, or read it elsewhere"
    if needed > MOST_PARTS:
        return f"A stream is read in {MOST_PARTS} parts at most: make several streams of it, or {fewer}."
    if asked.why_not_in_parts:
        return f"The profile cannot be read in parts: {asked.why_not_in_parts}. Otherwise {fewer}."
    if asked.parts >= needed:
        return f"The profile {asked.profile!r} has {asked.parts} parts, which is enough if they are about as busy."
    if asked.profile:
        has = f"has {asked.parts} parts" if asked.parts else "has no parts yet"
        words = f"The profile {asked.profile!r} {has}: write at least {needed} equally busy parts into parts = [...]"
    else:
        words = (
            "If the upstream serves parts (topics, symbols, shards), write {name} into the profile's address and at "
            f"least {needed} of them into parts = [...]"
        )
    return f"{words}: {needed} connections, one stream to its readers. If the upstream has no parts, {fewer}."

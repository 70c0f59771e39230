"""Draws the plans of a schedule's delivery and of its repair: the sinks, the repair address, and the faults of both.

They are drawn apart, so that everything else of a seed stays the same. Invariant: the same seed gives the same plans.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from handlers.profile.deliver_field import Target
from handlers.profile.secret_references import Reference
from local.simulation.virtual_rest import LIES, RestWays

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault: it begins at `at_ms` and lasts for `for_ms`; the meaning of `value` depends on the kind."""

    at_ms: int
    kind: str
    for_ms: int = 0
    value: int = 0

    def __str__(self) -> str:
        lasts = f" for {self.for_ms / 1000:.3f} s" if self.for_ms else ""
        return f"{self.at_ms / 1000:>8.3f} s  {self.kind}{lasts}" + (f" ({self.value})" if self.value else "")


def in_order(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Returns the faults in order of time."""
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def without_each(several: tuple[T, ...]) -> list[tuple[T, ...]]:
    """Returns, for each element, the tuple without it."""
    return [several[:at] + several[at + 1 :] for at in range(len(several))]


# --- delivery ---------------------------------------------------------------------------------------------------------

# The share of schedules that deliver.
DELIVERS = 0.3
HOUR_MS = 3_600_000
# By kind: its weight, and how long it may last; () for an instant.
SINK_KINDS: dict[str, tuple[int, tuple[int, ...]]] = {
    "kill": (6, ()),
    "part": (3, (2_000, 20_000, 90_000)),
    "no answers": (3, (2_000, 20_000)),
    "away": (2, (30_000, HOUR_MS, HOUR_MS, 26 * HOUR_MS)),
    "hang": (2, (30_000, HOUR_MS)),
    "slow sink": (1, (30_000,)),
    "lost bells": (2, (5_000, 30_000)),
    "redeploy": (2, ()),
    "no queue": (2, (30_000, HOUR_MS)),
    "split": (2, ()),
}
MOST_SINK_FAULTS = 5
SINKS_MS = 2_000, 90_000
# One queue drops duplicates of a group, the other of all its messages.
TARGETS = (
    Target("sqs", "groups.fifo"),
    Target("sqs", "whole.fifo"),
    Target("sqs", "groups.fifo", in_order=False),
    Target("kinesis", "stream"),
    Target("kinesis", "stream", in_order=False),
    Target("eventbridge", "bus"),
    Target("firehose", "stream"),
    Target("s3", "bucket", prefix="raw/"),
    Target("lambda", "function"),
    *(
        Target("webhook", "https://hook.invalid/events", secret=Reference("secret", "hook"), **more)
        for more in ({}, {"in_order": False}, {"batch": 10, "wait_ms": 1_000})
    ),
)


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """The sinks of a run's events, the number of records in a batch, and the faults.

    `has_poison`: the sinks never accept some of the events. A fault's `value` seeds its own numbers, and chooses the
    sink if the fault affects one.
    """

    seed: int
    targets: tuple[Target, ...]
    batch_size: int
    has_poison: bool
    faults: tuple[Fault, ...]

    def victim(self, fault: Fault) -> str:
        """Returns the label of the sink that the fault affects."""
        return self.targets[fault.value % len(self.targets)].label

    def __str__(self) -> str:
        sinks = ", ".join(target.label + ("" if target.in_order else " (unordered)") for target in self.targets)
        poison = ", some of them poison" if self.has_poison else ""
        lines = [f"delivers to {sinks}{poison}, {self.batch_size} records at most"]
        for fault in self.faults:
            lasting = f" for {fault.for_ms / 1000:g} s" if fault.for_ms else ""
            lines.append(f"{fault.at_ms / 1000:.3f} s {fault.kind}{lasting} ({fault.value})")
        return "\n  ".join(lines)

    def shorter(self) -> list[DeliveryPlan]:
        """Returns the plans with one fault or one sink less, or without poison."""
        shorter = [replace(self, faults=faults) for faults in without_each(self.faults)]
        shorter += [replace(self, targets=(target,)) for target in self.targets if len(self.targets) > 1]
        return [*shorter, replace(self, has_poison=False)] if self.has_poison else shorter


def draw_delivery_plan(seed: int) -> DeliveryPlan | None:
    """Returns the plan of a seed; None if its streams deliver nothing."""
    drawn = random.Random(f"delivery {seed}")
    if drawn.random() >= DELIVERS:
        return None
    several = drawn.sample(TARGETS, drawn.choice((1, 2, 3)))
    faults = []
    for kind in drawn.choices(
        list(SINK_KINDS), [often for often, _ in SINK_KINDS.values()], k=drawn.randrange(MOST_SINK_FAULTS + 1)
    ):
        at_ms = drawn.randrange(*SINKS_MS)
        faults.append(Fault(at_ms, kind, drawn.choice(SINK_KINDS[kind][1] or (0,)), drawn.randrange(1 << 16)))
    return DeliveryPlan(
        seed,
        # Two sinks with one label would be the same sink.
        tuple({target.label: target for target in several}.values()),
        batch_size=drawn.choice((5, 20, 100)),
        has_poison=drawn.random() < 0.4,
        faults=tuple(sorted(faults)),
    )


# --- repair -----------------------------------------------------------------------------------------------------------

# The share of profiles with a repair address, among those that can have one.
REPAIRS = 0.35
# The share of addresses that return events without an order.
SHUFFLED = 0.2
AFTER_S, PACE_S, REACH_S = 2, 0.3, 900
REPAIRS_MS, MOST_REPAIR_FAULTS = (4_000, 60_000), 4
REPAIR_KINDS = ("kill", "kill", "kill in the store", "freeze", "rest down")


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """How the address behaves, and the faults in order of time; a kill hits the running repair, or else the next."""

    rest: RestWays
    faults: tuple[Fault, ...] = ()

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the profile."""
        return {
            "repair": {
                "address": "https://rest.invalid/events?after={after}&before={before}",
                "items": "$.events",
                "next": {"cursor": "$.next", "query": "page"},
                "after_s": AFTER_S,
                "pace_s": PACE_S,
                "reach_s": REACH_S,
            }
        }

    @property
    def calm_ms(self) -> int:
        """When, after the start of the run, the address has stopped lying and all faults of the repair are over."""
        return max([self.rest.lies_ms if self.rest.lie else 0, *(one.at_ms + one.for_ms for one in self.faults)])

    def __str__(self) -> str:
        faults = (replace(fault, kind=f"repair: {fault.kind}", value=0) for fault in self.faults)
        return "\n".join([f"repaired from {self.rest}", *(f"  {fault}" for fault in faults)])

    def shorter(self) -> list[RepairPlan]:
        """Returns the plans with one fault less, or with an address that is plainer in one way."""
        plain: dict[str, Any] = {"lag_ms": 0, "limit": 50, "keeps_ms": 0, "refuses": 0, "is_shuffled": False, "lie": ""}
        ways = [{name: value} for name, value in plain.items() if getattr(self.rest, name) != value]
        shorter = [replace(self, faults=faults) for faults in without_each(self.faults)]
        return [*shorter, *(replace(self, rest=replace(self.rest, **one)) for one in ways)]


def draw_repair_plan(seed: int) -> RepairPlan | None:
    """Returns the plan of a seed; None if its gaps are not repaired."""
    drawn = random.Random(f"repair {seed}")
    if drawn.random() >= REPAIRS:
        return None
    lie = drawn.choice(LIES)
    ways = RestWays(
        seed=seed,
        lag_ms=drawn.choice((0, 500, 3_000, 6_000)),
        limit=drawn.choice((2, 5, 50)),
        keeps_ms=drawn.choice((0, 0, 0, 20_000)),
        refuses=drawn.choice((0, 0, 10, 40)),
        is_inclusive=drawn.random() < 0.5,
        lie=lie,
        lies_ms=drawn.randrange(5_000, 50_000) if lie else 0,
    )
    count = drawn.randrange(MOST_REPAIR_FAULTS + 1)
    faults = in_order(_draw_repair_fault(drawn) for _ in range(count))
    return RepairPlan(replace(ways, is_shuffled=drawn.random() < SHUFFLED), faults)


def _draw_repair_fault(drawn: random.Random) -> Fault:
    kind = drawn.choice(REPAIR_KINDS)
    for_ms = drawn.randrange(1_000, 15_000) if kind in ("freeze", "rest down") else 0
    return Fault(drawn.randrange(*REPAIRS_MS), kind, for_ms, drawn.randrange(1 << 16))

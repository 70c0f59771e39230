"""Draws what meets the delivery of a schedule and the repair of its gaps: what they ask, and the faults of both.

Drawn apart from the seed's other numbers, so that all else of a schedule is as it is without. Invariant: the same seed
gives the same plans.
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
    """One fault: it begins at `at_ms` and holds for `for_ms`; `value` is a number whose meaning is the kind's."""

    at_ms: int
    kind: str
    for_ms: int = 0
    value: int = 0

    def __str__(self) -> str:
        lasts = f" for {self.for_ms / 1000:.3f} s" if self.for_ms else ""
        return f"{self.at_ms / 1000:>8.3f} s  {self.kind}{lasts}" + (f" ({self.value})" if self.value else "")


def in_order(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Returns the same, in the order of time."""
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def fewer(several: tuple[T, ...]) -> list[tuple[T, ...]]:
    """Returns them without one, for each of them."""
    return [several[:at] + several[at + 1 :] for at in range(len(several))]


# --- delivery ---------------------------------------------------------------------------------------------------------

# How many of the schedules deliver.
DELIVERS = 0.3
HOUR_MS = 3_600_000
# Of each kind how often it is drawn, and for how long it lasts: nothing for what is over at once.
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
# One queue drops duplicates of a group, one of all its messages.
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
    """Where the events of a run's streams go, in batches of how many records, and what goes wrong.

    `has_poison`: the sinks will never take some of the events. What a fault's own numbers come from is its `value`,
    which chooses the sink, too, where the fault is a sink's.
    """

    seed: int
    targets: tuple[Target, ...]
    batch_size: int
    has_poison: bool
    faults: tuple[Fault, ...]

    def victim(self, fault: Fault) -> str:
        """Returns the label of the sink that the fault is of."""
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
        shorter = [replace(self, faults=faults) for faults in fewer(self.faults)]
        shorter += [replace(self, targets=(target,)) for target in self.targets if len(self.targets) > 1]
        return [*shorter, replace(self, has_poison=False)] if self.has_poison else shorter


def drawn_delivery(seed: int) -> DeliveryPlan | None:
    """Returns the plan of a seed; None where its streams deliver nothing."""
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
        # Two sinks of one name would be one.
        tuple({target.label: target for target in several}.values()),
        batch_size=drawn.choice((5, 20, 100)),
        has_poison=drawn.random() < 0.4,
        faults=tuple(sorted(faults)),
    )


# --- repair -----------------------------------------------------------------------------------------------------------

# How often a stream's profile says how its gaps are repaired, where it can.
REPAIRS = 0.35
# How many of the addresses have their events in no order.
SHUFFLED = 0.2
AFTER_S, PACE_S, REACH_S = 2, 0.3, 900
REPAIRS_MS, MOST_REPAIR_FAULTS = (4_000, 60_000), 4
REPAIR_KINDS = ("kill", "kill", "kill in the store", "freeze", "rest down")


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The address's ways, and the faults in the order of time; a kill meets who repairs then, or the next who does."""

    rest: RestWays
    faults: tuple[Fault, ...] = ()

    @property
    def fields(self) -> dict[str, Any]:
        """What the profile says."""
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
        """From when on, after the start of the run, the address tells the truth and nobody meets who asks it."""
        return max([self.rest.lies_ms if self.rest.lie else 0, *(one.at_ms + one.for_ms for one in self.faults)])

    def __str__(self) -> str:
        faults = (replace(fault, kind=f"repair: {fault.kind}", value=0) for fault in self.faults)
        return "\n".join([f"repaired from {self.rest}", *(f"  {fault}" for fault in faults)])

    def shorter(self) -> list[RepairPlan]:
        """Plans without one of the faults, or with plainer ways."""
        plain: dict[str, Any] = {"lag_ms": 0, "limit": 50, "keeps_ms": 0, "refuses": 0, "is_shuffled": False, "lie": ""}
        ways = [{name: value} for name, value in plain.items() if getattr(self.rest, name) != value]
        shorter = [replace(self, faults=faults) for faults in fewer(self.faults)]
        return [*shorter, *(replace(self, rest=replace(self.rest, **one)) for one in ways)]


def drawn_repair(seed: int) -> RepairPlan | None:
    """Returns the plan of a seed; None where its gaps are not repaired."""
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
    faults = in_order(_repair_fault(drawn) for _ in range(count))
    return RepairPlan(replace(ways, is_shuffled=drawn.random() < SHUFFLED), faults)


def _repair_fault(drawn: random.Random) -> Fault:
    kind = drawn.choice(REPAIR_KINDS)
    for_ms = drawn.randrange(1_000, 15_000) if kind in ("freeze", "rest down") else 0
    return Fault(drawn.randrange(*REPAIRS_MS), kind, for_ms, drawn.randrange(1 << 16))

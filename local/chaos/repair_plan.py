"""Decides what the address does from which a run's gaps are repaired, and what meets the functions that ask it.

Drawn apart, so that all else of a seed is as it was without. Invariant: the same seed gives the same plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from local.simulation.virtual_rest import LIES, RestWays

# How often a stream's profile says how its gaps are repaired, where it can.
REPAIRS = 0.35
# How many of the addresses have their events in no order.
SHUFFLED = 0.2
AFTER_S, PACE_S, REACH_S = 2, 0.3, 900
FIRST_MS, LAST_MS, MOST_FAULTS = 4_000, 60_000, 4
KINDS = ("kill", "kill", "kill in the store", "freeze", "rest down")


@dataclass(frozen=True, slots=True)
class RepairFault:
    """It begins at `at_ms` and lasts for `for_ms`; a kill meets who repairs then, or else the next who does."""

    at_ms: int
    kind: str
    for_ms: int = 0
    value: int = 0

    def __str__(self) -> str:
        lasts = f" for {self.for_ms / 1000:.3f} s" if self.for_ms else ""
        return f"{self.at_ms / 1000:>8.3f} s  repair: {self.kind}{lasts}"


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The address's ways, and the faults in the order of time."""

    rest: RestWays
    faults: tuple[RepairFault, ...] = ()

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
        return "\n".join([f"repaired from {self.rest}", *(f"  {fault}" for fault in self.faults)])


S = TypeVar("S", bound=Any)


def repaired(schedule: S, place: Callable[..., S] = replace) -> S:
    """Returns the schedule, perhaps with a plan: only events with a key and an order can be repaired."""
    drawn = random.Random(f"repair {schedule.seed}")
    if drawn.random() >= REPAIRS or schedule.beside or schedule.group:
        return schedule
    lie = drawn.choice(LIES)
    ways = RestWays(
        seed=schedule.seed,
        lag_ms=drawn.choice((0, 500, 3_000, 6_000)),
        limit=drawn.choice((2, 5, 50)),
        keeps_ms=drawn.choice((0, 0, 0, 20_000)),
        refuses=drawn.choice((0, 0, 10, 40)),
        is_inclusive=drawn.random() < 0.5,
        lie=lie,
        lies_ms=drawn.randrange(5_000, 50_000) if lie else 0,
    )
    count = drawn.randrange(MOST_FAULTS + 1)
    faults = sorted((_fault(drawn) for _ in range(count)), key=lambda one: one.at_ms)
    ways = replace(ways, is_shuffled=drawn.random() < SHUFFLED)
    ordered = tuple(fault for fault in schedule.faults if fault.kind != "reorders")
    return place(
        schedule, key="path", unstorable="", order="index", faults=ordered, repair=RepairPlan(ways, tuple(faults))
    )


def _fault(drawn: random.Random) -> RepairFault:
    kind = drawn.choice(KINDS)
    for_ms = drawn.randrange(1_000, 15_000) if kind in ("freeze", "rest down") else 0
    return RepairFault(drawn.randrange(FIRST_MS, LAST_MS), kind, for_ms, drawn.randrange(1 << 16))


def shorter(plan: RepairPlan) -> list[RepairPlan]:
    """Plans without one of the faults, or with plainer ways."""
    faults = [replace(plan, faults=plan.faults[:at] + plan.faults[at + 1 :]) for at in range(len(plan.faults))]
    plain: dict[str, Any] = {"lag_ms": 0, "limit": 50, "keeps_ms": 0, "refuses": 0, "is_shuffled": False, "lie": ""}
    ways = [{name: value} for name, value in plain.items() if getattr(plan.rest, name) != value]
    return [*faults, *(replace(plan, rest=replace(plan.rest, **one)) for one in ways)]

"""Reads AWS's quotas from quotas.toml, and computes how much of each a day of a fleet uses, the scarcest first.

Invariant: a quota that differs by region is that of the requested region.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.scale.fleet import Cycle, Day

FILE = Path(__file__).with_name("quotas.toml")
# Which regions have the quotas: "large" ones, as quotas.toml lists them, or "others", where they are lower.
REGIONS = ("others", "large")


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit: its title, its value, and how much of it is used."""

    name: str
    title: str
    most: float
    asked: float

    @property
    def share(self) -> float:
        """The used share; above 1 the limit is exceeded."""
        return self.asked / self.most


def quotas() -> dict[str, Any]:
    """AWS's quotas by name."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def limits_of_a_day(one: Day, cycle: Cycle, within_s: float, posts_per_s: Any, region: str = "others") -> list[Limit]:
    """Each quota with its use in a day whose groups were started by POSTs within so many seconds."""
    own = {"title": "POSTs of the stage's API, a setting", "most": posts_per_s}
    asked = {
        "own_api": one.groups * cycle.streams / within_s,
        "concurrency": float(one.most_functions),
        "partition_writes": one.most_partition_units,
        "new_table_writes": one.most_control_units,
        "table_writes": one.most_control_units,
        "transitions": max(one.transitions_per_s, cycle.transitions * one.most_opening),
        "start_execution": float(one.most_starts),
        "open_executions": float(one.groups),
    }
    known = {**quotas(), "own_api": own}
    found = [Limit(name, known[name]["title"], most_of(known[name], region), value) for name, value in asked.items()]
    return sorted(found, key=lambda limit: -limit.share)


def most_of(quota: Mapping[str, Any], region: str = "others") -> int:
    """The quota in a region of this kind."""
    most: int = quota["most"] if "most" in quota else quota["refill"][region]
    return most

"""Knows how long AWS lets our code run, and shows what longer lifetimes would change: notes and rows of `compare`.

Longer lifetimes were never tried on AWS: the comparison uses the strategies and latencies of functions, with another
limit and another price of their time. Invariant: every limit and price is in prices.toml, with its sources and the day
on which they were read.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from handlers.api.verdict import plural
from local.compare.strategy_world import StrategyResult
from local.costs.prices import FILE, Prices

CHANGES = (("gaps", 1, ",.0f"), ("gap_ms", 1000, ",.1f"), ("lost", 1, ",.0f"), ("usd_month", 1, ",.2f"))
HEADS = ("strategy", "gaps", "gap s", "lost", "$ a month")


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A runtime whose functions live for at most `most_s`. `instances` run all the time; otherwise `vcpus` are paid by
    time.
    """

    name: str
    most_s: int
    read_on: str
    sources: tuple[str, ...]
    known: str
    unknown: str
    instances: int = 0
    vcpus: float = 0
    gb: float = 0
    invocations_per_vcpu: int = 0

    def replace_prices(self, listed: Prices, memory_mb: int) -> Prices:
        """Returns the prices of this runtime's functions; those of Lambda itself are in the list."""
        if self.instances:
            return listed.with_price("lambda", "gb_second_arm64", 0)
        if not self.gb:
            return listed
        hour = self.vcpus * listed.usd("microvm", "vcpu_hour") + self.gb * listed.usd("microvm", "gb_hour")
        by_second = listed.with_price("lambda", "gb_second_arm64", hour / 3600 * 1024 / memory_mb)
        return by_second.with_price("lambda", "million_requests", 0)

    def add_instances(self, result: StrategyResult, listed: Prices) -> StrategyResult:
        """Returns a strategy's result with the cost of its instances, as if no other stream used them."""
        if not self.instances:
            return result
        hours = self.instances * result.until_ms / 3_600_000 * (1 + listed.usd("managed_instances", "management_fee"))
        charges = {("managed_instances", "instance_hour"): hours * result.share}
        return replace(result, charges={**result.charges, **charges})

    def notes(self) -> list[str]:
        """Returns lines about this runtime."""
        lines = [f"{self.name} (read on {self.read_on}): {self.known}"]
        if self.instances:
            at_once = self.instances * self.vcpus * self.invocations_per_vcpu
            lines.append(
                f"the dollars are for a stream that has the {self.instances} instances to itself; "
                f"they hold about {plural(round(at_once), 'connection')} at once"
            )
        return [*lines, f"not known: {self.unknown}"]

    def as_json(self) -> dict[str, Any]:
        """Returns the object that `--json` prints for it."""
        shown = ("name", "most_s", "read_on", "sources", "known", "unknown")
        return {name: getattr(self, name) for name in shown}


def read_lifetimes(path: Path = FILE) -> list[Lifetime]:
    """Returns all lifetimes, the shortest first."""
    return [
        Lifetime(**{**life, "sources": tuple(life["sources"])})
        for life in tomllib.loads(path.read_text(encoding="utf-8"))["lives"]
    ]


def shortest_lifetime(limit_s: int) -> Lifetime:
    """Returns the shortest lifetime that reaches the limit."""
    return next(life for life in read_lifetimes() if life.most_s >= limit_s)


def table_of_changes(found: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Returns a table that compares the results with today's functions and with longer ones."""
    lines = [list(HEADS)]
    for now, was in zip(found, before, strict=True):
        cells = [f"{was[name] / unit:{form}} → {now[name] / unit:{form}}" for name, unit, form in CHANGES]
        lines.append([now["strategy"], *cells])
    return lines

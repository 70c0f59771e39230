"""Runs a day of many groups in virtual time: when each hands over and renews, and what all request in each second.

How much of AWS's quotas (quotas.toml) that day uses is computed here, too; a quota that differs by region is that of
the requested region.

Each group waits as its lane does, minus its jitter, and opens its streams as `Pacing` allows. The requests of one
handover were counted (`local/costs/counted_run.py`); when the handovers of the day coincide is drawn.
Invariant: the same figures give the same day.
"""

import heapq
import random
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from handlers.run.group_function import AT_ONCE, HEARTBEAT_EVERY_MS
from handlers.store.typed_values import DAY_S
from local.costs.counted_run import NAMES
from local.costs.model import Usage
from local.costs.month import MonthUsage
from local.costs.prices import MONTH_S
from local.simulation.scenario import Scenario

# A day of more groups is computed for this many and multiplied: simulating every handover would take too long.
MOST_STEPPED = 2_000
# The writes of a connection to its lease besides heartbeats: claim, mark, first cursor and release.
OPENING_UNITS = 4


@dataclass(frozen=True, slots=True)
class GroupCycle:
    """A group's cycle as counted: its duration, its writes, and how many streams open in a second.

    Units are those of all the group's streams: in a cycle, and of an index's entries under the sort key of one
    connection's records. `even_units` of the former are heartbeats, spread over the cycle; the rest comes with its
    openings.
    `renews_after` is the number of cycles after which an execution is replaced.
    """

    streams: int
    length_s: float
    jitter_s: float
    opens_per_s: float
    control_units: float
    ledger_index_units: float
    transitions: float
    functions: float
    renews_after: float
    even_units: float


@dataclass(frozen=True, slots=True)
class FleetDay:
    """The requests of all groups: the mean second, and the worst second."""

    groups: int
    handovers: int
    renewals: int
    most_opening: int
    transitions_per_s: float
    most_starts: int
    control_units_per_s: float
    most_control_units: float
    most_partition_units: float
    most_functions: int


def cycle_of(source: Scenario, usage: Usage, used: MonthUsage) -> GroupCycle:
    """The cycle of a function, of one stream or a group, from counts of streams without events."""
    idle, control = usage.idle, NAMES["control_table"]
    is_group = usage.functions is not None
    length_s = idle.length_ms / 1000 if is_group else MONTH_S / used.invocations
    part = 1 if is_group else length_s * 1000 / idle.length_ms
    # A group's function writes one for all its streams.
    heartbeat_s = min(source.settings["progress_every_s"], HEARTBEAT_EVERY_MS / 1000)
    lease = sum(
        one.write_units for kind, one in idle.counts.by_kind.items() if (kind.table, kind.item) == (control, "lease")
    )
    ledger = [one for kind, one in idle.counts.by_kind.items() if (kind.table, kind.item) == (control, "connection")]
    return GroupCycle(
        streams=idle.streams,
        length_s=length_s,
        jitter_s=source.settings["jitter_s"],
        opens_per_s=round(AT_ONCE / (source.latencies_ms["connect"][0] / 1000), 2),
        control_units=part * idle.counts.write_units(control),
        # Each write of a record is one unit; the rest is the first one's entry in the index.
        ledger_index_units=part * sum(one.write_units - one.requests for one in ledger if one.write_units),
        transitions=round(used.transitions / used.invocations, 3),
        functions=round(used.billed_ms / 1000 / MONTH_S if usage.functions is None else usage.functions, 4),
        renews_after=2 * source.settings["renew_after"],
        even_units=round(length_s / heartbeat_s) if is_group else max(0.0, part * lease - OPENING_UNITS),
    )


def scaled_day(groups: int, cycle: GroupCycle, started_within_s: float) -> FleetDay:
    """A day of any number of groups; with more than MOST_STEPPED it is multiplied."""
    one = simulate_day(min(groups, MOST_STEPPED), cycle, started_within_s)
    times = groups / one.groups
    return FleetDay(*(type(amount)(amount * times) for amount in astuple(one)))


def simulate_day(groups: int, cycle: GroupCycle, started_within_s: float) -> FleetDay:
    """The day in which the executions of so many groups renew, which were started within so many seconds."""
    draws = random.Random(1)
    renews_after = round(cycle.renews_after)
    first = renews_after - round(DAY_S / cycle.length_s / 2)
    due = [(draws.uniform(0, started_within_s), group, first) for group in range(groups)]
    heapq.heapify(due)
    begun: list[float] = []
    # Connections of streams that were started together have the same number, and so the same key in the index.
    by_connection: dict[int, list[int]] = {}
    starts: Counter[int] = Counter()
    lasts_s = max(1, round(cycle.streams / cycle.opens_per_s))
    mean_wait_s = cycle.length_s + cycle.jitter_s / 2
    while due:
        at_s, group, number = heapq.heappop(due)
        if at_s >= DAY_S:
            continue
        begun.append(at_s)
        by_connection.setdefault(number, []).append(int(at_s))
        if number % renews_after == 0:
            starts[int(at_s)] += 1
        heapq.heappush(due, (at_s + mean_wait_s - draws.uniform(0, cycle.jitter_s), group, number + 1))
    most_opening = _most_at_once([int(at_s) for at_s in begun], lasts_s)
    most_of_a_number = max(_most_at_once(seconds, lasts_s) for seconds in by_connection.values())
    return FleetDay(
        groups,
        handovers=len(begun),
        renewals=starts.total(),
        most_opening=most_opening,
        transitions_per_s=cycle.transitions * len(begun) / DAY_S,
        most_starts=max(starts.values(), default=0),
        control_units_per_s=cycle.control_units * groups / cycle.length_s,
        most_control_units=most_opening * (cycle.control_units - cycle.even_units) / lasts_s
        + groups * cycle.even_units / cycle.length_s,
        most_partition_units=most_of_a_number * cycle.ledger_index_units / lasts_s,
        most_functions=groups + _most_at_once(begun, (cycle.functions - 1) * cycle.length_s),
    )


def _most_at_once(begun: Sequence[float], lasts_s: float) -> int:
    """The most things at a time that begin at these instants, in order, and last for so long."""
    most = first = 0
    for last, at_s in enumerate(begun):
        while begun[first] + lasts_s <= at_s:
            first += 1
        most = max(most, last - first + 1)
    return most


# --- quotas ----------------------------------------------------------------------------------------------------------

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


def read_quotas() -> dict[str, Any]:
    """AWS's quotas by name."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def limits_of_day(
    one: FleetDay, cycle: GroupCycle, within_s: float, posts_per_s: Any, region: str = "others"
) -> list[Limit]:
    """Each quota with its use in a day whose groups were started by POSTs within so many seconds."""
    own = {"title": "POSTs of the stage's API, a setting", "most": posts_per_s}
    asked = {
        **dict.fromkeys(("own_api", "api"), one.groups * cycle.streams / within_s),
        "concurrency": float(one.most_functions),
        "partition_writes": one.most_partition_units,
        "new_table_writes": one.most_control_units,
        "table_writes": one.most_control_units,
        "transitions": max(one.transitions_per_s, cycle.transitions * one.most_opening),
        "start_execution": float(one.most_starts),
        "open_executions": float(one.groups),
    }
    known = {**read_quotas(), "own_api": own}
    found = [
        Limit(name, known[name]["title"], quota_in_region(known[name], region), value) for name, value in asked.items()
    ]
    return sorted(found, key=lambda limit: -limit.share)


def quota_in_region(quota: Mapping[str, Any], region: str = "others") -> int:
    """The quota in a region of this kind."""
    most: int = quota["most"] if "most" in quota else quota["refill"][region]
    return most

"""Runs a day of many groups in virtual time: when each hands over and renews, and what all request in each second.

Each group waits as its lane does, less its jitter, and opens its streams as `Pacing` lets it. What one handover
requests was counted (`local/costs/counted_run.py`), how the handovers of the day fall together is drawn from a seed.
Invariant: the same figures and seed give the same day.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from handlers.run.group_function import AT_ONCE
from local.costs.counted_run import NAMES
from local.costs.model import Usage
from local.costs.month import MONTH_S, Month
from local.simulation.scenario import Scenario

DAY_S = 86_400
# A day of more groups is that of so many, multiplied: to step each handover of all takes too long.
MOST_STEPPED = 2_000
# What a connection writes into its lease besides heartbeats: claim, mark, first cursor and release.
OPENING_UNITS = 4


@dataclass(frozen=True, slots=True)
class Cycle:
    """One group's cycle as it was counted: how long it takes, what it writes, and how many streams open in a second.

    Units are of all of the group's streams: in a cycle, and of the entries that an index has under the sort key of one
    connection's records; `even_units` of the former are spread over the cycle, the rest falls in its openings.
    `renews_after` is in how many cycles an execution is followed by another.
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
    even_units: float = 0


@dataclass(frozen=True, slots=True)
class Day:
    """What all groups ask for: the means of a second, and the worst second."""

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


def cycle_of(source: Scenario, usage: Usage, used: Month) -> Cycle:
    """The cycle of a function, alone or of a group, as its streams without events were counted."""
    idle, control = usage.idle, NAMES["control_table"]
    is_group = usage.functions is not None
    length_s = idle.length_ms / 1000 if is_group else MONTH_S / used.invocations
    part = 1 if is_group else length_s * 1000 / idle.length_ms
    lease = sum(
        one.write_units for kind, one in idle.counts.by_kind.items() if (kind.table, kind.item) == (control, "lease")
    )
    ledger = [one for kind, one in idle.counts.by_kind.items() if (kind.table, kind.item) == (control, "connection")]
    return Cycle(
        streams=idle.streams,
        length_s=length_s,
        jitter_s=source.settings["jitter_s"],
        opens_per_s=round(AT_ONCE / (source.latencies_ms["connect"][0] / 1000), 2),
        control_units=part * idle.counts.write_units(control),
        # Each write of a record is one unit; what is above that is the entry that the first one has in the index.
        ledger_index_units=part * sum(one.write_units - one.requests for one in ledger if one.write_units),
        transitions=round(used.transitions / used.invocations, 3),
        functions=round(used.billed_ms / 1000 / MONTH_S if usage.functions is None else usage.functions, 4),
        renews_after=2 * source.settings["renew_after"],
        # Of a stream alone nearly all are heartbeats; of a group nearly none, and they count as openings.
        even_units=0 if is_group else max(0.0, part * lease - OPENING_UNITS),
    )


def day_of_any(groups: int, cycle: Cycle, started_within_s: float) -> Day:
    """A day of any number of groups; of more than MOST_STEPPED it is multiplied."""
    one = day(min(groups, MOST_STEPPED), cycle, started_within_s)
    times = groups / one.groups
    return Day(*(type(amount)(amount * times) for amount in astuple(one)))


def day(groups: int, cycle: Cycle, started_within_s: float, seed: int = 1) -> Day:
    """A day of so many groups that were started within so many seconds: the day in which their executions renew."""
    draws = random.Random(seed)
    renews_after = round(cycle.renews_after)
    first = renews_after - round(DAY_S / cycle.length_s / 2)
    due = [(draws.uniform(0, started_within_s), group, first) for group in range(groups)]
    heapq.heapify(due)
    begun: list[float] = []
    # Connections of all streams that were started together have one number, and so one key in the index.
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
    most_opening = _together([int(at_s) for at_s in begun], lasts_s)
    most_of_a_number = max(_together(seconds, lasts_s) for seconds in by_connection.values())
    return Day(
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
        most_functions=groups + _together(begun, (cycle.functions - 1) * cycle.length_s),
    )


def _together(begun: Sequence[float], lasts_s: float) -> int:
    """How many of what has begun at these instants, in their order, and lasts for so long are under way at a time."""
    most = first = 0
    for last, at_s in enumerate(begun):
        while begun[first] + lasts_s <= at_s:
            first += 1
        most = max(most, last - first + 1)
    return most

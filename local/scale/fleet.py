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
from dataclasses import dataclass

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Cycle:
    """One group's cycle as it was counted: how long it takes, what it writes, and how many streams open in a second.

    Units are of all of the group's streams: in a cycle, and of the entries that an index has under the sort key of one
    connection's records. `renews_after` is in how many cycles an execution is followed by another.
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
        most_control_units=most_opening * cycle.control_units / lasts_s,
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

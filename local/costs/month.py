"""Replays the first part of a month of a stage's machine: the usage of Step Functions and Lambda for one stream.

Invariant: the definition and the settings are the deployed ones, and the same stage gives the same figures.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from pathlib import Path

from handlers.store.typed_values import DAY_S
from local import collection
from local.checkout import ROOT
from local.costs.prices import MONTH_S
from local.replay.command import replay
from local.simulation.scenario import Scenario, read

SCENARIO = Path(__file__).with_name("month.yml")
# The naive machine: one Task that is called again and again. Two of its branches keep two connections.
PLAIN = ROOT / "statemachines" / "retry.asl.yml"
PLAIN_BRANCHES = 2
# Only so many connections of a month are replayed: three executions of `prod`, in a week.
CONNECTIONS = 690


@dataclass(frozen=True, slots=True)
class Month:
    """What one stream used in a month; `billed_ms` is the time of its functions, in `invocations` calls."""

    transitions: float
    billed_ms: float
    invocations: float
    executions: float

    def times(self, factor: float) -> Month:
        """The usage, multiplied."""
        return Month(*(value * factor for value in astuple(self)))


@dataclass(frozen=True, slots=True)
class Months:
    """A month of one stream, with the deployed machine and with the naive one."""

    ours: Month
    always_two: Month


def replayed(source: Scenario) -> Months:
    """Both months."""
    return Months(streamkeeper(source), always_two(source))


def scenario(stage: str) -> Scenario:
    """The month, with the settings of the stage; raises UserError if there is no such stage."""
    return read(SCENARIO, stage)


def streamkeeper(source: Scenario) -> Month:
    """A month of a stream with the deployed machine, including renewals."""
    length_ms = min(source.run_for_ms, CONNECTIONS * source.settings["function_timeout_s"] * 1000)
    return _replayed(replace(source, run_for_ms=length_ms)).times(MONTH_S * 1000 / length_ms)


def always_two(source: Scenario) -> Month:
    """A month of the naive machine, whose two branches are always connected; at most a day is replayed."""
    length_s = min(DAY_S, CONNECTIONS * source.settings["function_timeout_s"])
    part = _replayed(replace(source, machine=PLAIN, run_for_ms=length_s * 1000))
    return part.times(PLAIN_BRANCHES * MONTH_S / length_s)


def _replayed(source: Scenario) -> Month:
    with collection.paused():
        found = replay(source)
        return Month(found.transitions, found.billed_ms, found.invocations, len(found.runs))

"""Replays the first part of a month of a stage's machine: the usage of Step Functions and Lambda for one stream.

Invariant: the definition and the settings are the deployed ones, and the same stage gives the same figures.
"""

from dataclasses import astuple, dataclass, replace
from pathlib import Path

from handlers.store.typed_values import DAY_S
from local import garbage_collection
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
class MonthUsage:
    """What one stream used in a month; `billed_ms` is the time of its functions, in `invocations` calls."""

    transitions: float
    billed_ms: float
    invocations: float
    executions: float

    def scale(self, factor: float) -> "MonthUsage":
        """The usage, multiplied."""
        return MonthUsage(*(value * factor for value in astuple(self)))


@dataclass(frozen=True, slots=True)
class MonthUsages:
    """A month of one stream, with the deployed machine and with the naive one."""

    streamkeeper: MonthUsage
    always_two: MonthUsage


def replay_months(source: Scenario) -> MonthUsages:
    """Both months."""
    # Of the naive machine, whose two branches are always connected, at most a day is replayed.
    length_s = min(DAY_S, CONNECTIONS * source.settings["function_timeout_s"])
    part = _replay_usage(replace(source, machine=PLAIN, run_for_ms=length_s * 1000))
    return MonthUsages(replay_streamkeeper(source), part.scale(PLAIN_BRANCHES * MONTH_S / length_s))


def read_scenario(stage: str) -> Scenario:
    """The month, with the settings of the stage; raises UserError if there is no such stage."""
    return read(SCENARIO, stage)


def replay_streamkeeper(source: Scenario) -> MonthUsage:
    """A month of a stream with the deployed machine, including renewals."""
    length_ms = min(source.run_for_ms, CONNECTIONS * source.settings["function_timeout_s"] * 1000)
    return _replay_usage(replace(source, run_for_ms=length_ms)).scale(MONTH_S * 1000 / length_ms)


def _replay_usage(source: Scenario) -> MonthUsage:
    with garbage_collection.no_garbage_collection():
        found = replay(source)
        return MonthUsage(found.transitions, found.billed_ms, found.invocations, len(found.runs))

"""Provides a stage in virtual time: a scenario's clock, latencies and upstream, and the executions of its machine.

Invariant: the same scenario gives the same random numbers and latencies, in the same order.
"""

import itertools
from collections.abc import Mapping
from pathlib import Path

import yaml

from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from local import stages
from local.simulation.scenario import Scenario
from local.simulation.scripted_upstream import ScriptedUpstream
from local.simulation.started_executions import VirtualExecutions
from local.terminal import UserError
from states_language import Machine, load
from states_language.clock import VirtualClock

# The stage whose settings and names a scenario overrides by default.
STAGE = "local"
INPUT = {"pathParameters": {"streamId": "replay"}}
# The machine of handlers that run without one: it starts no execution.
NO_MACHINE = {"StartAt": "Nothing", "States": {"Nothing": {"Type": "Succeed"}}}


class Latencies:
    """The scenario's latencies, each list used in turn; the last value repeats."""

    def __init__(self, source: Scenario) -> None:
        in_turn = {name: itertools.chain(of, itertools.repeat(of[-1])) for name, of in source.latencies_ms.items()}
        latencies = {name: values.__next__ for name, values in in_turn.items()}
        self.start_ms = latencies["start"]
        self.wait_overshoot_ms = latencies["wait_overshoot"]
        self.wait_to_task_ms = latencies["wait_to_task"]
        self.connect_ms = latencies["connect"]


class VirtualStage:
    """One run of a scenario, which begins at `origin_ms`; the default of `machine` does nothing."""

    def __init__(
        self, source: Scenario, machine: Machine | None = None, names: Mapping[str, str] | None = None
    ) -> None:
        self.source = source
        self.names = stages.names(STAGE) if names is None else names
        self.clock = VirtualClock(seed=source.seed)
        self.origin_ms = self.clock.now_ms()
        self.latencies = Latencies(source)
        self.executions = VirtualExecutions(machine or load(NO_MACHINE), self.clock, self.latencies)

    def upstream(self, latencies: Latencies | None = None) -> ScriptedUpstream:
        """Returns an upstream with the scenario's script, and with its own latencies if some are given."""
        connect_ms = (latencies or self.latencies).connect_ms
        return ScriptedUpstream(self.clock, self.source.upstream, self.origin_ms, connect_ms)


def machine_in(path: Path, source: Scenario, names: Mapping[str, str]) -> Machine:
    """Returns the machine in a file, with its variables replaced; raises UserError if it is invalid."""
    try:
        return load(stages.resolve(stages.read_machine_file(path), source.settings, names))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None


def profile_of(source: Scenario) -> Profile:
    """Returns a careful profile for the scenario's upstream."""
    table = {
        "address": "https://upstream.invalid/{streamId}",
        "framing": "sse",
        "overlap": source.upstream.policy,
        "overlap_s": source.upstream.overlap_s,
        "stall_after_s": source.upstream.stall_after_s,
        "standby": source.upstream.standby,
        "end": {"event": "end"},
        "resume": {"header": "Last-Event-ID"} if source.upstream.resumes else "none",
    }
    return parse("replay", table, {})

"""Assertions about the result of a replay, for the tests of authors of machines.

    timeline = timeline_of(run_machine("machine.asl.yml", {}, functions={...}))
    timeline.assert_no_gap()
    timeline.assert_connections(at_most=2)
    timeline.assert_cost(below_usd=0.01)

In a history, each running Task counts as a connection (`timeline/analysis.py`); a scenario of `streamkeeper replay`
knows the connections themselves. Invariant: a failed assertion says what was found.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from handlers.api.verdict import plural
from local.costs import prices
from local.history import group
from local.replay.command import replay
from local.simulation import scenario
from local.simulation.virtual_stage import STAGE
from timeline.analysis import analyse
from timeline.coverage import Connection, Gap
from timeline.spans import Event

MOST_SHOWN = 5


class HasHistory(Protocol):
    """A finished run, such as a `MachineRun` or an `Execution` of the interpreter."""

    @property
    def history(self) -> Sequence[Event]:
        """Returns the events as GetExecutionHistory does."""
        ...


@dataclass(frozen=True, slots=True)
class Timeline:
    """The connections in `until_ms`; `running_ms` is the time of the functions, `calls` their number."""

    connections: Sequence[Connection]
    gaps: Sequence[Gap]
    until_ms: int
    transitions: int
    running_ms: int
    calls: int

    @property
    def most_connections(self) -> int:
        """Returns the most connections at the same time; one that begins when another ends does not overlap it."""
        edges = sorted(edge for c in self.connections for edge in ((c.from_ms, 1), (c.to_ms, -1)))
        most = depth = 0
        for _, step in edges:
            depth += step
            most = max(most, depth)
        return most

    def usd(self, memory_mb: int = 128) -> float:
        """Returns the cost of the transitions and the functions on arm64 in US dollars."""
        return cost_usd(self.transitions, self.running_ms, self.calls, memory_mb)["sum"]

    def assert_no_gap(self) -> None:
        """Raises AssertionError if there was a time without a connection between the first one and the end."""
        __tracebackhide__ = True
        if not self.connections:
            raise AssertionError("nothing was ever connected")
        if self.gaps:
            shown = [f"{gap.from_ms / 1000:.3f} to {gap.to_ms / 1000:.3f} s, after {gap.cause}" for gap in self.gaps]
            more = [f"and {len(shown) - MOST_SHOWN} more"] if len(shown) > MOST_SHOWN else []
            raise AssertionError("\n  ".join([f"{plural(len(shown), 'gap')}:", *shown[:MOST_SHOWN], *more]))

    def assert_connections(self, at_most: int) -> None:
        """Raises AssertionError if more were open at the same time."""
        __tracebackhide__ = True
        if self.most_connections > at_most:
            raise AssertionError(
                f"{plural(self.most_connections, 'connection')} at the same time, and at most {at_most} expected"
            )

    def assert_cost(self, below_usd: float, memory_mb: int = 128) -> None:
        """Raises AssertionError if it cost that or more."""
        __tracebackhide__ = True
        if (usd := self.usd(memory_mb)) >= below_usd:
            calls = f"{self.running_ms / 1000:,.1f} s in {plural(self.calls, 'call')}"
            said = f"{plural(self.transitions, 'transition')} and {calls}"
            raise AssertionError(f"it cost {usd:.6f} US dollars, and less than {below_usd:g} was expected: {said}")


def timeline_of(source: HasHistory | Sequence[Event] | str | os.PathLike[str]) -> Timeline:
    """Returns the timeline of a run, of a history's events or file (.json), or of a scenario (.yml).

    Raises UserError for another file.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return (
            _timeline_of_scenario(path)
            if path.suffix in (".yml", ".yaml")
            else _timeline_of_histories(group.read_files([path]))
        )
    events: Sequence[Event] = source.history if hasattr(source, "history") else source
    return _timeline_of_histories([("history", events)])


def cost_usd(transitions: int, running_ms: int, calls: int, memory_mb: int) -> dict[str, float]:
    """Returns the cost of executions in US dollars: their transitions, and their functions on arm64."""
    listed = prices.read()
    machine = transitions * listed.usd("step_functions", "million_transitions")
    functions = listed.lambda_usd(calls, running_ms, memory_mb)
    return {"step_functions": machine, "lambda": functions, "sum": machine + functions}


def _timeline_of_histories(histories: Sequence[tuple[str, Sequence[Event]]]) -> Timeline:
    found = analyse(histories)
    return Timeline(found.tasks, found.gaps, found.until_ms, found.transitions, found.running_ms, len(found.functions))


def _timeline_of_scenario(path: Path) -> Timeline:
    found = replay(scenario.read(path, STAGE))
    ran = found.transitions, found.billed_ms, found.invocations
    return Timeline(found.connections, found.gaps, found.until_ms, *ran)

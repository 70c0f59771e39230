"""The verb `replay`: runs a machine against a scripted upstream in virtual time and shows what its lanes did.

The machine is the deployed file. Invariant: the same scenario gives the same output, to the byte.
"""

import argparse
import asyncio
import atexit
import functools
import gc
import itertools
import json
import os
import sys
import textwrap
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local import garbage_collection, stages
from local.simulation import scenario
from local.simulation.scenario import Scenario
from local.simulation.started_executions import VirtualExecutions
from local.simulation.virtual_sandbox import VirtualSandbox
from local.simulation.virtual_stage import INPUT, STAGE, VirtualStage, machine_in
from local.terminal import encodable_picture, printable_lines, report_if_slow, terminal_columns
from states_language import Execution
from timeline import picture, spans
from timeline.coverage import Connection, Deliveries, Gap, deliveries, gaps, overlap_ms

# The default width of the picture, and the largest and smallest width of the table's columns.
COLUMNS, CELL, MIN_CELL = 96, 44, 20


@dataclass(frozen=True, slots=True)
class ExecutionRun:
    """One execution of a replay; times count from the start of the first."""

    arn: str
    from_ms: int
    to_ms: int | None
    status: str
    output: Any
    rows: list[spans.Row]
    transitions: int
    history_events: int

    @classmethod
    def from_execution(cls, execution: Execution, origin_ms: int) -> "ExecutionRun":
        """Returns the run of an execution so far."""
        from_ms, history = execution.started_ms - origin_ms, execution.history
        rows = spans.rows(history)
        return cls(
            arn=execution.arn,
            from_ms=from_ms,
            to_ms=None if execution.stopped_ms is None else execution.stopped_ms - origin_ms,
            status=execution.status,
            output=execution.output,
            rows=[spans.Row(row.at_ms + from_ms, row.lane, row.what, row.error) for row in rows] if from_ms else rows,
            transitions=spans.transitions(history),
            history_events=len(history),
        )

    def as_json(self) -> dict[str, Any]:
        """Returns the object that `--json` prints for it."""
        return _pick_fields(self, "from_ms to_ms status output transitions history_events")


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay; times are milliseconds from the start of the first execution.

    `transitions` are those of all executions, `history_events` those of the longest; `status`, `error` the last's.
    """

    rows: list[spans.Row]
    spans: list[spans.Span]
    connections: list[Connection]
    gaps: list[Gap]
    overlap_ms: int
    transitions: int
    history_events: int
    deliveries: Deliveries
    status: str
    error: str | None
    until_ms: int
    runs: list[ExecutionRun]

    @property
    def invocations(self) -> int:
        """Returns the number of function calls."""
        return sum(span.kind == "task" for span in self.spans)

    @property
    def billed_ms(self) -> int:
        """Returns how long functions ran."""
        tasks = (span for span in self.spans if span.kind == "task")
        return sum((self.until_ms if task.to_ms is None else task.to_ms) - task.from_ms for task in tasks)

    def as_json(self) -> dict[str, Any]:
        """Returns the object that `--json` prints."""
        return {
            "rows": [_pick_fields(row, "at_ms lane what") for row in self.rows],
            "connections": [_pick_fields(one, "lane from_ms to_ms ended_by") for one in self.connections],
            "gaps": [_pick_fields(gap, "from_ms to_ms cause") for gap in self.gaps],
            **_pick_fields(self, "overlap_ms transitions history_events"),
            **_pick_fields(self.deliveries, "stored duplicates lost"),
            **_pick_fields(self, "status error"),
            "executions": [run.as_json() for run in self.runs],
        }


def _pick_fields(source: object, names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names.split()}


def replay(
    source: Scenario,
    sandbox_of: Callable[[VirtualStage], VirtualSandbox] = VirtualSandbox,
    input_: Mapping[str, Any] = INPUT,
    show_progress: Callable[[Callable[[], float]], AbstractContextManager[Any]] = nullcontext,
) -> ReplayResult:
    """Returns what happened until `run_for_ms` or the execution's end; raises UserError for an invalid machine.

    `sandbox_of` makes the performer of the Tasks; `input_` is the execution's. `showing` gets the share that is done.
    """
    names = stages.names(STAGE)
    later = [(one.at_ms, machine_in(one.machine, source, names)) for one in source.redeployments]
    stage = VirtualStage(source, machine_in(source.machine, source, names), names)
    clock, executions, origin_ms = stage.clock, stage.executions, stage.origin_ms

    async def run() -> VirtualSandbox:
        sandbox = sandbox_of(stage)
        for at_ms, changed in later:
            clock.call_at(origin_ms + at_ms, functools.partial(setattr, executions, "machine", changed))
        executions.begin(input_, sandbox.perform)
        ended = asyncio.ensure_future(executions.wait_until_over())
        over = asyncio.ensure_future(clock.sleep_until(origin_ms + source.run_for_ms))
        await asyncio.wait({ended, over}, return_when=asyncio.FIRST_COMPLETED)
        return sandbox

    with show_progress(lambda: (clock.now_ms() - origin_ms) / source.run_for_ms):
        sandbox = clock.run(run())
    return _make_result(source, executions, sandbox, origin_ms)


def _make_result(
    source: Scenario, executions: VirtualExecutions, sandbox: VirtualSandbox, origin_ms: int
) -> ReplayResult:
    runs = [ExecutionRun.from_execution(execution, origin_ms) for execution in executions.all]
    last = executions.newest_execution
    # An execution that succeeded has seen the stream's end, so what follows is not a gap.
    until_ms = source.run_for_ms
    if last.status == "SUCCEEDED" and last.stopped_ms is not None:
        until_ms = min(last.stopped_ms - origin_ms, until_ms)
    rows = sorted((row for run in runs for row in run.rows), key=lambda row: row.at_ms)
    lanes = {run.arn: [row.lane for row in run.rows if row.what == "task_started"] for run in runs}
    connections = sandbox.connections(lanes, origin_ms, until_ms)
    return ReplayResult(
        rows=rows,
        spans=[span for run in runs for span in spans.spans(run.rows)],
        connections=connections,
        gaps=gaps(connections, until_ms),
        overlap_ms=overlap_ms(connections),
        transitions=sum(run.transitions for run in runs),
        history_events=max(run.history_events for run in runs),
        deliveries=deliveries(connections, source.upstream.events_every_ms, until_ms, resumes=source.upstream.resumes),
        status=last.status,
        error=last.error,
        until_ms=until_ms,
        runs=runs,
    )


# --- the command ------------------------------------------------------------------------------------------------------


def add(subparsers: Any) -> None:
    """Adds the verb and its options."""
    parser = subparsers.add_parser(
        "replay",
        description="Runs a state machine against a scripted upstream in virtual time; shows lanes, gaps and overlap.",
        epilog="Scenarios are in tests/timelines/; docs/replay.md explains their fields.",
    )
    parser.add_argument("scenario", type=Path, metavar="SCENARIO.yml", help="what to run, how long, against what")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table and picture")
    parser.add_argument(
        "--width", type=int, help=f"columns of the picture (those of the terminal; {COLUMNS} into a pipe or file)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Returns 0 once the answer is printed."""
    showing = functools.partial(report_if_slow, "running the scenario in virtual time …")
    with garbage_collection.no_garbage_collection():
        result = replay(scenario.read(args.scenario, STAGE), show_progress=showing)
    atexit.register(gc.freeze)  # there is no garbage to collect at the end either
    try:
        print(json.dumps(result.as_json()) if args.json else _result_text(result, args.width), flush=True)
    except BrokenPipeError:
        # The reader has seen enough; the interpreter must not flush the rest when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _result_text(result: ReplayResult, width: int | None) -> str:
    if width is None:
        width = terminal_columns(sys.stdout, COLUMNS + picture.LABEL) - picture.LABEL
    return encodable_picture(sys.stdout.encoding, printable_lines(replay_text(result, width)))


def replay_text(result: ReplayResult, width: int) -> str:
    """Returns the table of times, the picture and the totals; the picture has `width` columns besides its labels."""
    columns = max(MIN_CELL, width + picture.LABEL)
    totals = (part for line in _totals(result) for part in textwrap.wrap(line, columns, subsequent_indent="    "))
    drawn = picture.draw(result.spans, result.connections, result.gaps, result.until_ms, width)
    return "\n".join([*_table(result, width), "", *drawn, "", picture.LEGEND, "", *totals])


def _table(result: ReplayResult, width: int) -> list[str]:
    lanes = sorted({"A", "B"}.union(row.lane for row in result.rows))
    cell = min(CELL, max(MIN_CELL, (width + picture.LABEL - 12) // len(lanes) - 2))
    lines = [("at (s)", [f"lane {lane}" for lane in lanes])]
    for at_ms, group in itertools.groupby(result.rows, key=lambda row: row.at_ms):
        cells = dict.fromkeys(lanes, "")
        for row in group:
            said = row.what.replace("_", " ") + (f" ({row.error})" if row.error else "")
            cells[row.lane] = ", ".join(filter(None, (cells[row.lane], said)))
        # In a narrow terminal, a cell takes several lines.
        wrapped = itertools.zip_longest(*(textwrap.wrap(said, cell) for said in cells.values()), fillvalue="")
        lines += [("" if number else f"{at_ms / 1000:.3f}", [*parts]) for number, parts in enumerate(wrapped)]
    return ["  ".join([f"{at:>12}", *(said.ljust(cell) for said in row)]).rstrip() for at, row in lines]


def _totals(result: ReplayResult) -> list[str]:
    gap_ms = sum(gap.to_ms - gap.from_ms for gap in result.gaps)
    count = result.deliveries
    ending = result.status + (f" ({result.error})" if result.error else "")
    longest = "" if len(result.runs) == 1 else f" in the longest of {len(result.runs)} executions"
    return [
        f"overlap {result.overlap_ms / 1000:.3f} s, gaps {len(result.gaps)}, {gap_ms / 1000:.3f} s in all",
        *(f"  gap {gap.from_ms / 1000:.3f} to {gap.to_ms / 1000:.3f} s: {gap.cause}" for gap in result.gaps),
        f"stored {count.stored}, duplicates turned away {count.duplicates}, lost {count.lost}",
        f"transitions {result.transitions}, history events {result.history_events}{longest}, execution {ending}",
    ]

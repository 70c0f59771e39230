"""`run`: runs a definition once, with functions that run here or with the answers of a file.

The exit status is 0 if the execution succeeded, 1 if it did not, 2 for a mistake of the user. Invariant: standard
output holds only the result; progress and the functions' own output go to standard error.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from states_language import Execution, Machine
from states_language.clock import Clock, RealClock, VirtualClock
from states_language.drawing.histories import ASCII, attempts, draw
from states_language.history import details_of
from states_language.tasks.lambdas import StandIns
from states_language.tasks.stubs import Answer
from states_language.values import parse_external_json
from states_language.workbench import files
from states_language.workbench.files import Host, Mistake

LONGEST_PATH = 60
"""How many states of a path are printed."""

COLUMNS, BESIDE, MIN_BAR = 120, 84, 16
"""The columns of a timeline whose width nobody says; those beside its bars; the least width of the bars."""

PROGRESS_EVERY_MS = 5_000
"""How often an execution in real time reports its progress."""


def add(subparsers: Any, host: Host) -> argparse.ArgumentParser:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "run",
        help="run a definition once and print its result",
        description="Runs a definition once; prints its status, the states that it went through, and output or error.",
        epilog=f"Exit status: 0 it succeeded, 1 it did not, 2 it could not be run. {host.page} shows a FUNCTIONS file.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the definition in YAML or JSON")
    parser.add_argument("--input", default="{}", metavar="JSON", help="the input, or @FILE that holds it ({})")
    parser.add_argument("--functions", metavar="FUNCTIONS", help="a Python module or .py, or a .yml of answers by name")
    parser.add_argument(
        "--case", metavar="CASE", help="a test case; FUNCTIONS is then a MockConfigFile of Step Functions Local"
    )
    parser.add_argument("--virtual", action="store_true", help="let time jump: a Wait of a day takes no time")
    parser.add_argument("--history", action="store_true", help="print the history's events too")
    parser.add_argument("--timeline", action="store_true", help="draw each Task's attempts, and what followed errors")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the result and return the exit status."""
    machine = files.load_machine(args.file, args)
    data = read_input(args.input)
    # A function's prints are its log.
    with contextlib.redirect_stdout(sys.stderr):
        answers = files.read_answers(args.functions, args.case)
        if args.virtual:
            execution = run_virtually(machine, data, answers, args.host)
        else:
            execution = asyncio.run(_run_in_real_time(machine, data, answers, args.host))
    if args.json:
        print(json.dumps(_as_json(execution, args.history), ensure_ascii=False, indent=1))
    else:
        print(_encode_marks("\n".join(_result_lines(execution, args.history, args.timeline))))
    return int(execution.status != "SUCCEEDED")


def read_input(text: str) -> Any:
    """Return the input of the command line: JSON, or @FILE; raises Mistake."""
    if text.startswith("@"):
        return files.data(Path(text[1:]), "The input")
    try:
        return parse_external_json(text)
    except ValueError as problem:
        raise Mistake(f"--input is not valid JSON: {problem}. Name a file by @FILE.") from None


def make_stand_ins(clock: Clock, answers: Mapping[str, Answer], host: Host) -> StandIns:
    """Return the functions that perform the machine's Tasks by these answers, and report each name without one."""

    def unknown(name: str) -> None:
        answer = "{}" if ":" in name else "its input"
        print(f"{host.name}: --functions does not name {name}; it returns {answer}.", file=sys.stderr)

    return StandIns(clock, answers, unknown)


def run_virtually(machine: Machine, data: Any, answers: Mapping[str, Answer], host: Host) -> Execution:
    """Run the execution to its end and return it; raises Mistake if a mock does not answer an attempt."""
    clock = VirtualClock()
    perform = make_stand_ins(clock, answers, host).perform
    try:
        return machine.run(data, clock=clock, perform=perform)
    except LookupError as problem:
        raise Mistake(f"{problem}.") from None


async def _run_in_real_time(machine: Machine, data: Any, answers: Mapping[str, Answer], host: Host) -> Execution:
    clock, loop = RealClock(), asyncio.get_running_loop()
    broken: list[Any] = []
    # An execution that a mock does not answer fails, and reports the reason to the event loop.
    loop.set_exception_handler(lambda _, context: broken.append(context.get("exception")))
    execution = machine.start(data, clock=clock, perform=make_stand_ins(clock, answers, host).perform)
    progress = asyncio.ensure_future(_print_progress(execution, clock, host))
    try:
        await execution.wait()
    finally:
        progress.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await progress
    for problem in filter(None, broken):
        raise Mistake(f"{problem}.") if isinstance(problem, LookupError) else problem
    return execution


async def _print_progress(execution: Execution, clock: Clock, host: Host) -> None:
    """Print at intervals how long the execution has been running, and its latest state."""
    while True:
        await clock.sleep_until(clock.now_ms() + PROGRESS_EVERY_MS)
        elapsed_s = (clock.now_ms() - execution.started_ms) / 1000
        latest = execution.path[-1] if execution.path else "no state yet"
        print(f"{host.name}: running for {elapsed_s:.0f} s, in {latest}; Ctrl-C ends it.", file=sys.stderr)


# ---- the result ----


def _columns() -> int:
    """Return the terminal's columns, or the value of COLUMNS in the environment, for a pipe too."""
    if os.environ.get("COLUMNS", "").isdecimal() or sys.stdout.isatty():
        return shutil.get_terminal_size((COLUMNS, 24)).columns
    return COLUMNS


def _encode_marks(text: str) -> str:
    """Return the text with a timeline's marks replaced by ASCII if the output's encoding lacks them."""
    try:
        "".join(map(chr, ASCII)).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return text.translate(ASCII)
    return text


def _as_json(execution: Execution, history: bool) -> dict[str, Any]:
    result: dict[str, Any] = {
        "status": execution.status,
        "output": execution.output,
        "error": execution.error,
        "cause": execution.cause,
        "path": execution.path,
        "transitions": execution.transitions,
        "history_events": len(execution.history),
        "took_ms": (execution.stopped_ms or execution.started_ms) - execution.started_ms,
    }
    return result | {"history": execution.history} if history else result


def _result_lines(execution: Execution, history: bool, timeline: bool) -> list[str]:
    took_s = ((execution.stopped_ms or execution.started_ms) - execution.started_ms) / 1000
    counts = (
        f"{files.count_noun(execution.transitions, 'transition')}, {files.count_noun(len(execution.history), 'event')}"
    )
    lines = [f"{execution.status} after {took_s:.3f} s, {counts}", f"path: {_path_text(execution.path)}"]
    if execution.error is not None:
        lines.append(f"error: {execution.error}")
    if execution.cause is not None:
        lines.append(f"cause: {execution.cause}")
    if execution.status == "SUCCEEDED":
        lines.append(f"output: {json.dumps(execution.output, ensure_ascii=False, indent=2)}")
    if timeline:
        width = max(MIN_BAR, _columns() - BESIDE)
        until_ms = (execution.stopped_ms or execution.started_ms) - execution.started_ms
        lines += ["", *draw(attempts(execution.history), until_ms, width)]
    if history:
        lines += ["", f"{'id':>6} {'after':>6} {'at (s)':>12}  event"]
        lines += [_event_line(event, execution.started_ms) for event in execution.history]
    return lines


def _path_text(names: list[str]) -> str:
    if len(names) > LONGEST_PATH:
        left_out = len(names) - LONGEST_PATH
        names = [*names[: LONGEST_PATH // 2], f"({left_out} more; --json has all)", *names[-LONGEST_PATH // 2 :]]
    return " → ".join(names)


def _event_line(event: Mapping[str, Any], from_ms: int) -> str:
    details = details_of(event)
    about = [str(details[name]) for name in ("name", "resourceType", "resource", "error") if name in details]
    at_s = (event["timestamp"] - from_ms) / 1000
    return f"{event['id']:>6} {event['previousEventId']:>6} {at_s:>12.3f}  {event['type']} {' '.join(about)}".rstrip()

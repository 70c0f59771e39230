"""What every benchmark shares: arguments, goals, tables, child processes, percentiles, and the usage of processes.

Invariants: a process ends with the block that started it; with `--json` the standard output is one JSON object.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from local.checkout import ROOT
from local.terminal import NO_TERMINAL_COLUMNS, UserError, align_table

T = TypeVar("T")
Row = dict[str, Any]
"""The figures of a table's row, by their names in the JSON."""
# A measured process that lasts longer than a function may live has hung.
LASTS_S = 900
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Goal:
    """One goal of one row; `limit_ms` and `measured_ms` are None if the goal is not a time."""

    policy: str
    goal: str
    limit_ms: float | None
    measured_ms: float | None
    met: bool

    @property
    def line(self) -> str:
        times = "" if self.limit_ms is None else f": {_ms(self.measured_ms)}, at most {_ms(self.limit_ms)}"
        return f"{'ok    ' if self.met else 'missed'}  {self.policy}: {self.goal}{times}"


def goal_at_most(policy: str, goal: str, limit_ms: float | None, measured_ms: float | None) -> Goal:
    """Return the goal of a time; it is missed if the time or its limit was not measured."""
    met = measured_ms is not None and limit_ms is not None and measured_ms <= limit_ms
    return Goal(policy, goal, limit_ms, measured_ms, met)


def goal_below(policy: str, goal: str, limit_ms: float, measured_ms: float | None) -> Goal:
    """Return the goal of a time that must be less than the limit."""
    return Goal(policy, goal, limit_ms, measured_ms, measured_ms is not None and measured_ms < limit_ms)


def goal_if(policy: str, goal: str, met: bool) -> Goal:
    """Return a goal that is not a time."""
    return Goal(policy, goal, None, None, met)


def _ms(value: float | None) -> str:
    return "nothing measured" if value is None else f"{value:g} ms"


def parse_options(argv: list[str] | None, doc: str | None, **known: tuple[Any, ...]) -> argparse.Namespace:
    """Return the arguments of the benchmark whose docstring begins with its command and its purpose.

    Each of `known` is a default and a meaning, and a type or a list of choices unless the default implies that.
    """
    command, _, words = (doc or "").partition("\n")[0].partition("`: ")
    parser = argparse.ArgumentParser(prog=command.removeprefix("`"), description=words[:1].upper() + words[1:])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    for name, (default, means, *read) in known.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true", help=means)
            continue
        is_several = isinstance(default, list | tuple)
        how: dict[str, Any] = {"type": type(default[0] if is_several else default)}
        if read:
            how = {"type": read[0]} if callable(read[0]) else {"choices": read[0], "metavar": name.upper()}
        shown = " ".join(map(str, default)) if is_several else default
        said = means if not shown and shown != 0 else f"{means} (default {shown})"
        parser.add_argument(flag, default=default, help=said, nargs="+" if is_several else None, **how)
    return parser.parse_args(argv)


def at_least(least: float) -> Callable[[str], float]:
    """Return a function that reads a number of at least `least` for argparse."""

    def number(text: str) -> float:
        value = float(text) if text.replace(".", "", 1).isdigit() and text.isascii() else -1.0
        if value < least:
            raise argparse.ArgumentTypeError(f"must be a number of at least {least:g}, not {text!r}")
        return int(value) if value == int(value) else value

    return number


def run(doc: str | None, measuring: Coroutine[Any, Any, T]) -> T:
    """Return what was measured; exits with 2 and a sentence if that fails."""
    try:
        return asyncio.run(measuring)
    except UserError as mistake:
        say(doc, str(mistake))
        raise SystemExit(2) from None


def say(doc: str | None, text: object) -> None:
    """Print a line of progress on standard error; a row as the table will show it."""
    name = (doc or "").partition("`: ")[0].removeprefix("`python -m ")
    shown = ", ".join(f"{key} {_cell(value)}" for key, value in text.items()) if isinstance(text, dict) else text
    print(f"{name}: {shown}", file=sys.stderr, flush=True)


def show(asked: argparse.Namespace, figures: Row, goals: Iterable[Goal] = (), *, judge: bool = True) -> int:
    """Print the figures and the goals; return 1 if one was missed, unless the status should not `judge` that.

    A list of rows is printed as a table, another figure as a line.
    """
    judged = list(goals)
    if asked.json:
        print(json.dumps(figures | ({"goals": [asdict(goal) for goal in judged]} if judged else {}), indent=1))
    else:
        print(*figure_lines(figures), *(goal.line for goal in judged), sep="\n")
    return int(judge and not all(goal.met for goal in judged))


def figure_lines(figures: Row) -> list[str]:
    lines = []
    for name, value in figures.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines += align_table(
                [list(value[0]), *([_cell(one) for one in row.values()] for row in value)], NO_TERMINAL_COLUMNS
            )
        else:
            lines.append(f"{name}: {_cell(value)}")
    return lines


def _cell(value: Any) -> str:
    match value:
        case {"count": count, "p50_ms": p50, "p99_ms": p99, "most_ms": most}:
            return f"{count}: {p50:g} / {p99:g} / {most:g}" if count else "0"
        case dict():
            return ", ".join(f"{name} {_cell(one)}" for name, one in value.items())
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        case None:
            return "-"
        case _:
            return str(value)


def summary(times_ms: Sequence[float]) -> Row:
    """Return the count and percentiles of several times, None if there are none.

    A percentile is the measured value at the nearest rank.
    """
    ordered = sorted(times_ms)

    def rank(share: float) -> float | None:
        return round(ordered[math.ceil(share * len(ordered)) - 1], 1) if ordered else None

    return {"count": len(ordered), "p50_ms": rank(0.5), "p99_ms": rank(0.99), "most_ms": rank(1)}


# --- processes --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def run_module(*command: str) -> Iterator[tuple[list[str], "subprocess.Popen[str]"]]:
    """Run a module that prints its ports; yield their addresses and its process, and end it afterwards.

    Ctrl-C reaches only this process. The standard input of the other one ends with this process.
    """
    running = subprocess.Popen(
        [sys.executable, "-m", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    assert running.stdin is not None
    assert running.stdout is not None
    try:
        yield [f"http://127.0.0.1:{port}" for port in running.stdout.readline().split()], running
    finally:
        running.terminate()
        running.wait()
        running.stdin.close()
        running.stdout.close()


@contextlib.contextmanager
def run_program(url: str, *command: str) -> Iterator[None]:
    """Run a program that prints nothing; begin once it answers at the address, and end it afterwards."""
    import urllib3  # the environment of bench.framing need not have it

    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        urllib3.request("GET", url, retries=urllib3.Retry(total=60, backoff_factor=0.05, backoff_max=1))
        yield
    finally:
        running.terminate()
        running.wait()


def figures_of(*command: str, variables: Mapping[str, str] | None = None) -> Any:
    """Run Python with these arguments in another process; return the JSON of the last line that it prints."""
    done = subprocess.run(
        [sys.executable, *command],
        env=variables,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        timeout=LASTS_S,
    )
    return json.loads(done.stdout.splitlines()[-1])


def python_of(name: str, lock: Path) -> Path:
    """Return the Python of an environment with the locked packages; it is made again when the lock changes."""
    folder = ROOT / ".streamkeeper-build" / name
    python, note = folder / "bin" / "python", folder / "installed.txt"
    if not note.is_file() or note.read_text() != lock.read_text():
        print(f"bench.{name}: installs {lock.relative_to(ROOT)} into {folder.relative_to(ROOT)}", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([*command, "-r", str(lock)], check=True)
        note.write_text(lock.read_text())
    return python


def descendants(of: int | None = None) -> list[int]:
    """Return the descendants of a process, by default this one, except those that end meanwhile.

    Source for all of these: proc(5).
    """
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
    below = [os.getpid() if of is None else of]
    for pid in below:
        below += [child for child, parent in parents.items() if parent == pid]
    return below[1:]


def function_processes() -> list[int]:
    """Return the processes of local functions among the descendants."""
    return [pid for pid in descendants() if "bootstrap.py" in command_of(pid)]


def command_of(pid: int) -> str:
    """Return the command line of a process, "" if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return ""


def spent_s(*pids: int) -> float:
    """Return the processor time of the processes, user and system, without their children."""
    return sum(sum(_times(pid)[:2]) for pid in pids) / _TICKS


def ended_spent_s(pid: int) -> float:
    """Return the processor time of the ended children of a process."""
    return sum(_times(pid)[2:]) / _TICKS


def _times(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return [int(fields[at]) for at in (11, 12, 13, 14)]
    return [0, 0, 0, 0]


def memory_mb(pids: Iterable[int]) -> list[float]:
    """Return the memory of each process; shared memory is divided among its users."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            found.append(sum(int(text.split()[1]) for text in lines if text.startswith("Pss:")) / 1024)
    return found


def resident_mb(pid: int | str = "self") -> float:
    """Return the largest resident memory of a process, only of its present program; getrusage counts earlier ones."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024

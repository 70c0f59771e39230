"""What every benchmark shares: its arguments, its processes, its goals, and how it prints what it has measured.

Invariants: what is started here ends with its block; with `--json` the standard output is one JSON object.
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import venv
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from local.checkout import ROOT
from local.user_error import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Goal:
    """One goal of one row; `limit_ms` and `measured_ms` are None where the goal is not a time."""

    policy: str
    goal: str
    limit_ms: float | None
    measured_ms: float | None
    met: bool

    @property
    def line(self) -> str:
        """The goal as a person reads it."""
        times = "" if self.limit_ms is None else f": {_ms(self.measured_ms)}, at most {_ms(self.limit_ms)}"
        return f"{'ok    ' if self.met else 'missed'}  {self.policy}: {self.goal}{times}"


def at_most(policy: str, goal: str, limit_ms: float | None, measured_ms: float | None) -> Goal:
    """Return the goal of a time; without a measurement, or where its limit was not measured, it is missed."""
    met = measured_ms is not None and limit_ms is not None and measured_ms <= limit_ms
    return Goal(policy, goal, limit_ms, measured_ms, met)


def below(policy: str, goal: str, limit_ms: float, measured_ms: float | None) -> Goal:
    """Return the goal of a time that must be less than the limit."""
    return Goal(policy, goal, limit_ms, measured_ms, measured_ms is not None and measured_ms < limit_ms)


def so(policy: str, goal: str, met: bool) -> Goal:
    """Return a goal that is no time."""
    return Goal(policy, goal, None, None, met)


def _ms(value: float | None) -> str:
    return "nothing measured" if value is None else f"{value:g} ms"


def options(argv: list[str] | None, doc: str | None, **known: tuple[Any, ...]) -> argparse.Namespace:
    """Return the arguments of the benchmark whose docstring begins with its command and what it measures.

    Each of `known` is its default and what it means, and how it is read where the default does not say: a type, or the
    choices there are.
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
        first = default[0] if is_several else default
        how: dict[str, Any] = {"type": type(first)}
        if read:
            how = {"type": read[0]} if callable(read[0]) else {"choices": read[0], "metavar": name.upper()}
        shown = " ".join(map(str, default)) if is_several else default
        said = means if not shown and shown != 0 else f"{means} (default {shown})"
        parser.add_argument(flag, default=default, help=said, nargs="+" if is_several else None, **how)
    return parser.parse_args(argv)


def at_least(least: float) -> Callable[[str], float]:
    """Return how a number is read that must not be smaller; argparse reports another text."""

    def number(text: str) -> float:
        value = float(text) if text.replace(".", "", 1).isdigit() and text.isascii() else -1.0
        if value < least:
            raise argparse.ArgumentTypeError(f"must be a number of at least {least:g}, not {text!r}")
        return int(value) if value == int(value) else value

    return number


def run(doc: str | None, measuring: Coroutine[Any, Any, T]) -> T:
    """Return what was measured; ends with 2 and a sentence where it cannot be."""
    try:
        return asyncio.run(measuring)
    except UserError as mistake:
        say(doc, str(mistake))
        raise SystemExit(2) from None


def say(doc: str | None, text: str) -> None:
    """Print a line beside the figures."""
    name = (doc or "").partition("`: ")[0].removeprefix("`python -m ")
    print(f"{name}: {text}", file=sys.stderr, flush=True)


def live(asked: argparse.Namespace, line: str) -> None:
    """Print a line of a table as soon as it is known; nothing where JSON is asked for."""
    if not asked.json:
        print(line, flush=True)


def show(
    asked: argparse.Namespace,
    figures: dict[str, Any],
    lines: Iterable[str],
    goals: Iterable[Goal] = (),
    *,
    judge: bool = True,
) -> int:
    """Print the figures and the goals; return 1 where one of these was missed and the status is to `judge` that."""
    judged = list(goals)
    if asked.json:
        print(json.dumps(figures | ({"goals": [asdict(goal) for goal in judged]} if judged else {}), indent=1))
    else:
        print(*lines, *(goal.line for goal in judged), sep="\n")
    return int(judge and not all(goal.met for goal in judged))


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> list[str]:
    """Return the lines of a table; the first `left` columns are aligned to the left, the others to the right."""
    cells = [list(heads), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(heads))]

    def line(row: list[str]) -> str:
        both = enumerate(zip(row, widths, strict=True))
        return "  ".join(cell.ljust(width) if at < left else cell.rjust(width) for at, (cell, width) in both).rstrip()

    return [line(row) for row in cells]


@contextlib.contextmanager
def process(*command: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a module that prints its port; yield its address and its process, and end it afterwards."""
    running = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    try:
        yield f"http://127.0.0.1:{running.stdout.readline().strip()}", running
    finally:
        running.terminate()
        running.wait()
        running.stdout.close()


def python_of(name: str, lock: Path) -> Path:
    """Return the Python of an environment with what the lock says, by its hashes; made again when the lock changed."""
    folder = ROOT / ".streamkeeper-build" / name
    python, note = folder / "bin" / "python", folder / "installed.txt"
    if not note.is_file() or note.read_text() != lock.read_text():
        print(f"bench.{name}: installs {lock.relative_to(ROOT)} into {folder.relative_to(ROOT)}", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([*command, "-r", str(lock)], check=True)
        note.write_text(lock.read_text())
    return python

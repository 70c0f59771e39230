"""The progress of chaos: one line on a terminal, a line now and then elsewhere, and a summary at Ctrl-C."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys

import pytest

from local.chaos.command import Progress
from tests.local.support import PROJECT


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def progress(stream: io.StringIO, seconds: list[float]) -> Progress:
    """Return the progress of a thousand schedules, with a clock that shows these seconds one after the other."""
    clock = iter(seconds)
    return Progress(1_000, stream, lambda: next(clock))


def test_a_line_comes_now_and_then_without_a_terminal() -> None:
    """Without a terminal a line with rate and remaining time comes every fifteen seconds."""
    said = io.StringIO()
    shown = progress(said, [0, 1, 15, 15, 16, 31, 31])
    for seed in range(4):
        shown.add(seed, ())
    assert said.getvalue().splitlines() == [
        "2 of 1,000 schedules, 0 a second, all kept the promise, 2.1 h left",
        "4 of 1,000 schedules, 0 a second, all kept the promise, 2.1 h left",
    ]


def test_a_terminal_has_one_line_that_is_rewritten() -> None:
    """On a terminal the line is rewritten five times a second, fits the terminal, and is removed at the end."""
    said = Screen()
    shown = progress(said, [0, 0.1, 4, 4, 4.1, 5, 5])
    for seed in range(4):
        shown.add(seed, ())
    shown.clear()
    lines = said.getvalue().split("\r\x1b[K")
    assert lines[0] == lines[-1] == ""
    assert [line.partition(",")[0] for line in lines[1:-1]] == ["2 of 1", "4 of 1"]
    assert all("\n" not in line and len(line) < 80 for line in lines)


def test_a_broken_rule_is_printed_at_once() -> None:
    """A broken rule is printed at once with the seed, and counted from then on."""
    said = io.StringIO()
    shown = progress(said, [0, 1, 2, 90])
    shown.add(7, ("lost",))
    shown.add(8, ("stuck", "lost"))
    assert said.getvalue() == ("The schedule of seed 7 broke: lost.\nThe schedule of seed 8 broke: lost, stuck.\n")
    assert shown.line() == "2 of 1,000 schedules, 0 a second, 2 broke the promise, 12.5 h left"


@pytest.mark.cpu(5)
@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_an_interrupt_prints_the_progress_and_how_to_go_on(jobs: str) -> None:
    """Ctrl-C prints the count of all processes and no traceback; standard output has only the last line."""
    primary, secondary = os.openpty()
    command = [sys.executable, "-m", "local.cli", "chaos", "--schedules", "100000", "--seed", "5", "--jobs", jobs]
    with subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=secondary, start_new_session=True, text=True
    ) as chaos:
        os.close(secondary)
        said = ""
        while "schedules" not in said:
            said += os.read(primary, 4096).decode()
        os.killpg(chaos.pid, signal.SIGINT)
        assert chaos.stdout is not None
        printed = chaos.stdout.read()
        with contextlib.suppress(OSError):  # Linux says so at the end of a terminal
            while part := os.read(primary, 4096):
                said += part.decode()
    os.close(primary)
    done = re.fullmatch(r"schedules (\d+) lost 0 .* executions \d+\n", printed)
    assert done is not None, printed
    count = int(done[1])
    more = " --jobs 2" if jobs == "2" else ""
    rest = f"Go on with: streamkeeper chaos --seed {5 + count} --schedules {100_000 - count}{more}"
    assert said.rstrip().rpartition("\r\x1b[K")[2] == rest
    assert ("Traceback" in said, chaos.returncode) == (False, 130)

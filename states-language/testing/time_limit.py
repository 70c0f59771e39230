"""A pytest plugin: every test has a time limit, and Ctrl-C reaches the processes that a test starts.

A test that takes longer than `--time-limit` seconds of real time fails where it stands; a `long` test has four times as
long. If it then waits for a process (as `with Popen(…)` does), the processes that it started are killed after GRACE_S.
The limit is no budget: it makes sure that a run ends.

A shell starts a script's background commands (`make test &`) with SIGINT ignored, and children would inherit that.
"""

import contextlib
import os
import signal
from collections.abc import Generator
from pathlib import Path
from types import FrameType

import pytest

LIMIT_S = 3600.0
LONG = 4
GRACE_S = 30.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--time-limit`."""
    parser.addoption("--time-limit", type=float, default=LIMIT_S, help="seconds of the clock that a test may take")


def pytest_configure() -> None:
    """Let SIGINT interrupt this process and all processes that it starts."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that takes too long."""
    limit_s: float = item.config.getoption("--time-limit")
    limit_s *= LONG if item.get_closest_marker("long") else 1
    calls = 0

    def too_long(_signal: int, _frame: FrameType | None) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            _kill_children()
            return
        pytest.fail(f"{item.nodeid} takes longer than {limit_s:g} s: what does it wait for?", pytrace=True)

    former = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, limit_s, GRACE_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def _kill_children() -> None:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == os.getpid():
                os.kill(int(stat.parent.name), signal.SIGKILL)

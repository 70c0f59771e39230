"""A pytest plugin: each test has a budget of CPU seconds, and the run's summary prints each test that exceeds it.

`@pytest.mark.cpu(seconds)` gives a test another budget than `DEFAULT_S`. A `long` test has none. `--cpu 10` prints the
ten dearest tests. The tests of the interpreter use this plugin, and so do those of the product beside it.

The CPU seconds are those of the process and of its reaped children. A fixture that several tests share (of a module or
a session) counts for none of them: its set-up and end count for the file in which they happen. The end of a process's
last test counts for the session, because services that all files shared are reaped there. Budgets are seconds of a
machine that makes ten million small additions in `REFERENCE_S`; on a slower machine they are longer.

Invariant: no test fails by its time alone, unless it takes `TOO_MUCH` times its budget; shared work never fails.
"""

import math
import resource
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

DEFAULT_S = 2.0
SHARED_S = 10.0
"""The budget of what the tests of a file share."""
SESSION, SESSION_S = "the end of a process", 60.0
TOO_MUCH = 3
REFERENCE_S = 0.54

_ADDITIONS = 10_000_000
_TRIES, _PART = 3, 40


@dataclass
class Spent:
    """The CPU seconds of a test, or of the work that a file's tests share, and its budget on this machine."""

    name: str
    spent_s: float
    budget_s: float
    is_shared: bool = False

    @property
    def line(self) -> str:
        """Return the line of the summary."""
        return f"{self.name}{' (shared)' if self.is_shared else ''} {self.spent_s:.1f} s of {self.budget_s:.1f} s"


def loop_s(additions: int = _ADDITIONS) -> float:
    """Return the CPU seconds of a loop of that many small additions."""
    begun_s, total = time.process_time(), 0
    for number in range(additions):
        total += number
    return time.process_time() - begun_s


def slowness() -> float:
    """Return how many times slower than the reference this machine is now; at least 1."""
    best_s = min(loop_s(_ADDITIONS // _PART) for _ in range(_TRIES))
    return max(1.0, best_s * _PART / REFERENCE_S)


def cpu_s() -> float:
    """Return the CPU seconds that this process and its reaped children have used."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


class Meter:
    """Measures the tests of one process."""

    def __init__(self) -> None:
        self.slowness = slowness()
        self.tests: list[Spent] = []
        self._files: dict[str, Spent] = {}
        self._shared_s = 0.0
        self._ended_s = 0.0
        self._depth = 0

    def all(self) -> list[Spent]:
        """Return all measurements of this process."""
        return [*self.tests, *self._files.values()]

    @contextmanager
    def _count_as_shared(self) -> Iterator[None]:
        """Count the CPU seconds of this context as shared; nested contexts count once."""
        begun_s, self._depth = cpu_s(), self._depth + 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._shared_s += cpu_s() - begun_s

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Measure a test from the set-up of its fixtures to their end."""
        begun_s, self._shared_s, self._ended_s = cpu_s(), 0.0, 0.0
        # pytest ends the fixtures of a test before it calls this, and those that are shared after it.
        item.teardown = self._note_teardown  # type: ignore[method-assign]
        try:
            return (yield)
        finally:
            ended_s = cpu_s()
            own_s = (self._ended_s or ended_s) - begun_s - self._shared_s
            self.tests.append(Spent(item.nodeid, own_s, _budget_s(item) * self.slowness))
            name, budget_s = (item.nodeid.partition("::")[0], SHARED_S) if nextitem else (SESSION, SESSION_S)
            shared = self._files.setdefault(name, Spent(name, 0, budget_s * self.slowness, is_shared=True))
            shared.spent_s += ended_s - begun_s - own_s

    def _note_teardown(self) -> None:
        self._ended_s = cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """Count the set-up of a shared fixture apart from the test."""
        if fixturedef.scope == "function":
            return (yield)
        with self._count_as_shared():
            return (yield)


def _budget_s(item: pytest.Item) -> float:
    mark = item.get_closest_marker("cpu")
    if mark is not None:
        return float(mark.args[0])
    return math.inf if item.get_closest_marker("long") else DEFAULT_S


class Report:
    """Gathers the measurements of a run's processes, and prints those over budget."""

    def __init__(self, meter: Meter, shown: int) -> None:
        self._meter, self._shown = meter, shown
        self._spent: list[Spent] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the measurements of a process of xdist."""
        self._spent += [Spent(*one) for one in getattr(node, "workeroutput", {}).get("cpu", [])]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Pass the measurements of this process on, or judge those of all processes."""
        if hasattr(session.config, "workeroutput"):
            measured = [(one.name, one.spent_s, one.budget_s, one.is_shared) for one in self._meter.all()]
            session.config.workeroutput["cpu"] = measured
            return
        self._spent += self._meter.all()
        if self.far_over_budget() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def over_budget(self) -> list[Spent]:
        """Return the measurements over their budget, the dearest first."""
        over = [one for one in self._spent if one.spent_s > one.budget_s]
        return sorted(over, key=lambda one: -one.spent_s)

    def far_over_budget(self) -> list[Spent]:
        """Return the measurements that fail the run."""
        return [one for one in self.over_budget() if not one.is_shared and one.spent_s > TOO_MUCH * one.budget_s]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print each measurement over its budget, and as many of the dearest as `--cpu` requests."""
        if self._shown:
            total_s = sum(one.spent_s for one in self._spent)
            terminalreporter.write_sep("=", f"CPU: {total_s:.1f} s in tests, the dearest {self._shown}")
            for one in sorted(self._spent, key=lambda one: -one.spent_s)[: self._shown]:
                terminalreporter.write_line(one.line)
        too_dear = self.far_over_budget()
        for one in self.over_budget():
            word, color = ("FAR OVER BUDGET", {"red": True}) if one in too_dear else ("OVER BUDGET", {"yellow": True})
            terminalreporter.write_line(f"{word} {one.line}", **color)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--cpu`."""
    parser.addoption("--cpu", type=int, default=0, metavar="N", help="print the N tests that take most CPU seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Measure in each process."""
    config.addinivalue_line("markers", "cpu(seconds): how much CPU the test may take, 2 s where it is not marked")
    meter = Meter()
    config.pluginmanager.register(meter)
    config.pluginmanager.register(Report(meter, config.option.cpu))

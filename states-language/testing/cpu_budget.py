"""A pytest plugin: each test has a budget of CPU seconds, and one that passes it is printed at the end of the run.

`@pytest.mark.cpu(seconds)` gives a test another budget than `DEFAULT_S`, a `long` test has none, and `--cpu 10` prints
the ten dearest. The tests of the interpreter use it, and those of the product beside it.

The CPU is that of the process and of its children that were reaped. A fixture that several tests share (of a module, a
session) belongs to none of them: its set-up and its end count for the file in which they happen, and what ends with the
last test of a process for the session: a service that all its files shared is reaped there. Budgets are seconds of a
machine that makes ten million small additions in `REFERENCE_S`; a slower one has more.

Invariant: no test fails by its time alone, unless it takes `TOO_MUCH` times its budget; what is shared never fails.
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
    """The CPU seconds of a test, or of what the tests of a file share, and its budget; both as measured here."""

    name: str
    spent_s: float
    budget_s: float
    is_shared: bool = False

    @property
    def line(self) -> str:
        """One line of the summary."""
        return f"{self.name}{' (shared)' if self.is_shared else ''} {self.spent_s:.1f} s of {self.budget_s:.1f} s"


def loop_s(additions: int = _ADDITIONS) -> float:
    """Return the CPU seconds of a loop of that many small additions."""
    begun_s, total = time.process_time(), 0
    for number in range(additions):
        total += number
    return time.process_time() - begun_s


def slowness() -> float:
    """Return how many times as slow as the reference this machine is at the moment, and 1 where it is quicker."""
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
        """What was measured."""
        return [*self.tests, *self._files.values()]

    @contextmanager
    def _sharing(self) -> Iterator[None]:
        """Counts what happens inside as shared; within another, once."""
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
        """Measures a test from the set-up of its fixtures to their end."""
        begun_s, self._shared_s, self._ended_s = cpu_s(), 0.0, 0.0
        # pytest ends the fixtures of a test before it calls this, and those that are shared after it.
        item.teardown = self._ends  # type: ignore[method-assign]
        try:
            return (yield)
        finally:
            ended_s = cpu_s()
            own_s = (self._ended_s or ended_s) - begun_s - self._shared_s
            self.tests.append(Spent(item.nodeid, own_s, _budget_s(item) * self.slowness))
            name, budget_s = (item.nodeid.partition("::")[0], SHARED_S) if nextitem else (SESSION, SESSION_S)
            shared = self._files.setdefault(name, Spent(name, 0, budget_s * self.slowness, is_shared=True))
            shared.spent_s += ended_s - begun_s - own_s

    def _ends(self) -> None:
        self._ended_s = cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """Counts the set-up of a fixture of several tests apart."""
        if fixturedef.scope == "function":
            return (yield)
        with self._sharing():
            return (yield)


def _budget_s(item: pytest.Item) -> float:
    mark = item.get_closest_marker("cpu")
    if mark is not None:
        return float(mark.args[0])
    return math.inf if item.get_closest_marker("long") else DEFAULT_S


class Report:
    """Gathers what the processes of a run have measured, and prints it where there is something to say."""

    def __init__(self, meter: Meter, shown: int) -> None:
        self._meter, self._shown = meter, shown
        self._spent: list[Spent] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes the measurements of a process of xdist."""
        self._spent += [Spent(*one) for one in getattr(node, "workeroutput", {}).get("cpu", [])]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hands the measurements of this process over, or judges those of all."""
        if hasattr(session.config, "workeroutput"):
            measured = [(one.name, one.spent_s, one.budget_s, one.is_shared) for one in self._meter.all()]
            session.config.workeroutput["cpu"] = measured
            return
        self._spent += self._meter.all()
        if self.too_dear() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def over(self) -> list[Spent]:
        """Those that have passed their budget, the dearest first."""
        over = [one for one in self._spent if one.spent_s > one.budget_s]
        return sorted(over, key=lambda one: -one.spent_s)

    def too_dear(self) -> list[Spent]:
        """Those for which the run fails."""
        return [one for one in self.over() if not one.is_shared and one.spent_s > TOO_MUCH * one.budget_s]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints each that has passed its budget, and as many of the dearest as `--cpu` asks for."""
        if self._shown:
            total_s = sum(one.spent_s for one in self._spent)
            terminalreporter.write_sep("=", f"CPU: {total_s:.1f} s in tests, the dearest {self._shown}")
            for one in sorted(self._spent, key=lambda one: -one.spent_s)[: self._shown]:
                terminalreporter.write_line(one.line)
        too_dear = self.too_dear()
        for one in self.over():
            word, color = ("FAR OVER BUDGET", {"red": True}) if one in too_dear else ("OVER BUDGET", {"yellow": True})
            terminalreporter.write_line(f"{word} {one.line}", **color)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option."""
    parser.addoption("--cpu", type=int, default=0, metavar="N", help="print the N tests that take most CPU seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Measures in each process."""
    config.addinivalue_line("markers", "cpu(seconds): how much CPU the test may take, 2 s where it is not marked")
    meter = Meter()
    config.pluginmanager.register(meter)
    config.pluginmanager.register(Report(meter, config.option.cpu))

"""Each test has a budget of CPU seconds (`states-language/testing/cpu_budget.py`)."""

import subprocess
import sys
from pathlib import Path

from cpu_budget import Meter, Report, Spent, slowness
from local.stages import ROOT
from tests.local.support import environment

TESTS = """
import pytest

@pytest.fixture(scope="module")
def shared():
    return sum(range(300_000))

@pytest.mark.cpu(0)
def test_dear(shared):
    assert sum(range(100_000))

@pytest.mark.cpu(100)
def test_cheap(shared):
    assert True

@pytest.mark.long
def test_long():
    assert sum(range(300_000))
"""


def test_a_test_over_its_budget_is_printed_and_fails_at_thrice(tmp_path: Path) -> None:
    """The budget of 0 is exceeded by far. A fixture of two tests counts for their file, the end for its process."""
    (tmp_path / "test_one.py").write_text(TESTS)
    own = environment(
        PYTHONPATH=str(ROOT / "states-language" / "testing"),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
        PYTEST_PLUGINS="xdist.plugin",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "cpu_budget", "-p", "no:cacheprovider", "-n1", "--cpu=9"]
    command += ["-o", "markers=long"]
    done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=60, check=False)
    over = [line for line in done.stdout.splitlines() if "OVER BUDGET" in line]
    assert [line.split("::")[0] for line in over] == ["FAR OVER BUDGET test_one.py"], done.stdout
    assert (over[0].split()[3], done.returncode) == ("test_one.py::test_dear", 1)
    assert "\ntest_one.py (shared) " in done.stdout
    assert "\nthe end of a process (shared) " in done.stdout
    assert "3 passed" in done.stdout


def test_only_a_test_far_over_its_budget_fails_and_shared_work_never() -> None:
    """Up to thrice its budget a test is only printed; shared work is printed, however long it takes."""
    report = Report(Meter(), 0)
    report._spent = [Spent("a", 2.0, 2.0), Spent("b", 2.1, 2.0), Spent("c", 6.1, 2.0), Spent("d", 99, 1.0, True)]
    assert [one.name for one in report.over_budget()] == ["d", "c", "b"]
    assert [one.name for one in report.far_over_budget()] == ["c"]
    assert report.over_budget()[2].line == "b 2.1 s of 2.0 s"


def test_a_quick_machine_has_no_smaller_budget() -> None:
    """The budgets are those of the reference machine; a slower machine has more, a faster one the same."""
    assert slowness() >= 1

"""Each test has a budget of CPU seconds, and a run of tests ends: in the background of a script, or if a test hangs."""

import subprocess
import sys
from pathlib import Path

from cpu_budget import Meter, Report, Spent, slowness
from local.checkout import ROOT
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


ENDLESS = """
import signal, subprocess

def test_interrupts():
    with subprocess.Popen(["sleep", "600"]) as child:
        child.send_signal(signal.SIGINT)
        assert child.wait() == -signal.SIGINT

def test_waits():
    with subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
"""


def test_a_test_that_waits_for_ever_fails_and_a_child_can_be_interrupted(tmp_path: Path) -> None:
    """This holds in a run that a shell has started with SIGINT ignored; the child that the test waits for is killed."""
    (tmp_path / "test_one.py").write_text(ENDLESS)
    (tmp_path / "quick.py").write_text("import time_limit\ntime_limit.GRACE_S = 1\n")
    script = 'trap "" INT; exec "$@"'
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", ".", "-p", "no:cacheprovider"]
    command += ["-p", "time_limit", "-p", "quick", "--time-limit", "2", "test_one.py"]
    paths = environment(
        PYTHONPATH=f"{ROOT / 'states-language' / 'testing'}:{tmp_path}", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"
    )
    done = subprocess.run(
        ["bash", "-c", script, "bash", *command], cwd=tmp_path, env=paths, capture_output=True, text=True, timeout=300
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "test_waits takes longer than 2 s: what does it wait for?" in done.stdout

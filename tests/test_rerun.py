"""`--rerun-alone` forgives a test that passes alone, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from local.stages import ROOT
from tests.examples import one_in
from tests.local.support import environment

BESIDE = """
import os
from pathlib import Path
import pytest

def fails_once(name):
    Path(name).touch() if (is_first := not Path(name).exists()) else None
    assert not is_first, "beside others"
"""
ONCE = "def test_one():\n    fails_once('one')\n"
ONCE_IN_A_FIXTURE = """
@pytest.fixture
def late():
    yield
    fails_once("late")

def test_late(late):
    pass
"""
TWICE = "def test_one():\n    assert False\n"
MANY = "@pytest.mark.parametrize('n', range(6))\ndef test_one(n):\n    fails_once(str(n))\n"
BROKEN = "import nosuch\n"
CRASHED = "def test_one():\n    if not Path('one').exists():\n        Path('one').touch()\n        os._exit(3)\n"


# Without what takes a second to import: `REFUSED` says what the whole suite's has found out.
BARE = """
import os
from tests import rerun

def pytest_addoption(parser):
    parser.addoption("--rerun-alone", action="store_true")

def pytest_terminal_summary(terminalreporter, config):
    if config.option.rerun_alone:
        rerun.rerun(terminalreporter._session, terminalreporter, os.environ.get("REFUSED", "").split())
"""


def run(folder: Path, *files: str, refused: str = "") -> tuple[int, str]:
    """Returns the exit status and the output of a run of these files, and of a file with a test that passes.

    Another process runs them if a test ends its own.
    """
    (folder / "conftest.py").write_text(BARE)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -m 'not long' -ra\nmarkers = long\n")
    for number, text in enumerate((*files, "def test_other():\n    pass\n")):
        (folder / f"test_{number}.py").write_text(BESIDE + text)
    own = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin", "REFUSED": refused}
    processes = "1" if any("os._exit" in text or "getppid" in text for text in files) else "0"
    command = [sys.executable, "-m", "pytest", "-q", "-n", processes, "-p", "no:cacheprovider", "--rerun-alone"]
    done = subprocess.run(
        command, cwd=folder, env=environment(PYTHONPATH=str(ROOT), **own), capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_a_test_that_passes_alone_is_forgiven_and_named(tmp_path: Path) -> None:
    """A failed test is forgiven, and one whose fixture failed at its end; the last line counts them."""
    status, said = run(tmp_path, ONCE, ONCE_IN_A_FIXTURE)
    assert status == 0, said
    assert [line for line in said.splitlines() if line.startswith("UNSTABLE")] == [
        "UNSTABLE test_0.py::test_one failed beside others and passed alone",
        "UNSTABLE test_1.py::test_late failed beside others and passed alone",
    ]
    assert "2 passed, 2 passed alone in" in said.splitlines()[-1]
    assert "AssertionError: beside others" in said


@pytest.mark.parametrize(
    "files",
    one_in(4, [((ONCE, TWICE),), ((MANY,),), ((ONCE, BROKEN),), ((CRASHED,),)]),
    ids=["one of two fails twice", "too many", "a file that cannot be read", "a process broke down"],
)
def test_no_other_failure_is_forgiven(tmp_path: Path, files: tuple[str, ...]) -> None:
    """With another kind of failure the run fails, and its last line says so."""
    status, said = run(tmp_path, *files)
    assert (status != 0, "UNSTABLE" in said) == (True, False), said
    assert "failed" in said.splitlines()[-1] or "error" in said.splitlines()[-1]


@pytest.mark.long
def test_an_interrupted_run_is_not_forgiven(tmp_path: Path) -> None:
    """After an interrupt no failed test runs again, and the status is that of an interrupt."""
    interrupted = "import signal\n\ndef test_last():\n    os.kill(os.getppid(), signal.SIGINT)\n    signal.pause()\n"
    status, said = run(tmp_path, ONCE, interrupted)
    assert (status, "UNSTABLE" in said, "running alone" in said) == (2, False, False), said


def test_a_refused_request_is_not_forgiven(tmp_path: Path) -> None:
    """If a request was refused, no test runs again, even one that would pass alone."""
    status, said = run(tmp_path, ONCE, refused="s3:GetObject")
    assert (status, "UNSTABLE" in said, "running alone" in said) == (1, False, False), said

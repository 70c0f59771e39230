"""A run of tests ends: in the background of a script, and if a test waits for ever."""

import subprocess
import sys
from pathlib import Path

from local.checkout import ROOT
from tests.local.support import environment

TESTS = """
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
    (tmp_path / "test_one.py").write_text(TESTS)
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

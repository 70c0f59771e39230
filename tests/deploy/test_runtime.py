"""What ships does under the runtime's Python what its tests say, on whichever Python this suite runs."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from local.stages import ROOT

SCRIPT = ROOT / "tests" / "deploy" / "runtime" / "run-tests.cjs"
# The rooms without sockets, threads and processes, which WebAssembly has not.
ROOMS = ("framing", "profile", "connection")


@pytest.mark.long
def test_the_rooms_without_effects_pass_their_tests_under_the_runtimes_python(package: Path) -> None:
    """All tests of framings, profiles and connections pass with the sources and compiled files of the zip.

    Without those that measure time: WebAssembly has costs of its own.
    """
    node = shutil.which("node")
    assert node is not None
    tests = [f"tests/handlers/{room}" for room in ROOMS]
    command = [node, str(SCRIPT), str(package / "streamkeeper.zip"), str(ROOT), sysconfig.get_path("purelib")]
    run = subprocess.run(
        [*command, "-k", "not linear_time", *tests], cwd=ROOT, capture_output=True, text=True, check=False
    )
    summary = run.stdout.strip().splitlines()[-1]
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.fullmatch(r"\d{3,} passed, \d deselected in .*", summary), summary

"""The shipped code passes its tests with the runtime's Python, whichever Python runs the other tests."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from local.stages import ROOT
from tests.local.support import environment

RUNTIME = "3.13"


def runtime_python() -> str:
    """Return the interpreter of the runtime's version; "" if there is none, or if it runs these tests."""
    program = shutil.which(f"python{RUNTIME}")
    if program is None or sys.version_info[:2] == tuple(int(part) for part in RUNTIME.split(".")):
        return ""
    # Where pyenv has several versions, its program of this name asks for one.
    asked = subprocess.run(
        [program, "-c", "import sys; print(sys.executable)"], env=os.environ | {"PYENV_VERSION": RUNTIME},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return asked.stdout.strip() if asked.returncode == 0 else ""


if PYTHON := runtime_python():

    @pytest.mark.long
    def test_all_that_ships_passes_its_tests_under_the_runtimes_python() -> None:
        """All tests of handlers/ run, if this machine has that Python."""
        venv = f".venv-{RUNTIME}"
        make = ["make", "--silent", f"{venv}/.installed", f"PYTHON={PYTHON}", f"VENV={venv}"]
        made = subprocess.run(make, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
        command = [f"{venv}/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/handlers"]
        run = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        assert re.fullmatch(r"\d{4,} passed.*", run.stdout.strip().splitlines()[-1]), run.stdout

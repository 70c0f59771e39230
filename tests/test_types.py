"""The types of all modules, checked beside the other tests: alone they would keep one core busy and the others idle."""

import os
import subprocess
import sys

import pytest

from local.checkout import ROOT


@pytest.mark.cpu(15)
def test_mypy_finds_nothing() -> None:
    """mypy, as in `make check`, finds no mistake under the strict rules of pyproject.toml."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary"]
    if os.environ.get("CI", "") not in ("", "0", "false"):
        command += ["--cache-dir", os.devnull]  # nobody reads it there, and to write it takes a seventh of the time
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr

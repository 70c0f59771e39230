"""The types of all modules, checked beside the other tests: alone they would keep one core busy and the others idle."""

import subprocess
import sys

from local.checkout import ROOT


def test_mypy_finds_nothing() -> None:
    """What `make check` says, under the strict rules of pyproject.toml."""
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary"], cwd=ROOT, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr

"""`make setup` says in one sentence which tool the machine lacks."""

import shutil
import subprocess
import sys
from pathlib import Path

from local.stages import ROOT

CHECK = str(ROOT / "packaging" / "check-tools.sh")
PYTHON = "Python 3.11 or later is needed as {}: install it, or name another with PYTHON=python3.12 make setup.\n"
NODE = "Node 20 or later is needed as node: install it and try again.\n"
NPM = "npm is needed: it comes with Node, install it and try again.\n"


def check(python: str, path: str | None = None) -> tuple[int, str]:
    """Return exit status and output of the check."""
    environment = None if path is None else {"PATH": path}
    run = subprocess.run([CHECK, python], env=environment, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout + run.stderr


def test_a_machine_with_everything_passes_in_silence() -> None:
    """The check prints nothing if nothing is missing."""
    assert check(sys.executable) == (0, "")


def test_a_python_that_is_missing_or_old_is_named(tmp_path: Path) -> None:
    """A missing Python and one that is too old get the same sentence."""
    assert check("python-that-is-not") == (2, PYTHON.format("python-that-is-not"))
    old = tmp_path / "python3.10"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    assert check(str(old)) == (2, PYTHON.format(old))


def test_a_missing_node_or_npm_is_named(tmp_path: Path) -> None:
    """The sentence says whether Node or only npm is missing."""
    assert check(sys.executable, str(tmp_path)) == (2, NODE)
    (tmp_path / "node").symlink_to(Path(str(shutil.which("node"))).resolve())
    assert check(sys.executable, str(tmp_path)) == (2, NPM)

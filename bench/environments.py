"""Makes an environment of its own for what a benchmark compares with, which is no dependency of the product.

Invariant: what is installed there is what the lock says, by its hashes.
"""

import subprocess
import sys
import venv
from pathlib import Path

from local.stages import ROOT


def python_of(name: str, lock: Path) -> Path:
    """Return the Python of the environment, which is made again when the lock has changed."""
    folder = ROOT / ".streamkeeper-build" / name
    python, note = folder / "bin" / "python", folder / "installed.txt"
    if not note.is_file() or note.read_text() != lock.read_text():
        print(f"bench.{name}: installs {lock.relative_to(ROOT)} into {folder.relative_to(ROOT)}", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([*command, "-r", str(lock)], check=True)
        note.write_text(lock.read_text())
    return python

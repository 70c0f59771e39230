"""`python -m bench.coldstart`: measures the CPU from a process's start to the first byte of the stream.

Each start is a process of its own, the start of Python included. `ours` is the connection manager: its import, the
claim, the cursor, and the stream up to the first chunk. `peer` is the plain handler: its imports and client (boto3,
powertools, urllib3), and the stream at once. The least of several starts counts, for other work on the machine can
only add.
"""

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.harness import Goal, options, process, show, table
from bench.ingest import PROFILE, environment
from local.checkout import ROOT

KINDS = ("bare", "ours", "peer")
GOAL_MS = 130


def start(kind: str, variables: dict[str, str]) -> float:
    """Return the CPU milliseconds of one start."""
    # Without `site`: a function's packages lie on its path, and no .pth file of an installation is read.
    command = [sys.executable, "-S", "-m", "bench.starters", kind]
    done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True, cwd=ROOT)
    return float(done.stdout.splitlines()[-1])


def measure(times: int, uncompiled_times: int) -> dict[str, Any]:
    """Return the least of `times` starts of each kind, and of `uncompiled_times` without .pyc files (0: none)."""
    packages = Path(str(find_spec("urllib3").origin)).parent.parent  # type: ignore[union-attr]
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        process("bench.tables") as (endpoint, _),
        process("bench.source", "--events=1") as (upstream, _),
    ):
        (Path(folder) / "bench.toml").write_text(PROFILE)
        variables = environment(Path(folder), endpoint, upstream, 1, 200)
        variables |= {"PYTHONPATH": os.pathsep.join([str(ROOT), str(packages)]), "PYTHONNOUSERSITE": "1"}
        figures = {f"{kind}_ms": _least(kind, variables, times) for kind in KINDS}
        if uncompiled_times:
            nowhere = {"PYTHONPYCACHEPREFIX": folder + "/none", "PYTHONDONTWRITEBYTECODE": "1"}
            for kind in ("ours", "peer"):
                figures[f"{kind}_uncompiled_ms"] = _least(kind, variables | nowhere, uncompiled_times)
    return figures | {"ratio": round(figures["peer_ms"] / figures["ours_ms"], 2), "goal_ms": GOAL_MS}


def _least(kind: str, variables: dict[str, str], times: int) -> float:
    start(kind, variables)  # the first one may compile, and brings the files into memory
    return round(min(start(kind, variables) for _ in range(times)), 1)


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0."""
    asked = options(
        argv, __doc__, times=(9, "how many starts of each"),
        uncompiled_times=(2, "the same without .pyc files"),
    )  # fmt: skip
    figures = measure(asked.times, asked.uncompiled_times)
    rows: list[tuple[object, ...]] = [("compiled", figures["ours_ms"], figures["peer_ms"], figures["ratio"])]
    if asked.uncompiled_times:
        ours, peer = figures["ours_uncompiled_ms"], figures["peer_uncompiled_ms"]
        rows.append(("without compiled files", ours, peer, round(peer / ours, 2)))
    lines = table(
        ("CPU ms to the first byte", "ours", "peer", "ratio"), [*rows, ("Python", figures["bare_ms"], "", "")]
    )
    goal = Goal("ours", "CPU to the first byte", GOAL_MS, figures["ours_ms"], figures["ours_ms"] <= GOAL_MS)
    return show(asked, {"times": asked.times, **figures}, lines, [goal], judge=False)


if __name__ == "__main__":
    sys.exit(main())

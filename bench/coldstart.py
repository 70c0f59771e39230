"""`python -m bench.coldstart`: measures the CPU from a process's start to the first byte of the stream.

Each start is a process of its own, the start of Python included. `ours` is the connection manager: its import, the
claim, the cursor, and the stream up to the first chunk. `peer` is the plain handler: its imports and client (boto3,
powertools, urllib3), and the stream at once. The least of several starts counts, for other work on the machine can
only add.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.ingest import PROFILE, environment, process

KINDS = ("bare", "ours", "peer")
GOAL_MS = 130
ROOT = Path(__file__).parent.parent


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
    parser = argparse.ArgumentParser(prog="python -m bench.coldstart", description="Measures the CPU of a cold start.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--times", type=int, default=9, help="how many starts of each (default 9)")
    parser.add_argument("--uncompiled-times", type=int, default=2, help="the same without .pyc files (default 2)")
    options = parser.parse_args(argv)
    figures = measure(options.times, options.uncompiled_times)
    if options.json:
        print(json.dumps({"times": options.times, **figures}, indent=1))
        return 0
    print(f"{'CPU ms to the first byte':<28}{'ours':>8}{'peer':>8}{'ratio':>8}")
    print(f"{'compiled':<28}{figures['ours_ms']:>8.1f}{figures['peer_ms']:>8.1f}{figures['ratio']:>8.2f}")
    if options.uncompiled_times:
        ours, peer = figures["ours_uncompiled_ms"], figures["peer_uncompiled_ms"]
        print(f"{'without compiled files':<28}{ours:>8.1f}{peer:>8.1f}{peer / ours:>8.2f}")
    print(f"{'the interpreter alone':<28}{figures['bare_ms']:>8.1f}")
    verdict = "ok" if figures["ours_ms"] <= GOAL_MS else "missed"
    print(f"goal: {GOAL_MS} ms or less: {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

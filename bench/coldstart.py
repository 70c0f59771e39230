"""`python -m bench.coldstart`: CPU from a process's start to the first byte of the stream, ours beside the plain one.

Decides how often each is started and what is reported. Each start is a process of its own, with the interpreter's own
start in it. `ours` is the connection manager from its import through claim and cursor to the first chunk that it has
read; `peer` the plain handler's imports and client (boto3, powertools, urllib3), with nothing asked before it opens the
stream. The least of the starts is reported: what else the machine does can only add.
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
    """CPU milliseconds of one start."""
    # Without `site`: a function's packages lie on its path, and no .pth file of an installation is read.
    command = [sys.executable, "-S", "-m", "bench.starters", kind]
    done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True, cwd=ROOT)
    return float(done.stdout.splitlines()[-1])


def measure(times: int, uncompiled_times: int) -> dict[str, Any]:
    """The least of `times` starts of each kind, and of `uncompiled_times` without compiled files (0: not measured)."""
    packages = Path(str(find_spec("urllib3").origin)).parent.parent  # type: ignore[union-attr]
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        process("bench.endpoint") as (endpoint, _),
        process("bench.source", "--events=1") as (upstream, _),
    ):
        (Path(folder) / "bench.toml").write_text(PROFILE)
        variables = environment(Path(folder), endpoint, upstream, 1, 200)
        variables |= {"PYTHONPATH": os.pathsep.join([str(ROOT), str(packages)]), "PYTHONNOUSERSITE": "1"}
        found = {f"{kind}_ms": _least(kind, variables, times) for kind in KINDS}
        if uncompiled_times:
            nowhere = {"PYTHONPYCACHEPREFIX": folder + "/none", "PYTHONDONTWRITEBYTECODE": "1"}
            for kind in ("ours", "peer"):
                found[f"{kind}_uncompiled_ms"] = _least(kind, variables | nowhere, uncompiled_times)
    return found | {"ratio": round(found["peer_ms"] / found["ours_ms"], 2), "goal_ms": GOAL_MS}


def _least(kind: str, variables: dict[str, str], times: int) -> float:
    start(kind, variables)  # the first one may have to compile, and brings the files into memory
    return round(min(start(kind, variables) for _ in range(times)), 1)


def main(argv: list[str] | None = None) -> int:
    """Returns 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.coldstart", description="Measures the CPU of a cold start.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--times", type=int, default=9, help="how many starts of each (default 9)")
    parser.add_argument("--uncompiled-times", type=int, default=2, help="the same without .pyc files (default 2)")
    wanted = parser.parse_args(argv)
    found = measure(wanted.times, wanted.uncompiled_times)
    if wanted.json:
        print(json.dumps({"times": wanted.times, **found}, indent=1))
        return 0
    print(f"{'CPU ms to the first byte':<28}{'ours':>8}{'peer':>8}{'ratio':>8}")
    print(f"{'compiled':<28}{found['ours_ms']:>8.1f}{found['peer_ms']:>8.1f}{found['ratio']:>8.2f}")
    if wanted.uncompiled_times:
        ours, peer = found["ours_uncompiled_ms"], found["peer_uncompiled_ms"]
        print(f"{'without compiled files':<28}{ours:>8.1f}{peer:>8.1f}{peer / ours:>8.2f}")
    print(f"{'the interpreter alone':<28}{found['bare_ms']:>8.1f}")
    verdict = "ok" if found["ours_ms"] <= GOAL_MS else "missed"
    print(f"goal: {GOAL_MS} ms or less: {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

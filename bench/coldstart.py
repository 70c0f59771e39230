"""`python -m bench.coldstart`: measures the CPU from a process's start to the first byte of the stream.

Each start is a separate process and includes the start of Python. `ours` is the connection manager: its import, the
claim, the cursor, and the stream up to the first chunk. `peer` is the plain handler: its imports and client (boto3,
powertools, urllib3), and the stream without claim and cursor. The least of several starts counts, because other work
on the machine can only add to it.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from bench.harness import Row, figures_of, goal_at_most, parse_options, show
from bench.ingest import run_beside
from bench.upstreams import Plan
from local.checkout import ROOT

KINDS = ("bare", "ours", "peer")
GOAL_MS = 130


def start(kind: str, variables: dict[str, str]) -> float:
    """Return the CPU milliseconds of one start."""
    # Without `site`: a function's packages are on its path, and it reads no .pth file of an installation.
    return float(figures_of("-S", "-m", "bench.consumers", f"{kind}-start", variables=variables))


def measure(times: int, uncompiled_times: int) -> list[Row]:
    """Return the least of `times` starts of each kind, and of `uncompiled_times` without .pyc files (0: none)."""
    packages = Path(str(find_spec("urllib3").origin)).parent.parent  # type: ignore[union-attr]
    with run_beside("ours", Plan({"fixed": 1}, events_per_s=0, events=1)) as (variables, _):
        variables |= {"PYTHONPATH": os.pathsep.join([str(ROOT), str(packages)]), "PYTHONNOUSERSITE": "1"}
        nowhere = {"PYTHONPYCACHEPREFIX": variables["STREAMS_DIR"] + "/none", "PYTHONDONTWRITEBYTECODE": "1"}
        rows = []
        for name, count, more in (("compiled", times, {}), ("without .pyc files", uncompiled_times, nowhere)):
            if count:
                least = {f"{kind}_ms": _least(kind, variables | more, count) for kind in KINDS}
                rows.append({"start": name} | least | {"ratio": round(least["peer_ms"] / least["ours_ms"], 2)})
        return rows


def _least(kind: str, variables: dict[str, str], times: int) -> float:
    start(kind, variables)  # the first one may compile, and reads the files into memory
    return round(min(start(kind, variables) for _ in range(times)), 1)


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0."""
    asked = parse_options(
        argv, __doc__, times=(9, "how many starts of each"), uncompiled_times=(2, "the same without .pyc files")
    )
    rows = measure(asked.times, asked.uncompiled_times)
    goal = goal_at_most("ours", "CPU to the first byte", GOAL_MS, rows[0]["ours_ms"])
    return show(asked, {"times": asked.times, "goal_ms": GOAL_MS, "rows": rows}, [goal], judge=False)


if __name__ == "__main__":
    sys.exit(main())

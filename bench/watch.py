"""`python -m bench.watch`: measures how many streams the watch and a page of the list hold within their limits.

It fills the control table of the deployed template in the embedded database with streams that were ever started, of
which some are held, and runs one look of the watch and one page of the list on them, in a process of its own with the
deployed client. Beside them stands the plain way, a GetItem for each stream that was ever started, on a part of them.
Requests and read units are counted as sent and as the database bills them, which follows DynamoDB's rules.

How long a look takes on AWS is computed from these counts: the latencies below, stated and not measured here, and the
processor time that was measured here, on the share of a processor that Lambda gives to the function's memory. What a
look needs in memory is the largest resident set of that process, also where every stream is away.
"""

import json
import subprocess
import sys
from typing import Any

from bench.harness import options, say, show
from bench.watch_table import database, fill
from handlers.watching.lease_rounds import AT_ONCE
from local.service import osls

# Amazon's words for an item are "consistent single-digit millisecond latency" (DynamoDB, features). A batch is as slow
# as the slowest of its hundred items, and a page of the index has a megabyte: we take several times as much.
BATCH_MS, PAGE_MS, ITEM_MS = 40, 150, 5
# "At 1,769 MB, a function has the equivalent of one vCPU" (Lambda developer guide, "Configure function memory").
VCPU_MB = 1769
# How much slower than this machine's processor that may be.
SLOWER = 1.5
GOAL = 100_000


def measure(streams: int, held: int, sample: int) -> dict[str, Any]:
    """Return the figures of a look, of a page, and of the plain way, on a table with so many streams."""
    with database() as url:
        fill(url, streams, held)
        command = [sys.executable, "-m", "bench.watch_run", url, str(sample)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"streams": streams, "held": held, **figures}


def deployed() -> tuple[int, int]:
    """Return the watch's memory in MB and its time limit in seconds, from the template that is deployed."""
    (function,) = [
        resource["Properties"]
        for resource in osls.template("test")["Resources"].values()
        if resource["Type"] == "AWS::Lambda::Function" and "watch" in resource["Properties"]["Handler"]
    ]
    return int(function["MemorySize"]), int(function["Timeout"])


def capacity(figures: dict[str, Any], memory_mb: int) -> dict[str, Any]:
    """Return how many held streams one look reaches in its time, and how many the plain way reached."""
    look, plain, held = figures["look"], figures["plain"], figures["held"]
    look_s = figures["look_s"]
    share = min(1.0, memory_mb / VCPU_MB)

    def ms_a_stream(requests_ms: float, cpu_ms: float) -> float:
        # Python uses one processor: while it computes no answer is read.
        return requests_ms + cpu_ms * SLOWER / share

    batches, pages = look["requests"]["batch_get_item"], look["requests"]["query"]
    waits_ms = (batches * BATCH_MS / AT_ONCE + pages * PAGE_MS) / held
    look_ms = ms_a_stream(waits_ms, look["cpu_ms"] / held)
    plain_ms = ms_a_stream(ITEM_MS, plain["cpu_ms"] / plain["sample"])
    # What a stream costs in memory at most, where it is away.
    mb_a_stream = (figures["away"]["max_rss_mb"] - figures["imported_mb"]) / held
    return {
        "look_ms_a_stream": round(look_ms, 3),
        "plain_ms_a_stream": round(plain_ms, 3),
        "in_time": int(look_s * 1000 / look_ms),
        "in_memory": int((memory_mb - figures["imported_mb"]) / mb_a_stream),
        "plain_in_time": int(look_s * 1000 / plain_ms),
        "ratio": round(plain_ms / look_ms, 1),
    }


def main(argv: list[str] | None = None) -> int:
    """Print the figures; 1 where the watch does not hold GOAL streams."""
    asked = options(
        argv, __doc__, streams=(20_000, "streams that were ever started"),
        held=(10_000, "of them, streams that are held"), sample=(2_000, "streams read the plain way"),
    )  # fmt: skip
    if not 0 < asked.held <= asked.streams or not 0 < asked.sample <= asked.streams:
        say(__doc__, "error: --held and --sample must be from 1 to --streams")
        raise SystemExit(2)
    memory_mb, timeout_s = deployed()
    figures = measure(asked.streams, asked.held, asked.sample)
    holds = capacity(figures, memory_mb)
    figures |= {"memory_mb": memory_mb, "timeout_s": timeout_s, "holds": holds, "goal": GOAL}
    show(asked, figures, [described(figures)])
    return 0 if min(holds["in_time"], holds["in_memory"]) >= GOAL else 1


def described(figures: dict[str, Any]) -> str:
    """Return the figures as a person reads them."""
    look, page, plain, holds = figures["look"], figures["page"], figures["plain"], figures["holds"]
    return "\n".join(
        [
            f"{figures['streams']} streams were ever started, {figures['held']} of them are held",
            f"a look      {_counted(look)}, {look['cpu_ms']:.0f} ms of a processor, {look['max_rss_mb']:.0f} MB",
            f"all away    {_counted(figures['away'])}, {figures['away']['max_rss_mb']:.0f} MB",
            f"plain       a GetItem each: {plain['requests']} requests, {plain['read_units']:.0f} read units",
            f"a page      of {page['limit']}: {_counted(page)}",
            f"deployed    {figures['memory_mb']} MB, {figures['timeout_s']} s; a look has {figures['look_s']} s: "
            f"{holds['in_time']} held streams in time, {holds['in_memory']} in memory "
            f"(plain {holds['plain_in_time']} in time, {holds['ratio']} times fewer); goal {figures['goal']}",
        ]
    )


def _counted(figures: dict[str, Any]) -> str:
    requests = ", ".join(f"{count} {name}" for name, count in sorted(figures["requests"].items()))
    return f"{requests}; {figures['read_units']:.1f} read units"


if __name__ == "__main__":
    sys.exit(main())

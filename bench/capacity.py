"""`python -m bench.capacity`: finds how many streams this machine can hold with the service of `make run`.

It adds streams of ten events a second, a few at a time, and watches each for more than one handover. The machine holds
a number of streams if every new stream connects in time and no handover leaves a gap. The first number that it cannot
hold ends the run. The upstream measures the gaps, as in bench.handover.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterable

from bench import harness
from bench.harness import Goal, Row, at_least, goal_if, parse_options, run, say, show
from bench.stage import CONNECTIONS, HANDOVER, GapGauge, Stage, Stream, open_stage
from local.service import capacity

STAGE = "local"
# A new stream must be connected within this time.
CONNECTED_MS = 15_000


def has_held(row: Row) -> bool:
    """Whether this machine holds so many streams; unless each stream has had a handover, it does not."""
    is_quick = row["connected_ms"] is not None and row["connected_ms"] <= CONNECTED_MS
    return is_quick and row["gaps"] == 0 and row["handovers"] >= row["streams"]


async def measure(
    stage: Stage, gauges: dict[str, GapGauge], opened_ms: dict[str, float], most: int, seconds: float
) -> Row:
    """Add streams until there are `most`, watch them for `seconds`, and return the row.

    `connected_ms` is how long the slowest new stream took to connect, None if one never did. `gaps` and `gap_ms` are
    the number of `handovers` that left a gap, and the longest gap.
    """
    asked_ms: dict[str, float] = {}
    for number in range(len(gauges), most):
        stream = Stream(CONNECTIONS, "evicts", "demo", "demo", f"capacity-{number}")
        gauges[stream.upstream_id] = GapGauge()
        asked_ms[stream.upstream_id] = time.monotonic() * 1000
        await stage.start(stream)
    before = {upstream_id: len(gauge.gaps_ms[HANDOVER]) for upstream_id, gauge in gauges.items()}
    started_s, cpu_s = time.monotonic(), _all_spent_s()
    await asyncio.sleep(seconds)
    elapsed_s, cpu_s = time.monotonic() - started_s, _all_spent_s() - cpu_s
    waits_ms = [opened_ms[one] - at_ms for one, at_ms in asked_ms.items() if one in opened_ms]
    gaps_ms = [ms for one, gauge in gauges.items() for ms in gauge.gaps_ms[HANDOVER][before[one] :]]
    # A stream that has no connection now is in a gap that has not ended.
    open_gaps = sum(not gauge.connected for gauge in gauges.values())
    row: Row = {
        "streams": most,
        "connected_ms": round(max(waits_ms, default=0), 1) if len(waits_ms) == len(asked_ms) else None,
        "handovers": len(gaps_ms),
        "gaps": sum(ms > 0 for ms in gaps_ms) + open_gaps,
        "gap_ms": round(max(gaps_ms, default=0), 1),
        "cores": round(cpu_s / elapsed_s, 2),
        "stream_mb": round(sum(harness.memory_mb(harness.descendants())) / most, 1),
    }
    return row | {"holds": has_held(row)}


def _all_spent_s() -> float:
    """The processor time of this process and all its descendants, including children that have ended."""
    pids = [os.getpid(), *harness.descendants()]
    return harness.spent_s(*pids) + sum(map(harness.ended_spent_s, pids))


async def find_capacity(first: int, step: int, most: int, seconds: float, stage: str) -> list[Row]:
    """Return a row for each tried number; the last one did not hold, or is `most`. Raises UserError."""
    gauges, opened_ms, rows = dict[str, GapGauge](), dict[str, float](), list[Row]()

    def seen(upstream_id: str, connected: int) -> None:
        now_ms = time.monotonic() * 1000
        opened_ms.setdefault(upstream_id, now_ms)
        gauges[upstream_id].record_connections(now_ms, connected)

    async with open_stage(seen, stage) as running:
        for number in range(first, most + 1, step):
            rows.append(await measure(running, gauges, opened_ms, number, seconds))
            say(__doc__, rows[-1])
            if not rows[-1]["holds"]:
                break
    return rows


def most_held(rows: Iterable[Row]) -> int:
    """Return the greatest number of streams that held; 0 if none did."""
    return max((row["streams"] for row in rows if has_held(row)), default=0)


def capacity_goal(rows: list[Row], promised: int) -> Goal:
    """Return the goal: the machine holds as many as the service promises at its start; missed if that was not tried."""
    words = f"the {promised} streams that `make run` promises are held (held: {most_held(rows)})"
    return goal_if("capacity", words, most_held(rows) >= promised)


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0; 2 if the service cannot start."""
    asked = parse_options(
        argv,
        __doc__,
        first=(40, "how many streams to begin with", at_least(1)),
        step=(20, "how many to add at a time", at_least(1)),
        most=(400, "where to end", at_least(1)),
        seconds=(90, "how long to watch each number", at_least(1)),
        stage=(STAGE, "whose settings to use"),
    )
    if asked.first > asked.most:
        say(__doc__, f"error: --first ({asked.first}) must be at most --most ({asked.most})")
        raise SystemExit(2)
    promised = capacity.read({})
    rows = run(__doc__, find_capacity(asked.first, asked.step, asked.most, asked.seconds, asked.stage))
    figures = {
        "seconds": asked.seconds, "stage": asked.stage, "because": promised.because, "rows": rows,
        "held": most_held(rows)
    }  # fmt: skip
    return show(asked, figures, [capacity_goal(rows, promised.most)], judge=False)


if __name__ == "__main__":
    sys.exit(main())

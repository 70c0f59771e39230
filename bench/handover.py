"""`python -m bench.handover`: measures how long streams have no connection, with our machine and with the plain one.

The upstream measures the gaps: from the end of a stream's last connection until it answers the next. Both machines run
at once, with the same function, settings and upstream. Each stream has its own faults: none for the first third of the
time, then resets, then SIGKILL.
"""

import asyncio
import random
import sys
import time
from collections.abc import Iterable, Iterator

from bench.harness import Goal, Row, goal_at_most, goal_if, parse_options, run, show, summary
from bench.stage import (
    CONNECTIONS,
    DROP,
    HANDOVER,
    KILL,
    POLICIES,
    RECONNECTS,
    STAGE,
    STAGGERED,
    GapGauge,
    Stage,
    Stream,
    open_stage,
)
from local import stages
from local.upstreams.behaviours import INTERVAL_MS

# Between two faults of a stream, long enough for the lanes to alternate again.
FAULT_EVERY_S = (4.0, 8.0)
# The time at the end to fetch missed events.
CATCH_UP_S = 3.0
DROP_MS = 2000
# What a reconnection in place takes besides the connect: drain, save, release, claim.
IN_PLACE_MS = 50
IN_PLACE = "reconnects"
STREAMS = (
    *(Stream(CONNECTIONS, policy, profile, profile, CONNECTIONS) for policy, profile in POLICIES.items()),
    Stream(CONNECTIONS, IN_PLACE, RECONNECTS, f"demo-ndjson:{RECONNECTS}", "bench"),
    Stream(CONNECTIONS, "hot standby", "demo-standby", "demo-ndjson:demo-standby", "bench"),
    *(Stream(STAGGERED, policy, profile, profile, STAGGERED) for policy, profile in POLICIES.items()),
)


async def measure(seconds: float, seed: int) -> list[Row]:
    """Return a row for each of STREAMS, `seconds` after the service's start; raises UserError."""
    gauges = {stream.upstream_id: GapGauge() for stream in STREAMS}

    def seen(upstream_id: str, connected: int) -> None:
        gauges[upstream_id].record_connections(time.monotonic() * 1000, connected)

    async with open_stage(seen) as stage:
        for stream in STREAMS:
            await stage.start(stream)
        started_s = time.monotonic()
        dice = random.Random(seed)
        await asyncio.gather(
            *(_disturb(stage, stream, gauges[stream.upstream_id], seconds, dice.random()) for stream in STREAMS)
        )
        for gauge in gauges.values():
            await _connected(gauge)
        await asyncio.sleep(CATCH_UP_S)
        elapsed_s = time.monotonic() - started_s
        return [await _row(stage, stream, gauges[stream.upstream_id], elapsed_s) for stream in STREAMS]


async def _disturb(stage: Stage, stream: Stream, gauge: GapGauge, seconds: float, seed: float) -> None:
    """No faults, then resets, then kills, for a third of the time each; faults come at random while connected."""
    dice = random.Random(seed)
    begun_s = time.monotonic()
    await asyncio.sleep(seconds / 3)
    while (elapsed_s := time.monotonic() - begun_s) < seconds:
        kind, fault = (DROP, stage.drop) if elapsed_s < seconds * 2 / 3 else (KILL, stage.kill)
        await _connected(gauge)
        gauge.record_fault(kind)
        fault(stream)
        await asyncio.sleep(dice.uniform(*FAULT_EVERY_S))


async def _connected(gauge: GapGauge) -> None:
    while not gauge.connected:
        await asyncio.sleep(0.05)


async def _row(stage: Stage, stream: Stream, gauge: GapGauge, elapsed_s: float) -> Row:
    numbers = await stage.stored_numbers(stream)
    return {
        "machine": stream.machine,
        "policy": stream.policy,
        **{kind: summary(gaps_ms) for kind, gaps_ms in gauge.gaps_ms.items()},
        "connect": summary(stage.connect_times_ms(stream)),
        "missed": round(gauge.unconnected_ms / INTERVAL_MS),
        "stored": len(numbers),
        "lost": numbers[-1] - numbers[0] + 1 - len(numbers) if numbers else 0,
        "duplicates": await stage.count_duplicates(stream),
        "connections_per_hour": round(gauge.openings * 3600 / elapsed_s),
    }


def goals(rows: Iterable[Row]) -> list[Goal]:
    """Return every goal with its verdict; the plain machine has none."""
    return [goal for row in rows if row["machine"] == CONNECTIONS for goal in _goals_of(row)]


def _goals_of(row: Row) -> Iterator[Goal]:
    policy = row["policy"]
    # Without an overlap, a handover takes a release and a connect, for which there is no goal.
    if policy != "forbids":
        yield goal_at_most(policy, "no gap at a handover", 0, row[HANDOVER]["most_ms"])
    if policy == IN_PLACE:
        for rank in ("p50", "p99"):
            connect_ms = row["connect"][f"{rank}_ms"]
            limit_ms = None if connect_ms is None else connect_ms + IN_PLACE_MS
            words = f"{rank} after a drop is the connect's {rank} and {IN_PLACE_MS} ms"
            yield goal_at_most(policy, words, limit_ms, row[DROP][f"{rank}_ms"])
    else:
        yield goal_at_most(policy, "p99 after a drop", DROP_MS, row[DROP]["p99_ms"])
    yield goal_if(policy, "no event lost", row["lost"] == 0)


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0; 2 if the service cannot start."""
    asked = parse_options(
        argv, __doc__, seconds=(120.0, "how long to measure"), seed=(1, "seed of the moments of the faults")
    )
    rows = run(__doc__, measure(asked.seconds, asked.seed))
    limits = {name: stages.load(STAGE)[name] for name in ("function_timeout_s", "wait_s", "margin_s")}
    figures = {"seconds": asked.seconds, "seed": asked.seed, "limits": limits, "rows": rows}
    return show(asked, figures, goals(rows), judge=False)


if __name__ == "__main__":
    sys.exit(main())

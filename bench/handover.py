"""`python -m bench.handover`: measures how long a stream has no connection, ours beside the plain machine.

The upstream measures the gaps: from the end of a stream's last connection until it answers the next. Both machines run
at once, with the same function, settings and upstream. Each stream has faults of its own: none for the first third of
the time, then resets, then SIGKILL.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from bench.gaps import DROP, HANDOVER, KILL, Gauge, summary
from bench.goals import goals
from bench.stage import STAGE, Stage, open_stage
from bench.streams import STREAMS, Stream
from local import stages
from local.upstreams.clockwork import Clockwork
from local.user_error import UserError

# Between two faults of one stream: long enough for the lanes to alternate again.
FAULT_EVERY_S = (4.0, 8.0)
# At the end, the time to fetch the events that were missed.
CATCH_UP_S = 3.0


@dataclass(frozen=True)
class Row:
    """The figures of one stream; see docs/bench.md."""

    machine: str
    policy: str
    gaps: dict[str, dict[str, Any]]
    connect: dict[str, Any]
    unconnected_ms: float
    happened_unconnected: int
    stored: int
    lost: int
    duplicates: int
    connections_per_hour: int


async def measure(seconds: float, seed: int) -> list[Row]:
    """Return a row for each of STREAMS, after `seconds` and the service's start; raises UserError."""
    gauges = {stream.upstream_id: Gauge() for stream in STREAMS}

    def seen(upstream_id: str, connected: int) -> None:
        gauges[upstream_id].changed(time.monotonic() * 1000, connected)

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


async def _disturb(stage: Stage, stream: Stream, gauge: Gauge, seconds: float, seed: float) -> None:
    """No fault, then resets, then kills, a third of the time each; a fault comes at random while connected."""
    dice = random.Random(seed)
    begun_s = time.monotonic()
    await asyncio.sleep(seconds / 3)
    while (elapsed_s := time.monotonic() - begun_s) < seconds:
        kind, fault = (DROP, stage.drop) if elapsed_s < seconds * 2 / 3 else (KILL, stage.kill)
        await _connected(gauge)
        gauge.fault(kind)
        fault(stream)
        await asyncio.sleep(dice.uniform(*FAULT_EVERY_S))


async def _connected(gauge: Gauge) -> None:
    while not gauge.connected:
        await asyncio.sleep(0.05)


async def _row(stage: Stage, stream: Stream, gauge: Gauge, elapsed_s: float) -> Row:
    numbers = await stage.stored(stream)
    return Row(
        machine=stream.machine,
        policy=stream.policy,
        gaps={kind: asdict(summary(gaps_ms)) for kind, gaps_ms in gauge.gaps_ms.items()},
        connect=asdict(summary(stage.connects(stream))),
        unconnected_ms=round(gauge.unconnected_ms, 1),
        happened_unconnected=round(gauge.unconnected_ms / Clockwork().interval_ms),
        stored=len(numbers),
        lost=numbers[-1] - numbers[0] + 1 - len(numbers) if numbers else 0,
        duplicates=await stage.duplicates(stream),
        connections_per_hour=round(gauge.openings * 3600 / elapsed_s),
    )


def table(rows: Iterable[Row]) -> list[str]:
    """Return the lines of the table."""
    lines = [f"{'':<25}{'gaps: count / p50 / p99 / most, in ms':<72}", f"{'machine':<13}{'policy':<12}"]
    lines[1] += "".join(f"{kind:<24}" for kind in (HANDOVER, DROP, KILL, "(connect)"))
    lines[1] += f"{'missed':>7}{'stored':>7}{'lost':>5}{'dupl.':>6}{'conn./h':>8}"
    for row in rows:
        cells = "".join(f"{_cell(gaps):<24}" for gaps in (*row.gaps.values(), row.connect))
        counts = f"{row.happened_unconnected:>7}{row.stored:>7}{row.lost:>5}{row.duplicates:>6}"
        lines.append(f"{row.machine:<13}{row.policy:<12}{cells}{counts}{row.connections_per_hour:>8}")
    return lines


def _cell(gaps: dict[str, Any]) -> str:
    if not gaps["count"]:
        return "0"
    return f"{gaps['count']} / {gaps['p50_ms']:.0f} / {gaps['p99_ms']:.0f} / {gaps['most_ms']:.0f}"


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0; 2 where the service cannot start."""
    parser = argparse.ArgumentParser(prog="python -m bench.handover", description="Measures gaps on real sockets.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seconds", type=float, default=120, help="how long to measure (default 120)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the moments of the faults")
    options = parser.parse_args(argv)
    try:
        rows = asyncio.run(measure(options.seconds, options.seed))
    except UserError as mistake:
        print(f"bench.handover: {mistake}", file=sys.stderr)
        return 2
    limits = {name: stages.load(STAGE)[name] for name in ("function_timeout_s", "wait_s", "margin_s")}
    if options.json:
        about = {"seconds": options.seconds, "seed": options.seed, "limits": limits}
        judged = [asdict(goal) for goal in goals(rows)]
        print(json.dumps(about | {"rows": [asdict(row) for row in rows], "goals": judged}, indent=1))
        return 0
    print(
        f"{options.seconds:g} s, limits scaled down: {', '.join(f'{name} {limit}' for name, limit in limits.items())}"
    )
    print("\n".join(table(rows)))
    print("\n".join(["", *(goal.line for goal in goals(rows))]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

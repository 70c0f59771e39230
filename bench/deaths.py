"""`python -m bench.deaths`: measures how soon a lane asks again whose function died, at an upstream that forbids two.

Functions are killed with SIGKILL, or stopped with SIGSTOP until Lambda's limit ends them. The machine hears of the one
as Runtime.ExitError and of the other as Sandbox.Timedout; the executions' histories say how many there were of each.
A lease lasts as long as in the stage `prod`, longer than a function here: whoever waited for it would wait for seconds.
The upstream measures, from the end of a connection until it answers the next. Nothing is killed before it is connected.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from bench.gaps import KILL, Gauge, summary
from bench.goals import Goal, death_goals
from bench.stage import STAGE, Stage, open_stage
from bench.streams import CONNECTIONS, Stream
from local import stages
from local.user_error import UserError

KILLED, TIMED_OUT = "Runtime.ExitError", "Sandbox.Timedout"
# How a function dies, and how the machine is to hear of it.
DEATHS = {KILLED: signal.SIGKILL, TIMED_OUT: signal.SIGSTOP}
# How long a connection is left alone: at most until the other lane's wait is over.
ALONE_S = (0.3, 3.0)
AT_ONCE = 3


@dataclass(frozen=True)
class Row:
    """The figures of one kind of death: how long nobody was connected, how many the histories have, what is lost."""

    policy: str
    gaps: dict[str, Any]
    told: int
    lost: int


class _Run:
    """The streams of a run and what their upstream saw of each; `left` are the deaths that are still to come."""

    def __init__(self, deaths: int, seed: int) -> None:
        self._left = [kind for kind in DEATHS for _ in range(deaths // len(DEATHS))]
        self._dice = random.Random(seed)
        self._dice.shuffle(self._left)
        self._streams = [
            Stream(CONNECTIONS, "forbids", "demo-exclusive", "demo-exclusive", f"deaths-{number}")
            for number in range(AT_ONCE)
        ]
        self._gauges = {stream.upstream_id: Gauge() for stream in self._streams}
        self._gaps_ms: dict[str, list[float]] = {kind: [] for kind in DEATHS}

    def seen(self, upstream_id: str, connected: int) -> None:
        """Record how many connections a stream has from now on."""
        self._gauges[upstream_id].changed(time.monotonic() * 1000, connected)

    async def measure(self, stage: Stage) -> list[Row]:
        """Return a row for each kind of death."""
        executions = [await stage.start(stream) for stream in self._streams]
        await asyncio.gather(*(self._disturb(stage, stream) for stream in self._streams))
        told: Counter[str] = Counter()
        for execution in executions:
            told += await stage.errors(execution)
        lost = 0
        for stream in self._streams:
            numbers = await stage.stored(stream)
            lost += numbers[-1] - numbers[0] + 1 - len(numbers)
        return [Row(kind, asdict(summary(gaps_ms)), told[kind], lost) for kind, gaps_ms in self._gaps_ms.items()]

    async def _disturb(self, stage: Stage, stream: Stream) -> None:
        gauge = self._gauges[stream.upstream_id]
        while self._left:
            await _until(lambda: gauge.connected)
            await asyncio.sleep(self._dice.uniform(*ALONE_S))
            openings = gauge.openings
            if not gauge.connected or not self._left:
                continue
            kind = self._left.pop()
            if not stage.signal(stream, DEATHS[kind]):
                self._left.append(kind)
                continue
            gauge.fault(KILL)
            await _until(lambda before=openings: gauge.openings > before)
            self._gaps_ms[kind].append(gauge.gaps_ms[KILL][-1])


async def _until(is_so: Any) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


async def measure(deaths: int, seed: int) -> list[Row]:
    """Return a row for each kind of death, half of `deaths` each; raises UserError where the service cannot start."""
    run = _Run(deaths, seed)
    prod = {name: str(stages.load("prod")[name.lower()]) for name in ("LEASE_EVERY_S", "PROGRESS_EVERY_S")}
    async with open_stage(run.seen, environment=prod) as stage:
        return await run.measure(stage)


def table(rows: Iterable[Row]) -> list[str]:
    """Return the lines of the table."""
    lines = [f"{'':<18}{'count':>7}{'p50':>7}{'p99':>7}{'most':>7}{'told':>7}{'lost':>6}"]
    for row in rows:
        times = "".join(f"{_ms(row.gaps[name]):>7}" for name in ("p50_ms", "p99_ms", "most_ms"))
        lines.append(f"{row.policy:<18}{row.gaps['count']:>7}{times}{row.told:>7}{row.lost:>6}")
    return lines


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def judged(rows: Iterable[Row]) -> list[Goal]:
    """Return the goals with their verdicts."""
    return [goal for row in rows for goal in death_goals(row)]


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0; 2 where the service cannot start."""
    parser = argparse.ArgumentParser(prog="python -m bench.deaths", description="Measures gaps after deaths.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--deaths", type=int, default=400, help="how many, half of each kind (default 400)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the moments of the deaths")
    options = parser.parse_args(argv)
    try:
        rows = asyncio.run(measure(options.deaths, options.seed))
    except UserError as mistake:
        print(f"bench.deaths: {mistake}", file=sys.stderr)
        return 2
    if options.json:
        goals = [asdict(goal) for goal in judged(rows)]
        about = {"deaths": options.deaths, "seed": options.seed, "stage": STAGE}
        print(json.dumps(about | {"rows": [asdict(row) for row in rows], "goals": goals}, indent=1))
        return 0
    print("\n".join([*table(rows), "", *(goal.line for goal in judged(rows))]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.deaths`: measures how soon a lane asks again whose function died, at an upstream that forbids two.

Functions are killed with SIGKILL, or stopped with SIGSTOP until Lambda's limit ends them. The machine hears of the one
as Runtime.ExitError and of the other as Sandbox.Timedout; the executions' histories say how many there were of each.
A lease lasts as long as in the stage `prod`, longer than a function here: whoever waited for it would wait for seconds.
The upstream measures: from the instant at which the function is over, so its socket is closed, until it answers the
next. The time for which a function is stopped does not count, for it is not over. A death counts where the history has
its error: where the machine has lost sight of a function nothing proves the death, and the lease decides.
"""

import asyncio
import random
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

from bench.death_parts import Death, Parts, parts
from bench.gaps import KILL, Gauge, summary
from bench.harness import Goal, at_most, options, run, show, so, table
from bench.stage import STAGE, Stage, open_stage
from bench.streams import CONNECTIONS, Stream
from local import stages

KILLED, TIMED_OUT = "Runtime.ExitError", "Sandbox.Timedout"
# How a function dies, and how the machine is to hear of it.
DEATHS = {KILLED: signal.SIGKILL, TIMED_OUT: signal.SIGSTOP}
# How long a connection is left alone. A lane rests after three deaths within two seconds of their starts, as it should:
# that is no death here and there. At most until the other lane's wait is over.
ALONE_S = (2.0, 4.0)
AT_ONCE = 4
DEATHS_BY_DEFAULT = 220
# From the end of a function to the lane's next request, where two are forbidden and the error proves the end.
DEATH_MS = 1500
# So many deaths of a kind at least: of fewer a p99 is the greatest alone.
ENOUGH = 100


@dataclass(frozen=True)
class Row:
    """The figures of one kind of death: how long nobody was connected and why, and how many events are lost.

    `parts` has a summary of each part of a gap. `slow` describes each gap above the goal. `unproved` deaths, which no
    history has, count nowhere else.
    """

    policy: str
    gaps: dict[str, Any]
    parts: dict[str, dict[str, Any]]
    slow: list[str]
    unproved: int
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
        self._opened_ms = dict.fromkeys(self._gauges, 0.0)
        self._deaths: list[tuple[str, Stream, Death]] = []

    def seen(self, upstream_id: str, connected: int) -> None:
        """Record how many connections a stream has from now on; the clock is that of histories and logs."""
        now_ms = time.time() * 1000
        if connected:
            self._opened_ms[upstream_id] = now_ms
        self._gauges[upstream_id].changed(now_ms, connected)

    async def measure(self, stage: Stage) -> list[Row]:
        """Return a row for each kind of death."""
        for stream in self._streams:
            await stage.start(stream)
        await asyncio.gather(*(self._disturb(stage, stream) for stream in self._streams))
        explained: dict[str, list[tuple[Death, Parts | None]]] = {kind: [] for kind in DEATHS}
        lost = 0
        for stream in self._streams:
            history, starts_ms = await stage.history(stream), stage.starts_ms(stream)
            for kind, of, death in self._deaths:
                if of is stream:
                    explained[kind].append((death, parts(death, kind, history, starts_ms)))
            numbers = await stage.stored(stream)
            lost += numbers[-1] - numbers[0] + 1 - len(numbers)
        return [row(kind, deaths, lost) for kind, deaths in explained.items()]

    async def _disturb(self, stage: Stage, stream: Stream) -> None:
        gauge = self._gauges[stream.upstream_id]
        while self._left:
            await _until(lambda: gauge.connected)
            await asyncio.sleep(self._dice.uniform(*ALONE_S))
            openings = gauge.openings
            if not gauge.connected or not self._left:
                continue
            kind = self._left.pop()
            signalled_ms = time.time() * 1000
            if not stage.signal(stream, DEATHS[kind]):
                self._left.append(kind)
                continue
            gauge.fault(KILL)
            await _until(lambda before=openings: gauge.openings > before)
            opened_ms = self._opened_ms[stream.upstream_id]
            closed_ms = opened_ms - gauge.gaps_ms[KILL][-1]
            self._deaths.append((kind, stream, Death(signalled_ms, closed_ms, opened_ms)))


def row(kind: str, deaths: Iterable[tuple[Death, Parts | None]], lost: int) -> Row:
    """Return the figures of the deaths of one kind, each with the parts of its gap; None where nothing proved it."""
    deaths = list(deaths)
    proved = [(death.gap_ms, found) for death, found in deaths if found is not None]
    by_part = {
        field.name: asdict(summary([getattr(found, field.name) for _, found in proved])) for field in fields(Parts)
    }
    slow = [f"{gap_ms:.0f} ms: {found}" for gap_ms, found in proved if gap_ms > DEATH_MS]
    gaps = asdict(summary([gap_ms for gap_ms, _ in proved]))
    return Row(kind, gaps, by_part, slow, len(deaths) - len(proved), lost)


async def _until(is_so: Any) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


async def measure(deaths: int, seed: int) -> list[Row]:
    """Return a row for each kind of death, half of `deaths` each; raises UserError where the service cannot start."""
    run = _Run(deaths, seed)
    prod = {name: str(stages.load("prod")[name.lower()]) for name in ("LEASE_EVERY_S", "PROGRESS_EVERY_S")}
    async with open_stage(run.seen, environment=prod) as stage:
        return await run.measure(stage)


def lines(rows: Iterable[Row]) -> list[str]:
    """Return the lines of the table, with a line for each part of the gaps and for each slow death."""
    cells: list[tuple[object, ...]] = []
    slow: list[str] = []
    for one in rows:
        cells.append((one.policy, one.gaps["count"], *_times(one.gaps), one.unproved, one.lost))
        cells += [(f"  {name}", "", *_times(of), "", "") for name, of in one.parts.items()]
        slow += [f"{one.policy}: {text}" for text in one.slow]
    return [*table(("", "count", "p50", "p99", "most", "unproved", "lost"), cells), *slow]


def _times(of: dict[str, Any]) -> list[str]:
    return ["" if of[name] is None else f"{of[name]:.0f}" for name in ("p50_ms", "p99_ms", "most_ms")]


def goals(rows: Iterable[Row]) -> list[Goal]:
    """Return every goal of each kind of death with its verdict."""
    return [
        goal
        for row in rows
        for goal in (
            at_most(row.policy, "p99 to the next request", DEATH_MS, row.gaps["p99_ms"]),
            so(row.policy, f"{ENOUGH} deaths that the machine was told of", row.gaps["count"] >= ENOUGH),
            so(row.policy, "no event lost", row.lost == 0),
        )
    ]


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0; 2 where the service cannot start."""
    asked = options(
        argv, __doc__, deaths=(DEATHS_BY_DEFAULT, "how many, half of each kind"),
        seed=(1, "seed of the moments of the deaths"),
    )  # fmt: skip
    rows = run(__doc__, measure(asked.deaths, asked.seed))
    figures = {"deaths": asked.deaths, "seed": asked.seed, "stage": STAGE, "rows": [asdict(row) for row in rows]}
    return show(asked, figures, [*lines(rows), ""], goals(rows), judge=False)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.capacity`: finds how many streams this machine holds, with the service of `make run`.

Streams of ten events a second are added, some at a time, and watched for more than one handover each. A number holds
when every stream that was added connects in time, and no handover of any stream leaves a gap. The first number that
does not hold ends the run. The upstream measures, as in bench.handover.
"""

import asyncio
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from bench import processes
from bench.gaps import Gauge
from bench.harness import Goal, at_least, options, run, say, show, so
from bench.stage import Stage, open_stage
from bench.streams import CONNECTIONS, Stream
from local.service import capacity

STAGE = "local"
# A stream that was asked for is connected within this time.
CONNECTED_MS = 15_000


@dataclass(frozen=True)
class Row:
    """What was measured with so many streams.

    `connected_ms` is how long the slowest of those that were added took to connect, None where one never did. `gaps`
    and `gap_ms` are how many of the `handovers` left a gap, and the longest.
    """

    streams: int
    connected_ms: float | None
    handovers: int
    gaps: int
    gap_ms: float
    cores: float
    stream_mb: float

    @property
    def holds(self) -> bool:
        """Whether this machine holds so many; without a handover for each stream it is not known, so it does not."""
        is_quick = self.connected_ms is not None and self.connected_ms <= CONNECTED_MS
        return is_quick and self.gaps == 0 and self.handovers >= self.streams


class Streams:
    """The streams of a run and what their upstream saw of each."""

    def __init__(self) -> None:
        self.gauges: dict[str, Gauge] = {}
        self.opened_ms: dict[str, float] = {}

    def seen(self, upstream_id: str, connected: int) -> None:
        """Record how many connections a stream has from now on."""
        now_ms = time.monotonic() * 1000
        self.opened_ms.setdefault(upstream_id, now_ms)
        self.gauges[upstream_id].changed(now_ms, connected)

    async def measure(self, stage: Stage, most: int, seconds: float) -> Row:
        """Add streams until there are `most`, watch them for `seconds`, and return the row."""
        asked_ms: dict[str, float] = {}
        for number in range(len(self.gauges), most):
            stream = Stream(CONNECTIONS, "evicts", "demo", "demo", f"capacity-{number}")
            self.gauges[stream.upstream_id] = Gauge()
            asked_ms[stream.upstream_id] = time.monotonic() * 1000
            await stage.start(stream)
        before = {upstream_id: len(gauge.gaps_ms["handover"]) for upstream_id, gauge in self.gauges.items()}
        started_s, spent_s = time.monotonic(), processes.spent_s()
        await asyncio.sleep(seconds)
        elapsed_s, spent_s = time.monotonic() - started_s, processes.spent_s() - spent_s
        waits_ms = [self.opened_ms[one] - at_ms for one, at_ms in asked_ms.items() if one in self.opened_ms]
        gaps_ms = [ms for one, gauge in self.gauges.items() for ms in gauge.gaps_ms["handover"][before[one] :]]
        # One that is without a connection now has a gap that has not ended.
        open_gaps = sum(not gauge.connected for gauge in self.gauges.values())
        return Row(
            streams=most,
            connected_ms=round(max(waits_ms, default=0), 1) if len(waits_ms) == len(asked_ms) else None,
            handovers=len(gaps_ms),
            gaps=sum(ms > 0 for ms in gaps_ms) + open_gaps,
            gap_ms=round(max(gaps_ms, default=0), 1),
            cores=round(spent_s / elapsed_s, 2),
            stream_mb=round(sum(processes.memory_mb(processes.descendants())) / most, 1),
        )


async def find(first: int, step: int, most: int, seconds: float, stage: str) -> list[Row]:
    """Return a row for each number that was tried, the last of which did not hold or is `most`; raises UserError."""
    streams, rows = Streams(), list[Row]()
    async with open_stage(streams.seen, stage) as running:
        for number in range(first, most + 1, step):
            rows.append(await streams.measure(running, number, seconds))
            print(line(rows[-1]), file=sys.stderr, flush=True)
            if not rows[-1].holds:
                break
    return rows


def held(rows: Iterable[Row]) -> int:
    """Return the greatest number of streams that held; 0 where none did."""
    return max((row.streams for row in rows if row.holds), default=0)


def goal(rows: list[Row], promised: int) -> Goal:
    """Return the goal: the machine holds what the service says at its start; missed where so many were not tried."""
    words = f"the {promised} streams that `make run` promises are held (held: {held(rows)})"
    return so("capacity", words, held(rows) >= promised)


def head() -> str:
    """Return the names of the columns."""
    return "streams  connected within  handovers  gaps  longest  cores  MB a stream"


def line(row: Row) -> str:
    """Return a row as a person reads it."""
    connected = "never" if row.connected_ms is None else f"{row.connected_ms:.0f} ms"
    return (
        f"{row.streams:>7}{connected:>18}{row.handovers:>11}{row.gaps:>6}{row.gap_ms:>6.0f} ms{row.cores:>7.2f}"
        f"{row.stream_mb:>13.1f}  {'holds' if row.holds else 'does not hold'}"
    )


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0; 2 where the service cannot start."""
    asked = options(
        argv, __doc__, first=(40, "how many streams to begin with", at_least(1)),
        step=(20, "how many to add at a time", at_least(1)), most=(400, "where to end", at_least(1)),
        seconds=(90, "how long to watch each number", at_least(1)), stage=(STAGE, "whose settings to use"),
    )  # fmt: skip
    if asked.first > asked.most:
        say(__doc__, f"error: --first ({asked.first}) must be at most --most ({asked.most})")
        raise SystemExit(2)
    promised = capacity.read({})
    print(head(), file=sys.stderr)
    rows = run(__doc__, find(asked.first, asked.step, asked.most, asked.seconds, asked.stage))
    figures = {
        "seconds": asked.seconds, "stage": asked.stage, "because": promised.because,
        "rows": [asdict(row) | {"holds": row.holds} for row in rows], "held": held(rows),
    }  # fmt: skip
    words = f"held: {held(rows)} ({promised.because})"
    return show(asked, figures, [words], [goal(rows, promised.most)], judge=False)


if __name__ == "__main__":
    sys.exit(main())

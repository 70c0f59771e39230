"""The verb `chaos`: runs schedules of faults in virtual time and counts the broken rules.

Invariant: the last line begins with `schedules N lost n` and names every count. If a count is not 0, the exit status is
1, and the lines above show a command that replays the first failure, with its shortest schedule.
"""

import argparse
import gc
import multiprocessing
import shutil
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TextIO

from handlers.api.verdict import plural
from local import garbage_collection
from local.chaos.group_schedule import generate
from local.chaos.schedule import STORES
from local.chaos.simulate import Result, run_schedule, shrink
from local.chaos.stream_rules import COUNTED
from local.terminal import join_items, whole_number

INTERRUPTED = 130  # the exit status that a shell gives a command that SIGINT ended
# A run leaves little garbage in cycles; Python's usual collections would cost a tenth of the time.
COLLECT_EVERY = 200
CHUNK = 2

# How often the line of progress is rewritten on a terminal, and how often one is printed elsewhere.
TERMINAL_S, ELSEWHERE_S = 0.2, 15.0
# Before this time, the rate says more about the start than about the schedules.
FIRST_ESTIMATE_S = 3.0


def add(subparsers: Any) -> None:
    """Adds the verb and its options."""
    parser = subparsers.add_parser(
        "chaos",
        description="Runs generated schedules of faults in virtual time and checks that the promise holds in each.",
        epilog="docs/chaos.md explains the faults and what is counted.",
    )
    parser.add_argument("--schedules", default="1000", metavar="N", help="how many schedules (1000)")
    parser.add_argument("--seed", default="0", metavar="S", help="the first schedule's seed (0); the next is S + 1")
    parser.add_argument("--jobs", default="1", metavar="J", help="how many processes (1)")
    parser.add_argument(
        "--store", choices=STORES, default="", help="how all streams store events (by default the seed decides)"
    )
    parser.add_argument("--groups", action="store_true", help="only schedules of groups (otherwise a tenth)")
    parser.add_argument("--trace", action="store_true", help="print each schedule and what happened")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Returns 0 if every schedule kept the promise, else 1; raises UserError."""
    schedules = whole_number("--schedules", args.schedules, 1, 10**9)
    seed, jobs = whole_number("--seed", args.seed, 0, 10**15), whole_number("--jobs", args.jobs, 1, 1000)
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    first: Result | None = None
    progress = Progress(schedules, sys.stderr)
    was_interrupted = False
    try:
        for result in runs(range(seed, seed + schedules), jobs, args.store, args.groups):
            kinds = {violation.kind for violation in result.violations}
            counts.update(kinds)
            totals.update(events=result.events, connections=result.connections, executions=result.executions)
            if args.trace:
                progress.clear()
                print(trace(result))
            if result.violations and first is None:
                first = result
            progress.add(result.schedule.seed, kinds)
    except KeyboardInterrupt:
        was_interrupted = True
        # An interrupt may leave a coroutine that was never awaited, and Python would warn of it.
        warnings.simplefilter("ignore")
    progress.clear()
    if first is not None:
        print((replay if was_interrupted else report)(first, args.store, groups=args.groups))
    sums = [f"{name} {number}" for name, number in totals.items()]
    print(join_items(sys.stdout, [*summary(progress.done, counts), *sums]))
    if was_interrupted:
        done, left = seed + progress.done, schedules - progress.done
        rest = command(done, left, args.store, groups=args.groups, jobs=jobs)
        print(f"Go on with: {rest}", file=sys.stderr)
        return INTERRUPTED
    return 1 if counts else 0


def command(seed: int, schedules: int, store: str = "", *, groups: bool = False, jobs: int = 1) -> str:
    """Returns the command that runs these schedules with the same options."""
    options = (f" --jobs {jobs}" if jobs > 1 else "") + (f" --store {store}" if store else "")
    return f"streamkeeper chaos --seed {seed} --schedules {schedules}{options}" + (" --groups" if groups else "")


def summary(schedules: int, counts: Counter[str]) -> list[str]:
    """Returns the beginning of the last line: how many schedules broke each rule."""
    return [f"schedules {schedules}", *(f"{kind} {counts[kind]}" for kind in COUNTED)]


def trace(result: Result) -> str:
    """Returns the schedule, the trace of its run, and the broken rules."""
    broken = [f"VIOLATION {violation.kind}: {violation.text}" for violation in result.violations]
    return "\n".join([str(result.schedule), "", *result.log, *broken])


def report(result: Result, store: str = "", *, groups: bool = False) -> str:
    """Returns the command that replays this schedule, and the shortest schedule that fails in the same way."""
    shortest = trace(shrink(result))
    return f"{replay(result, store, groups=groups)}\nThe shortest schedule that fails in the same way:\n{shortest}\n"


def replay(result: Result, store: str = "", *, groups: bool = False) -> str:
    """Returns the line with the command that replays the schedule."""
    return f"Replay with: {command(result.schedule.seed, 1, store, groups=groups)} --trace"


def runs(seeds: Iterable[int], jobs: int, store: str = "", groups: bool = False) -> Iterator[Result]:
    """Yields the result of each seed's schedule, in the order of the seeds; `store` and `groups` as in `generate`."""
    run_one = partial(_run, store=store, groups=groups)
    if jobs == 1:
        yield from map(run_one, seeds)
        return
    # Ctrl-C reaches every process of the terminal, and only this one should react. The workers ignore SIGINT from their
    # first instruction on because it is ignored here while they start.
    interrupts = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pool = multiprocessing.get_context("spawn").Pool(jobs)
    finally:
        signal.signal(signal.SIGINT, interrupts)
    with pool:
        yield from pool.imap(run_one, seeds, CHUNK)


def _run(seed: int, store: str, groups: bool) -> Result:
    with garbage_collection.no_garbage_collection():
        if seed % COLLECT_EVERY == 0:
            gc.collect()
        return run_schedule(generate(seed, store, groups=groups))


# --- progress ---------------------------------------------------------------------------------------------------------


class Progress:
    """Shows on standard error the progress of a run of `total` schedules, in one line:

    1,240 of 10,000 schedules, 48 a second, all kept the promise, 3 min left

    A terminal gets it rewritten in place, anything else a new line every 15 s. `now_s` is a monotonic clock.
    """

    def __init__(self, total: int, stream: TextIO, now_s: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._stream = stream
        self._now_s = now_s
        self._is_terminal = stream.isatty()
        self._began_s = self._said_s = now_s()
        self.done = 0
        self.broken = 0

    def add(self, seed: int, kinds: Iterable[str]) -> None:
        """Counts a finished schedule, and the kinds of rules that it broke."""
        self.done += 1
        broken = sorted(set(kinds))
        if broken:
            self.broken += 1
            self.clear()
            print(f"The schedule of seed {seed} broke: {', '.join(broken)}.", file=self._stream, flush=True)
        now_s = self._now_s()
        if now_s - self._said_s >= (TERMINAL_S if self._is_terminal else ELSEWHERE_S):
            self._said_s = now_s
            self._say(self.line())

    def clear(self) -> None:
        """Removes the line from the terminal, if there is one."""
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def line(self) -> str:
        """Returns the line of progress."""
        elapsed_s = self._now_s() - self._began_s
        kept = f"{self.broken:,} broke the promise" if self.broken else "all kept the promise"
        parts = [f"{self.done:,} of {plural(self._total, 'schedule')}", kept]
        if elapsed_s >= FIRST_ESTIMATE_S:
            a_second = self.done / elapsed_s
            parts.insert(1, f"{a_second:.0f} a second")
            parts.append(f"{_duration((self._total - self.done) / a_second)} left")
        return ", ".join(parts)

    def _say(self, line: str) -> None:
        if not self._is_terminal:
            print(line, file=self._stream, flush=True)
            return
        # A line that wraps cannot be rewritten.
        most = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r\x1b[K{line[:most]}")
        self._stream.flush()


def _duration(length_s: float) -> str:
    if length_s < 90:
        return f"{length_s:.0f} s"
    return f"{length_s / 60:.0f} min" if length_s < 5_400 else f"{length_s / 3_600:.1f} h"

"""`python -m bench.interpreter`: measures transitions a second beside moto and aws-local-stepfunctions.

The machine is a loop of a Pass and a Choice; the states entered count, and the history is written. moto slows down as
the history grows, so it is stopped after `--moto-seconds` and its rate until then is reported. The interpreters run
one after the other, on the same lengths.
"""

import cProfile
import json
import logging
import os
import pstats
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
from moto import mock_aws

from bench.harness import options, show
from local.stages import ROOT
from states_language import load

LENGTHS = (1_000, 10_000, 100_000)
LOOP: dict[str, Any] = {
    "StartAt": "Count",
    "States": {
        "Count": {
            "Type": "Pass",
            "Parameters": {"n.$": "States.MathAdd($.n, 1)", "most.$": "$.most"},
            "Next": "Look",
        },
        "Look": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.n", "NumericLessThanPath": "$.most", "Next": "Count"}],
            "Default": "Over",
        },
        "Over": {"Type": "Succeed"},
    },
}
OURS, MOTO, NPM = "streamkeeper", "moto", "aws-local-stepfunctions"
_NODE = Path(__file__).with_name("interpreter.mjs")
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass(frozen=True)
class Row:
    """One run of the loop; `whole` is whether it reached its end, `events` 0 where they were not counted."""

    interpreter: str
    iterations: int
    transitions: int
    events: int
    seconds: float
    cpu_seconds: float
    whole: bool

    @property
    def rate(self) -> float:
        """Transitions a second."""
        return self.transitions / self.seconds

    @property
    def cpu_rate(self) -> float:
        """Transitions a second of CPU time, which other work on the machine does not change."""
        return self.transitions / self.cpu_seconds


def ours(lengths: tuple[int, ...]) -> Iterator[Row]:
    """Yield a row for each length, without the limit of 25,000 events."""
    load(LOOP).execute({"n": 0, "most": lengths[0]}, history_limit=None)
    for most in lengths:
        machine = load(LOOP)
        begun_s, before_s = time.perf_counter(), time.process_time()
        execution = machine.execute({"n": 0, "most": most}, history_limit=None)
        events = len(execution.history)
        seconds, cpu_seconds = time.perf_counter() - begun_s, time.process_time() - before_s
        yield Row(OURS, most, execution.transitions, events, seconds, cpu_seconds, execution.output["n"] == most)


def npm(lengths: tuple[int, ...]) -> Iterator[Row]:
    """Yield a row for each length; needs Node.js and node_modules."""
    node = shutil.which("node")
    if node is None or not (ROOT / "node_modules" / NPM).is_dir():
        print(f"bench.interpreter: {NPM} is left out: it needs Node.js and `make setup`.", file=sys.stderr)
        return
    loops = json.dumps({"definition": LOOP, "lengths": lengths})
    run = subprocess.run([node, str(_NODE)], input=loops, capture_output=True, text=True, check=True, cwd=ROOT)
    for line in run.stdout.splitlines():
        figures = json.loads(line)
        most, whole = figures["iterations"], figures["reached"] == figures["iterations"]
        yield Row(NPM, most, 2 * most + 1, 0, figures["seconds"], figures["cpu_seconds"], whole)


def moto(lengths: tuple[int, ...], limit_s: float) -> Iterator[Row]:
    """Yield a row for each length, stopped after limit_s; the API is polled ten times a second."""
    settings: Any = {"stepfunctions": {"execute_state_machine": True}}
    with _no_log(), patch.dict(os.environ, _CREDENTIALS), mock_aws(config=settings):
        client = boto3.client("stepfunctions", region_name="us-east-1")
        arn = client.create_state_machine(
            name="loop", definition=json.dumps(LOOP), roleArn="arn:aws:iam::111111111111:role/loop"
        )["stateMachineArn"]
        for most in lengths:
            begun_s, before_s = time.perf_counter(), time.process_time()
            input_ = json.dumps({"n": 0, "most": most})
            execution = client.start_execution(stateMachineArn=arn, name=f"loop-{most}", input=input_)
            named = {"executionArn": execution["executionArn"]}
            while client.describe_execution(**named)["status"] == "RUNNING":
                if time.perf_counter() - begun_s > limit_s:
                    break
                time.sleep(0.1)
            seconds, cpu_seconds = time.perf_counter() - begun_s, time.process_time() - before_s
            whole = client.describe_execution(**named)["status"] == "SUCCEEDED"
            events = client.get_execution_history(**named)["events"]
            if not whole:
                client.stop_execution(**named)
            entered = sum(event["type"].endswith("StateEntered") for event in events)
            yield Row(MOTO, most, entered, len(events), seconds, cpu_seconds, whole)


@contextmanager
def _no_log() -> Iterator[None]:
    """Log nothing inside: moto logs a page of text when an execution is stopped."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


def hottest(most: int = 10_000, count: int = 5) -> list[str]:
    """Return our functions that take the most time of their own in the loop, each with its share."""
    machine = load(LOOP)
    profile = cProfile.Profile()
    profile.enable()
    machine.execute({"n": 0, "most": most}, history_limit=None)
    profile.disable()
    stats: Any = pstats.Stats(profile)
    total_s = stats.total_tt
    ordered = sorted(stats.stats.items(), key=lambda item: -item[1][2])[:count]
    return [
        f"{Path(file).name}:{name} {own_s / total_s:.0%}" if line else f"{name} {own_s / total_s:.0%}"
        for (file, line, name), (_, _, own_s, _, _) in ordered
    ]


def ratios(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Return ours as a multiple of each peer's transitions a second, by the peer and the rounds of the loop."""
    own = {row.iterations: row.rate for row in rows if row.interpreter == OURS}
    multiples: dict[str, dict[str, float]] = {}
    for row in rows:
        if row.interpreter != OURS:
            multiples.setdefault(row.interpreter, {})[str(row.iterations)] = round(own[row.iterations] / row.rate, 1)
    return multiples


def table(rows: list[Row]) -> list[str]:
    """Return the lines of the tables: rates, and ours as a multiple of each peer's."""
    cut = {(row.interpreter, row.iterations) for row in rows if not row.whole}
    by_time = {(row.interpreter, row.iterations): row.rate for row in rows}
    by_cpu = {(row.interpreter, row.iterations): row.cpu_rate for row in rows}
    return [*_rates("transitions/s", by_time, cut), "", *_rates("transitions/CPU second", by_cpu, cut)]


def _rates(title: str, rates: dict[tuple[str, int], float], cut: set[tuple[str, int]]) -> Iterator[str]:
    names, lengths = list(dict.fromkeys(name for name, _ in rates)), sorted({length for _, length in rates})
    yield f"{title:<34}" + "".join(f"{length:>12,}" for length in lengths)
    for name in names:
        cells = (f"{rates[name, n]:,.0f}{'*' if (name, n) in cut else ''}" for n in lengths)
        yield f"{name:<34}" + "".join(f"{cell:>12}" for cell in cells)
    for name in names[1:]:
        cells = (f"{rates[OURS, n] / rates[name, n]:,.1f}" for n in lengths)
        yield f"{f'ratio to {name}':<34}" + "".join(f"{cell:>12}" for cell in cells)


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0."""
    asked = options(
        argv, __doc__, moto_seconds=(20.0, "after how long moto is stopped"), lengths=(LENGTHS, "rounds of the loop")
    )
    lengths = tuple(asked.lengths)
    rows = [*ours(lengths), *npm(lengths), *moto(lengths, asked.moto_seconds)]
    profile = hottest()
    shown = [asdict(row) | {"rate": round(row.rate), "cpu_rate": round(row.cpu_rate)} for row in rows]
    lines = [*table(rows), "* stopped before its end", "most time of their own: " + ", ".join(profile)]
    return show(asked, {"rows": shown, "ratios": ratios(rows), "profile": profile}, lines)


if __name__ == "__main__":
    sys.exit(main())

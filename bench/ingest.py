"""`python -m bench.ingest`: measures CPU per event from the socket to the acknowledged write, ours beside the peer.

Each run is a process of its own, so that only its CPU counts; upstream and DynamoDB are two other processes, the same
for all. The kinds run in turn, so that other work on the machine disturbs all alike, and the median is reported.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.harness import options, process, show, so, table

PROFILE = """
address = "${UPSTREAM_BENCH}"
allow_private = true
framing = "sse"
end = { event = "end" }
"""
# The same events packed into a log, and as items that no index has.
PROFILES = {"log": PROFILE + 'store = "log"\n', "unordered": PROFILE + 'order = "none"\n'}
KINDS = ("floor", "ours", "unordered", "log", "peer")
# "The CPU for an event of 200 bytes at 1,000/s is below half of the item store's": with a part of the events.
GOAL_BYTES, GOAL_PER_S, GOAL_SHARE = 200, 1000, 0.5
PACED_SHARE = 4
# The plain handler is so much slower that it gets only a part of the events.
PEERS_SHARE = 10


def environment(folder: Path, endpoint: str, upstream: str, events: int, event_bytes: int) -> dict[str, str]:
    """Return a function's environment, with the values that the floor needs."""
    return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_EC2_METADATA_DISABLED": "true",
        "EVENTS_TABLE": "events",
        "CONTROL_TABLE": "control",
        "DEAD_LETTER_QUEUE_URL": f"{endpoint}/queue",
        "STREAMS_DIR": str(folder),
        "MARGIN_S": "20",
        "LEASE_EVERY_S": "2",
        "PROGRESS_EVERY_S": "5",
        "WAIT_S": "840",
        "KEEP_DAYS": "30",
        "LEDGER_KEEP_DAYS": "0",
        "METRICS_BY": "stage",
        "SECRETS_PREFIX": "/streamkeeper/test/",
        "POWERTOOLS_SERVICE_NAME": "bench",
        "POWERTOOLS_METRICS_NAMESPACE": "bench",
        "POWERTOOLS_LOG_LEVEL": "WARNING",
        "UPSTREAM_BENCH": upstream,
        "BENCH_EVENTS": str(events),
        "BENCH_EVENT_BYTES": str(event_bytes),
    }


def run(kind: str, events: int, event_bytes: int, per_s: int = 0) -> dict[str, Any]:
    """Return the figures of one of KINDS for `events`, with an empty table; 0 `per_s` is as fast as they are read."""
    source = (f"--events={events}", f"--event-bytes={event_bytes}", f"--per-s={per_s}")
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        process("bench.tables") as (endpoint, _),
        process("bench.source", *source) as (upstream, _),
    ):
        (Path(folder) / "bench.toml").write_text(PROFILES.get(kind, PROFILE))
        variables = environment(Path(folder), endpoint, upstream, events, event_bytes)
        command = [sys.executable, "-m", "bench.consumers", kind]
        done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
        figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert figures["events"] == events, f"{kind} stored {figures['events']} of {events}"
        return figures


def measure(events: int, event_bytes: int, times: int, per_s: int = 0) -> dict[str, Any]:
    """Return the medians of `times` runs.

    `ratio` is the plain handler's by ours, `floors` ours by the floor, `log_share` what a log takes by what items take.
    """
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for _ in range(times):
        for kind in KINDS:
            count = max(1, events // PEERS_SHARE) if kind == "peer" else events
            runs[kind].append(run(kind, count, event_bytes, per_s))
    cpu_us = {kind: statistics.median(each["cpu_us"] for each in of) for kind, of in runs.items()}
    reached = {kind: round(statistics.median(each["events_per_s"] for each in of)) for kind, of in runs.items()}
    return {
        "event_bytes": event_bytes,
        **{f"{kind}_us": cpu for kind, cpu in cpu_us.items()},
        "ratio": round(cpu_us["peer"] / cpu_us["ours"], 1),
        "floors": round(cpu_us["ours"] / cpu_us["floor"], 2),
        "log_share": round(cpu_us["log"] / cpu_us["ours"], 2),
        "events_per_s": reached,
        "max_rss_mb": max(each["max_rss_mb"] for each in runs["ours"]),
    }


def paced_share(events: int, times: int) -> float:
    """Return what a log takes by what items take, of events of GOAL_BYTES at GOAL_PER_S, by the medians of the runs."""
    runs: dict[str, list[float]] = {"ours": [], "log": []}
    for _ in range(times):
        for kind, of in runs.items():
            of.append(run(kind, events, GOAL_BYTES, GOAL_PER_S)["cpu_us"])
    return round(statistics.median(runs["log"]) / statistics.median(runs["ours"]), 2)


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0; 1 where the goal is missed."""
    asked = options(
        argv, __doc__, events=(20_000, "how many events a run stores"), times=(3, "how many runs of each"),
        event_bytes=([200, 1000], "bytes of JSON in an event"),
        per_s=(0, "events a second, 0 for as many as are read"),
    )  # fmt: skip
    rows = [measure(asked.events, event_bytes, asked.times, asked.per_s) for event_bytes in asked.event_bytes]
    share = paced_share(max(1, asked.events // PACED_SHARE), asked.times)
    goal = {"event_bytes": GOAL_BYTES, "per_s": GOAL_PER_S, "log_share": share, "below": GOAL_SHARE}
    kinds = ("ours", "unordered", "log", "peer", "floor")
    heads = (
        "bytes",
        *(f"{kind} µs" for kind in kinds),
        "ratio",
        "floors",
        "log share",
        *(f"{kind}/s" for kind in kinds[:4]),
    )
    cells = [
        (
            row["event_bytes"], *(row[f"{kind}_us"] for kind in kinds), row["ratio"], row["floors"], row["log_share"],
            *(row["events_per_s"][kind] for kind in kinds[:4]),
        )
        for row in rows
    ]  # fmt: skip
    words = f"of {GOAL_BYTES} bytes at {GOAL_PER_S} a second a log takes {share}, below {GOAL_SHARE} of what items take"
    figures = {"events": asked.events, "times": asked.times, "rows": rows, "goal": goal}
    return show(asked, figures, table(heads, cells, left=0), [so("log", words, share < GOAL_SHARE)])


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.ingest`: measures CPU per event from the socket to the acknowledged write, compared with a peer.

`ours` is the connection manager's handler, `log` and `unordered` the same with such a profile. `paths` names each event
by a place in its JSON, and so does `socket`, which reads the same events from a WebSocket. `peer` is the plain
handler with one boto3 `put_item` per chunk. `floor` is the least that the requests alone can cost: signed
BatchWriteItem of the same items, over a bare socket. Each run is a process whose CPU, user and system, counts once
imports and clients are made; upstream and DynamoDB are two other processes, the same for all. The kinds run in turn, so
that other work on the machine disturbs all equally, and the median is reported. `--items-per-s` measures our memory
instead, with a store that throttles while the upstream sends as fast as it is read. Invariant: when the clock stops,
every event is stored and every write acknowledged.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.function import environment
from bench.harness import Goal, Row, figures_of, goal_if, parse_options, run_module, say, show
from bench.upstreams import Plan

PROFILE = """
address = "${UPSTREAM_BENCH}"
allow_private = true
framing = "sse"
end = { data = "[DONE]" }
"""
PATHS = PROFILE + 'key = "$.n"\ncursor = "$.n"\n'
# The same events packed into a log, as items without an index, and by another framing.
PROFILES = {
    "log": PROFILE + 'store = "log"\n',
    "unordered": PROFILE + 'order = "none"\n',
    "paths": PATHS,
    "socket": PATHS.replace('"sse"', '"websocket"'),
}
KINDS = ("ours", "unordered", "log", "paths", "socket", "peer", "floor")
# "An event of a socket costs no more than one of SSE."
GOAL_SOCKET = 1
# "The CPU for an event of 200 bytes at 1,000/s is below half of the item store's": measured with a part of the events.
GOAL_BYTES, GOAL_PER_S, GOAL_SHARE = 200, 1000, 0.5
PACED_SHARE = 4
# The plain handler is so much slower that it gets only a part of the events.
PEERS_SHARE = 10
# The memory of Lambda's smallest function.
GOAL_MB = 128


@contextmanager
def run_beside(kind: str, plan: Plan, items_per_s: int = 0) -> Iterator[tuple[dict[str, str], Any]]:
    """Run an upstream and empty tables; yield a function's environment and the upstream's process."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        (endpoint,), _ = stack.enter_context(run_module("bench.tables", f"--items-per-s={items_per_s}"))
        (upstream, _), source = stack.enter_context(run_module("bench.upstreams", json.dumps(asdict(plan))))
        (folder / "bench.toml").write_text(PROFILES.get(kind, PROFILE))
        address = upstream.replace("http", "ws", 1) if plan.framing == "websocket" else upstream
        yield environment(folder, endpoint, UPSTREAM_BENCH=f"{address}/fixed"), source


def run(kind: str, events: int, event_bytes: int, per_s: int = 0, items_per_s: int = 0) -> Row:
    """Return the figures of one of KINDS for `events`, with an empty table; 0 `per_s` is as fast as they are read."""
    framing = "websocket" if kind == "socket" else "sse"
    plan = Plan({"fixed": 1}, framing, events_per_s=per_s, event_bytes=event_bytes, events=events)
    with run_beside(kind, plan, items_per_s) as (variables, source):
        command = ("-m", "bench.consumers", "peer" if kind == "peer" else "floor" if kind == "floor" else "ours")
        figures: Row = figures_of(*command, str(events), str(event_bytes), variables=variables)
        assert figures["events"] == events, f"{kind} stored {figures['events']} of {events}"
        return figures | ({} if kind == "floor" else json.loads(source.stdout.readline()))


def measure(events: int, event_bytes: int, times: int, per_s: int = 0) -> Row:
    """Return the medians of `times` runs.

    `ratio` is the plain handler's CPU divided by ours, `floors` ours by the floor, `log_share` a log's by the items',
    `socket_share` a socket's by that of the same events by SSE.
    """
    runs: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    for _ in range(times):
        for kind in KINDS:
            count = max(1, events // PEERS_SHARE) if kind == "peer" else events
            runs[kind].append(run(kind, count, event_bytes, per_s))
    cpu_us = {kind: statistics.median(each["cpu_us"] for each in of) for kind, of in runs.items()}
    return {
        "event_bytes": event_bytes,
        **{f"{kind}_us": cpu for kind, cpu in cpu_us.items()},
        "ratio": round(cpu_us["peer"] / cpu_us["ours"], 1),
        "floors": round(cpu_us["ours"] / cpu_us["floor"], 2),
        "log_share": round(cpu_us["log"] / cpu_us["ours"], 2),
        "socket_share": round(cpu_us["socket"] / cpu_us["paths"], 2),
        "events_per_s": {
            kind: round(statistics.median(each["events_per_s"] for each in of)) for kind, of in runs.items()
        },
        "max_rss_mb": max(each["max_rss_mb"] for each in runs["ours"]),
    }


def paced_share(events: int, times: int) -> float:
    """Return the CPU of a log as a share of that of items, for GOAL_BYTES at GOAL_PER_S, by the medians of the runs."""
    log, items = (
        statistics.median(run(kind, events, GOAL_BYTES, GOAL_PER_S)["cpu_us"] for _ in range(times))
        for kind in ("log", "ours")
    )
    return float(round(log / items, 2))


def measure_throttled(events: int, event_bytes: int, items_per_s: int) -> tuple[list[Row], list[Goal]]:
    """Return our figures with a store that accepts all and with one that throttles, and the goal of its memory."""
    rows: list[Row] = [
        {"items_per_s": limit or "all"} | run("ours", events, event_bytes, 0, limit) for limit in (0, items_per_s)
    ]
    most_mb = rows[1]["max_rss_mb"]
    return rows, [goal_if("slow store", f"below {GOAL_MB} MB: {most_mb} MB", most_mb < GOAL_MB)]


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0, or 1 if a goal is missed."""
    asked = parse_options(
        argv,
        __doc__,
        events=(20_000, "how many events a run stores"),
        times=(3, "how many runs of each"),
        event_bytes=([200, 1000], "bytes of JSON in an event"),
        per_s=(0, "events a second, 0 for as many as are read"),
        items_per_s=(0, "measure memory alone, at a store that takes so many items a second"),
    )
    if asked.items_per_s:
        rows, judged = measure_throttled(asked.events, asked.event_bytes[0], asked.items_per_s)
        return show(asked, {"goal_mb": GOAL_MB, "rows": rows}, judged)
    rows = []
    for event_bytes in asked.event_bytes:
        rows.append(measure(asked.events, event_bytes, asked.times, asked.per_s))
        say(__doc__, rows[-1])
    share = paced_share(max(1, asked.events // PACED_SHARE), asked.times)
    goal = {"event_bytes": GOAL_BYTES, "per_s": GOAL_PER_S, "log_share": share, "below": GOAL_SHARE}
    words = f"of {GOAL_BYTES} bytes at {GOAL_PER_S} a second a log takes {share}, below {GOAL_SHARE} of what items take"
    figures = {"events": asked.events, "times": asked.times, "rows": rows, "goal": goal}
    shares = [row["socket_share"] for row in rows]
    by_socket = goal_if("socket", f"an event takes {shares} of one of SSE", max(shares) <= GOAL_SOCKET)
    return show(asked, figures, [goal_if("log", words, share < GOAL_SHARE), by_socket])


if __name__ == "__main__":
    sys.exit(main())

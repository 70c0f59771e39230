"""`python -m bench.backlog`: measures a function's memory while its upstream sends faster than DynamoDB writes.

The same upstream sends the same events twice, once with an endpoint that accepts everything and once with one that
throttles. The upstream also reports how long it could not send: that is back-pressure through TCP, for nothing else
between the two holds bytes.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.harness import options, process, show, table
from bench.ingest import PROFILE, environment

# The memory of Lambda's smallest function.
GOAL_MB = 128


def run(events: int, event_bytes: int, items_per_s: int) -> dict[str, Any]:
    """Return the function's figures and how long the upstream stood still; `items_per_s` 0 throttles nothing."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        process("bench.tables", f"--items-per-s={items_per_s}") as (endpoint, _),
        process("bench.source", f"--events={events}", f"--event-bytes={event_bytes}") as (upstream, source),
    ):
        (Path(folder) / "bench.toml").write_text(PROFILE)
        variables = environment(Path(folder), endpoint, upstream, events, event_bytes)
        command = [sys.executable, "-m", "bench.consumers", "ours"]
        done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
        figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert source.stdout is not None
        figures |= json.loads(source.stdout.readline())
        return figures


def measure(events: int, event_bytes: int, items_per_s: int) -> dict[str, Any]:
    """Return the figures of both runs; every event is stored in each."""
    return {
        "sent_mb": round(events * event_bytes / 1e6, 1),
        "items_per_s": items_per_s,
        "fast": run(events, event_bytes, 0),
        "slow": run(events, event_bytes, items_per_s),
        "goal_mb": GOAL_MB,
    }


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0."""
    asked = options(
        argv, __doc__, events=(20_000, "how many events are sent"), event_bytes=(3000, "bytes of JSON in an event"),
        items_per_s=(2000, "what the slow endpoint accepts"),
    )  # fmt: skip
    figures = measure(asked.events, asked.event_bytes, asked.items_per_s)
    names = ("events", "events_per_s", "max_rss_mb", "stood_still_s")
    rows = [
        (words, *(figures[name][column] for column in names))
        for name, words in (("fast", "accepts all"), ("slow", f"accepts {asked.items_per_s}/s"))
    ]
    head = f"{figures['sent_mb']} MB sent as fast as they are read; the goal is to stay below {GOAL_MB} MB"
    return show(asked, figures, [head, *table(("endpoint", *names), rows)])


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.backlog`: measures a function's memory while its upstream sends faster than DynamoDB writes.

The same upstream sends the same events twice, once with an endpoint that accepts everything and once with one that
throttles. The upstream also reports how long it could not send: that is back-pressure through TCP, for nothing else
between the two holds bytes.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.ingest import PROFILE, environment, process

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
    parser = argparse.ArgumentParser(prog="python -m bench.backlog", description="Measures memory behind a slow store.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--events", type=int, default=20_000, help="how many events are sent (default 20000)")
    parser.add_argument("--event-bytes", type=int, default=3000, help="bytes of JSON in an event (default 3000)")
    parser.add_argument("--items-per-s", type=int, default=2000, help="what the slow endpoint accepts (default 2000)")
    options = parser.parse_args(argv)
    figures = measure(options.events, options.event_bytes, options.items_per_s)
    if options.json:
        print(json.dumps(figures, indent=1))
        return 0
    print(f"{figures['sent_mb']} MB sent as fast as they are read")
    print(f"{'endpoint':<22}{'stored':>8}{'events/s':>10}{'max RSS':>10}{'upstream stood still':>23}")
    for name, words in (("fast", "accepts all"), ("slow", f"accepts {figures['items_per_s']}/s")):
        row = figures[name]
        held = f"{row['max_rss_mb']:>7.1f} MB{row['stood_still_s']:>21.1f} s"
        print(f"{words:<22}{row['events']:>8}{row['events_per_s']:>10}{held}")
    verdict = "ok" if figures["slow"]["max_rss_mb"] < GOAL_MB else "missed"
    print(f"goal: less than {GOAL_MB} MB: {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

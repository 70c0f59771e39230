"""`python -m bench.backlog`: what a function holds while its upstream sends faster than DynamoDB takes.

Decides how slow the endpoint is and what is reported. The same upstream sends the same events twice, once to an
endpoint that takes all at once and once to one that throttles; nothing else differs. The upstream tells how long its
sending stood still: that is back-pressure, which reached it through TCP, since nothing else between them could hold it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.ingest import PROFILE, environment, process

# The smallest function of Lambda's.
GOAL_MB = 128


def run(events: int, event_bytes: int, items_per_s: int) -> dict[str, Any]:
    """What the function used and held, and how long the upstream stood still; `items_per_s` 0 throttles nothing."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        process("bench.endpoint", f"--items-per-s={items_per_s}") as (endpoint, _),
        process("bench.source", f"--events={events}", f"--event-bytes={event_bytes}") as (upstream, source),
    ):
        (Path(folder) / "bench.toml").write_text(PROFILE)
        variables = environment(Path(folder), endpoint, upstream, events, event_bytes)
        command = [sys.executable, "-m", "bench.takers", "ours"]
        done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert source.stdout is not None
        found |= json.loads(source.stdout.readline())
        return found


def measure(events: int, event_bytes: int, items_per_s: int) -> dict[str, Any]:
    """Both runs; every event is stored in each."""
    found = {"fast": run(events, event_bytes, 0), "slow": run(events, event_bytes, items_per_s)}
    return {
        "sent_mb": round(events * event_bytes / 1e6, 1),
        "items_per_s": items_per_s,
        **found,
        "goal_mb": GOAL_MB,
    }


def main(argv: list[str] | None = None) -> int:
    """Returns 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.backlog", description="Measures memory behind a slow store.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--events", type=int, default=20_000, help="how many events are sent (default 20000)")
    parser.add_argument("--event-bytes", type=int, default=3000, help="bytes of JSON in an event (default 3000)")
    parser.add_argument("--items-per-s", type=int, default=2000, help="what the slow endpoint takes (default 2000)")
    wanted = parser.parse_args(argv)
    found = measure(wanted.events, wanted.event_bytes, wanted.items_per_s)
    if wanted.json:
        print(json.dumps(found, indent=1))
        return 0
    print(f"{found['sent_mb']} MB sent as fast as they are taken")
    print(f"{'endpoint':<22}{'stored':>8}{'events/s':>10}{'max RSS':>10}{'upstream stood still':>23}")
    for name, words in (("fast", "takes all"), ("slow", f"takes {found['items_per_s']}/s")):
        row = found[name]
        held = f"{row['max_rss_mb']:>7.1f} MB{row['stood_still_s']:>21.1f} s"
        print(f"{words:<22}{row['events']:>8}{row['events_per_s']:>10}{held}")
    verdict = "ok" if found["slow"]["max_rss_mb"] < GOAL_MB else "missed"
    print(f"goal: less than {GOAL_MB} MB: {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

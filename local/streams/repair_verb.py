"""The verb `repair`: repairs gaps now, shows the outcome of each, and prints the cost."""

import argparse
import json
import time
from collections.abc import Collection, Iterable
from typing import Any

from handlers.api.verdict import plural
from local.costs.repair_costs import cost_usd
from local.streams import api_session
from local.streams.api_session import DONE, NOT_RUNNING, gap_period, repair_words
from local.terminal import print_line, printable, report_if_slow
from streamkeeper.transport import path_of

POLL_S = 1.0
# The function itself repeats failed tries for half a minute; later tries are made by the watch, and nobody waits.
WAIT_S = 60.0
WAITS, CLOSED = ("open", "lost"), ("repaired", "delivered")


def run(arguments: argparse.Namespace) -> int:
    """Returns the exit status."""
    streams, stream_id = api_session.open_session(arguments), arguments.stream_id
    times = api_session.read_times(streams, arguments)
    query = times | {"dry_run": "true" if arguments.dry_run else None}
    answer = streams.request("POST", path_of(stream_id, "/repair"), query)
    wanted = [gap["from_at"] for gap in answer["gaps"]]
    if wanted and arguments.dry_run:
        for gap in answer["gaps"]:
            _print_gap(gap, arguments.json, "would be ")
        return NOT_RUNNING if _count_open(answer["gaps"]) else DONE
    if not wanted or arguments.no_wait:
        words = f"{plural(len(wanted), 'gap')} will be repaired"
        if not wanted:
            when = " in that time" if any(times.values()) else ""
            words = f"{stream_id} has no gap{when} in which events may be missing"
        print(json.dumps(answer) if arguments.json else printable(words))
        return DONE
    with report_if_slow(f"repairing {plural(len(wanted), 'gap')} …"):
        ended = _wait_for_outcomes(streams, stream_id, times | {"from": min(wanted)}, wanted, is_json=arguments.json)
    left = len(wanted) - len(ended) + _count_open(ended)
    if not arguments.json:
        stored = sum(gap["repair"]["stored"] for gap in ended if "repair" in gap)
        cost = f"about ${cost_usd(len(wanted), stored):.6f}"
        print(f"{plural(stored, 'event')} fetched, {plural(left, 'gap')} still open; {cost}")
    return NOT_RUNNING if left else DONE


def _wait_for_outcomes(
    streams: Any, stream_id: str, times: dict[str, Any], wanted: Collection[str], *, is_json: bool
) -> Collection[dict[str, Any]]:
    """Shows each gap once its outcome is known, and returns those with an outcome.

    A loss that the upstream announced, or the gap of another part, may begin at the same instant.
    """
    ended: dict[Any, dict[str, Any]] = {}
    until = time.monotonic() + WAIT_S
    while len(ended) < len(wanted) and time.monotonic() < until:
        time.sleep(POLL_S)
        for page in streams.pages(path_of(stream_id, "/gaps"), times):
            for gap in page["gaps"]:
                is_tried = gap["state"] not in WAITS and gap.get("repair", {}).get("tries", 0) > 0
                key = gap.get("stream"), gap["from_at"], gap["cause"]
                if gap["from_at"] in wanted and key not in ended and (is_tried or gap["state"] in CLOSED):
                    ended[key] = gap
                    _print_gap(gap, is_json)
    return ended.values()


def _count_open(gaps: Iterable[dict[str, Any]]) -> int:
    """How many of the gaps are, or would be, still open."""
    return sum(gap["state"] not in CLOSED for gap in gaps)


def _print_gap(gap: dict[str, Any], is_json: bool, would: str = "") -> None:
    line = f"{gap_period(gap)}  {would}{gap['state']}{repair_words(gap)}"
    print(json.dumps(gap)) if is_json else print_line(line)

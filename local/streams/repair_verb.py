"""The verb `repair`: repairs gaps now, shows the outcome of each, and prints the cost."""

import argparse
import json
import time
from typing import Any

from handlers.api.verdict import counted
from local.costs.repair_costs import cost_usd
from local.printable import printable, saying, show
from local.streams import asking
from local.streams.asking import DONE, NOT_RUNNING, path_of, period, repair_words

NOT_REPAIRED = NOT_RUNNING
POLL_S = 1.0
# The function repeats a failed try for half a minute before the watch does; after that the outcome stands.
WAIT_S = 60.0
WAITS = ("open", "lost")


def run(arguments: argparse.Namespace) -> int:
    """Returns the exit status."""
    asking.check_order(arguments)
    streams, stream_id = asking.streams(arguments), arguments.stream_id
    times = {"from": arguments.from_at, "to": arguments.to_at}
    query = {name: at for name, at in times.items() if at is not None}
    answer = streams.ask(
        "POST", path_of(stream_id, "/repair"), query | ({"dry_run": "true"} if arguments.dry_run else {})
    )
    wanted = {gap["from_at"]: gap for gap in answer["gaps"]}
    if not wanted:
        print(
            json.dumps(answer)
            if arguments.json
            else printable(f"{stream_id} has no gap in which events may be missing")
        )
        return DONE
    if arguments.dry_run:
        for gap in answer["gaps"]:
            _show(gap, arguments.json, "would be ")
        return DONE
    if arguments.no_wait:
        print(json.dumps(answer) if arguments.json else f"{counted(len(wanted), 'gap')} will be repaired")
        return DONE
    with saying(f"repairing {counted(len(wanted), 'gap')} …"):
        ended = _wait(streams, stream_id, times, wanted, is_json=arguments.json)
    pages = sum(gap["repair"]["tries"] for gap in ended.values() if "repair" in gap)
    if not arguments.json:
        stored = sum(gap["repair"]["stored"] for gap in ended.values() if "repair" in gap)
        left = len(wanted) - sum(gap["state"] in ("repaired", "delivered") for gap in ended.values())
        cost = f"about ${cost_usd(len(wanted), pages, stored):.6f}"
        print(f"{counted(stored, 'event')} came, {counted(left, 'gap')} left; {cost}")
    is_done = len(ended) == len(wanted) and all(gap["state"] in ("repaired", "delivered") for gap in ended.values())
    return DONE if is_done else NOT_REPAIRED


def _wait(
    streams: Any, stream_id: str, times: dict[str, Any], wanted: dict[str, Any], *, is_json: bool
) -> dict[str, dict[str, Any]]:
    """The gaps with an outcome, each shown when it is known."""
    ended: dict[str, dict[str, Any]] = {}
    until = time.monotonic() + WAIT_S
    while len(ended) < len(wanted) and time.monotonic() < until:
        time.sleep(POLL_S)
        for page in streams.pages(path_of(stream_id, "/gaps"), times):
            for gap in page["gaps"]:
                is_tried = gap.get("repair", {}).get("tries", 0) > 0
                if gap["from_at"] in wanted and gap["from_at"] not in ended and gap["state"] not in WAITS and is_tried:
                    ended[gap["from_at"]] = gap
                    _show(gap, is_json)
    return ended


def _show(gap: dict[str, Any], is_json: bool, would: str = "") -> None:
    line = f"{period(gap)}  {would}{gap['state']}{repair_words(gap['repair'])}"
    print(json.dumps(gap)) if is_json else show(line)

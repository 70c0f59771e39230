"""The verb `list`: all streams that were ever started, the worst first; those that share a function come last.

As JSON the streams are in the order of their ids, and printed as they arrive; for a person all are read first.
"""

import argparse
import json
import sys
from datetime import datetime
from functools import partial
from typing import Any

from handlers.api.verdict import length_words
from local.streams import api_session
from local.streams.api_session import DONE, colour_status
from local.terminal import pad, printable, wrap_line
from streamkeeper.following import instants_by_api_clock
from streamkeeper.instants import NOW

# As the page has it (handlers/console/streams.js); "unwell" is a running stream with a problem or an open gap.
WORST_FIRST = (
    "broken", "rejected", "unknown", "reconnecting", "unwell", "starting", "stopping", "running", "ended", "stopped",
)  # fmt: skip
_RANKS = {status: rank for rank, status in enumerate(WORST_FIRST)}


def run(arguments: argparse.Namespace) -> int:
    """Returns the exit status."""
    api = api_session.open_session(arguments)
    streams = (one for page in api.pages("/connections", {}) for one in page["streams"])
    if arguments.json:
        for one in streams:
            print(json.dumps(one))
        return DONE
    groups: dict[str, list[dict[str, Any]]] = {}
    for one in sorted(streams, key=_rank):
        groups.setdefault(one.get("group", ""), []).append(one)
    if not groups:
        print("streamkeeper: no stream was started yet.", file=sys.stderr)
        return DONE
    [now] = api.perform(instants_by_api_clock(NOW))
    listed = partial(_stream_line, datetime.fromisoformat(now or ""))
    print("\n".join([f"{'status':<12}  {'stream':<24}  {'for':<7}  last event  why", *map(listed, groups.pop("", []))]))
    for group, members in groups.items():
        print("\n".join(["", _group_line(group, members), *map(listed, members)]))
    return DONE


def _rank(stream: dict[str, Any]) -> int:
    """Returns how bad a stream's status is, 0 for the worst; streams with the same status stay in the order of ids."""
    is_unwell = stream["status"] == "running" and (stream["reason"] or stream["open_gaps"])
    return _RANKS.get("unwell" if is_unwell else stream["status"], 0)


def _stream_line(now: datetime, stream: dict[str, Any]) -> str:
    """A stream's line: its status, its id, for how long it has had the status, its last event, and what is wrong."""
    lasted, last = _age(stream["since_at"], now), _age(stream["last_event_at"], now)
    # The connections that a list reads may not go back to the last pause.
    if stream["since_before_at"]:
        lasted = f">{_age(stream['since_before_at'], now)}"
    word, why = stream["status"], "" if stream["status"] == "stopped" else stream["reason"] or ""
    line = f"{word:<12}  {pad(printable(stream['stream']), 24)}  {lasted:<7}  {last:<10}  {printable(why)}".rstrip()
    return colour_status(word) + "\n".join(wrap_line(line, 14)).removeprefix(word)


def _age(instant: str | None, now: datetime) -> str:
    if instant is None:
        return "–"
    return length_words(int((now - datetime.fromisoformat(instant)).total_seconds() * 1000), 1)


def _group_line(group: str, streams: list[dict[str, Any]]) -> str:
    """A line about a group's function: its lane, and how many of its streams are connected."""
    lanes = sorted({stream["holder"]["lane"] for stream in streams if stream["holder"]})
    held = f", lane {' and '.join(lanes)}" if lanes else ""
    running = sum(stream["status"] == "running" for stream in streams)
    return printable(f"group {group}{held}: {running} of {len(streams)} running")

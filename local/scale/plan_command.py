"""The verb `plan`: proposes settings and a profile for described streams, with their price and first limit."""

import argparse
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from handlers.api.verdict import plural
from handlers.profile.addresses import ProfileError
from handlers.profile.parse import parse
from local.costs import prices
from local.costs.command import MOST_BYTES, MOST_EVENTS_PER_S, MOST_STREAMS
from local.costs.model import stage_usd
from local.profiles import folders
from local.profiles.profile_files import placeholders, read_profile_text
from local.scale.fleet import REGIONS
from local.scale.planning import MOST_FLUSH_S, Plan, PlanRequest, make_plan
from local.terminal import UserError, WrappedHelp, print_line, read_choice, read_number, whole_number

PER_S = {"s": 1, "min": 60, "h": 3_600, "day": 86_400}
_RATE = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]+)?)/(s|min|h|day)")
EXAMPLES = """examples:
  streamkeeper plan --rate 100/s
  streamkeeper plan --rate 6/min --event-bytes 2000 --streams 1000 --wait-s 60
  streamkeeper plan --rate 30000/s --connect-s 0.2 --region large --json
  streamkeeper plan --rate 60000/s --profile demo

docs/plan.md explains the rules of the choice."""


def add(subparsers: Any) -> None:
    """Adds the verb and its options."""
    parser = subparsers.add_parser(
        "plan",
        description="Proposes memory, streams in a function, store and partitions for streams that you describe, and "
        "shows their price a month and the limit that they meet first.",
        epilog=EXAMPLES,
        formatter_class=WrappedHelp,
    )
    parser.add_argument("--rate", metavar="R", help="events of each stream: 100/s, 6/min, 50/h, 1000/day (required)")
    parser.add_argument("--event-bytes", default="200", metavar="B", help="bytes of an event's body (default 200)")
    parser.add_argument("--streams", default="1", metavar="N", help="how many streams of that kind (default 1)")
    parser.add_argument(
        "--connect-s", default="0.9", metavar="S", help="seconds until the upstream answers (default 0.9)"
    )
    parser.add_argument(
        "--wait-s", default="5", metavar="S", help="seconds that a reader may wait for an event (default 5)"
    )
    parser.add_argument("--keep", default="1", metavar="SHARE", help="the share of events that `keep` stores (1: all)")
    parser.add_argument("--within-s", default="600", metavar="S", help="seconds in which all are started (default 600)")
    parser.add_argument(
        "--region", default=REGIONS[0], metavar="KIND", help=f"the region's quotas: {' or '.join(REGIONS)}"
    )
    parser.add_argument("--stage", default="prod", metavar="S", help="whose settings to begin with (default prod)")
    parser.add_argument("--profile", metavar="P", help="a profile's name or file: whether it can be read in parts")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 once the plan is printed; raises UserError if the streams cannot be planned."""
    asked = PlanRequest(
        streams=whole_number("--streams", arguments.streams, 1, MOST_STREAMS),
        events_per_s=read_rate(arguments.rate or ""),
        event_bytes=whole_number("--event-bytes", arguments.event_bytes, 1, MOST_BYTES),
        connect_s=read_number("--connect-s", arguments.connect_s, 0.001, 30),
        wait_s=read_number("--wait-s", arguments.wait_s, 0, MOST_FLUSH_S),
        keep=read_number("--keep", arguments.keep, 0, 1),
        within_s=read_number("--within-s", arguments.within_s, 1, 86_400),
        region=read_choice("--region", arguments.region, REGIONS),
        **({} if arguments.profile is None else read_parts(arguments.profile)),
    )
    listed = prices.read()
    found = make_plan(arguments.stage, asked, listed)
    if arguments.json:
        print(json.dumps({"stage": arguments.stage, "region": listed.region, **found.as_json()}, indent=1))
        return 0
    for line in plan_text(found, arguments.stage, f"{listed.region}, prices of {listed.as_of}").split("\n"):
        print_line(line, 20)
    for note in found.notes:
        print()
        print_line(note[:1].upper() + note[1:], 0)
    return 0


def read_parts(named: str) -> dict[str, Any]:
    """What a profile says about its parts, as Asked takes it; raises UserError if something else in it is wrong."""
    path = folders.known_profiles(os.environ).get(named, Path(named))
    if not path.suffix:
        raise UserError(f"--profile must be the name of a profile or its file, and there is no profile {named!r}.")
    text = read_profile_text(path)
    try:
        table = tomllib.loads(text)
        profile = parse(path.stem, table, placeholders(text))
    except (ProfileError, tomllib.TOMLDecodeError) as problem:
        raise UserError(f"--profile: {path} is wrong: {problem}.") from None
    why = ""
    try:
        # The rules are those of a profile that has parts.
        parse(path.stem, table | {"parts": ["1", "2"]}, placeholders(text))
    except ProfileError as problem:
        why = str(problem)
    return {"profile": path.stem, "parts": len(profile.parts), "why_not_in_parts": why}


def read_rate(text: str) -> float:
    """Returns the events per second of `100/s`, `6/min`, `50/h` or `1000/day`; raises UserError without a unit."""
    found = _RATE.fullmatch(text)
    events = float(re.sub("[_,]", "", found[1])) / PER_S[found[2]] if found else 0
    if not 0 < events <= MOST_EVENTS_PER_S:
        given = f", not {text!r}" if text else ""
        raise UserError(
            f"--rate must be like 100/s, 6/min, 50/h or 1000/day, above 0 and {MOST_EVENTS_PER_S:g}/s at most{given}."
        )
    return events


def plan_text(found: Plan, stage: str, priced: str) -> str:
    """The plan for people: the lines for each file, the price, and the limits."""
    asked, load, (first, at) = found.asked, found.load, found.limit_met_first
    streams = plural(asked.streams, "stream")
    functions = -(-load.streams // load.group_size)
    profile = "  ".join(f"{name} = {json.dumps(value)}" for name, value in found.profile.items())
    split = "" if found.fit.is_whole else f", {plural(found.fit.connections, 'connection')} each"
    rate = format(asked.events_per_s, ",.0f" if asked.events_per_s >= 1000 else ".4g")
    lines = [
        f"{streams} at {rate}/s, events of {plural(asked.event_bytes, 'byte')}{split}",
        "",
        f"env/{stage}.yml".ljust(20) + "  ".join(f"{name}: {value}" for name, value in found.settings.items()),
        f"{'the profile':<20}{profile}",
        f"{'functions':<20}{functions:,}, with {plural(load.group_size, 'stream')} each",
        f"{'a stream':<20}{found.costs.stream_month['sum'] * found.fit.connections:,.2f} US dollars a month",
        f"{'the stage':<20}{stage_usd(load, found.costs):,.2f} US dollars a month in {priced}",
        f"{'met first':<20}{first.title}: {first.most:,.0f}, at {at}",
        "",
        f"{'limit':<48}{'allowed':>12}{'needed':>12}{'share':>8}",
    ]
    lines += [f"{one.title:<48}{one.most:>12,.0f}{one.asked:>12,.1f}{one.share:>8.1%}" for one in found.limits]
    return "\n".join(lines)

"""The verb `cost`: what streams of a stage cost a month on AWS, by part, compared with other ways to hold them."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from handlers.api.verdict import plural
from handlers.profile.addresses import MOST_PARTS
from handlers.profile.deliver_field import KINDS
from local.costs import model, month, prices, repair_costs, stage_costs
from local.costs.model import PARTITION_UNITS, Costs, Load, stage_usd
from local.costs.month import MonthUsage
from local.costs.prices import HOURS, Prices
from local.terminal import UserError, print_line, read_choice, read_number, report_if_slow, whole_number

STORES, ORDERS, ARRIVALS = ("items", "log"), ("index", "none"), ("random", "clock")
# What a counted run can store within seconds; an item holds 400 KB.
MOST_BYTES = 256 * 1024
MOST_STREAMS = 1_000_000
MOST_TOGETHER = 500  # as streams_per_function
MOST_EVENTS_PER_S = 100_000.0
PART_NOTES = {
    "lambda": "{memory_mb} MB: {invocations:,.0f} invocations, {billed_s:,.0f} s{shared}",
    "step_functions": "{transitions:,.0f} transitions{shared}",
    "events": "writes of events, with their index or in segments",
    "control_writes": "writes of lease, cursor and ledger",
    "reads": "reads of lease, cursor and ledger",
    "storage": "what is kept: events {keep_days}, records {ledger_keep_days}",
    "logs": "log lines of the connections",
    "watch": "the watch's reads of the stream",
    "encryption": "requests to KMS for the tables' key, at most",
    "metrics": "metrics of its connections, by {metrics_by}",
    "delivery": "delivery to {sinks}: its function, table and log",
    "sinks": "what the sinks charge",
}
FIXED_PART_NOTES = {
    "alarms": "alarms, by the metrics that they watch",
    "metrics": "metrics of the watch",
    "dashboard": "the first three of an account are free",
    "watch": "the watching function, once a minute",
    "encryption": "requests to KMS by the watch and the API, at most",
    "vpc": "interface endpoints of the VPC, by the hour and zone",
    "delivery_alarms": "the alarms of the delivery",
    "delivery_metrics": "metrics of the delivery",
    "delivery_sweeps": "a call each minute that retries and measures",
    "delivery_vpc": "interface endpoints of its sinks",
    "delivery_keys": "requests to KMS by the delivery, at most",
}
MILLION_WHY = {name: PART_NOTES[name] for name in ("events", "control_writes", "reads")}
ALTERNATIVE_NOTES = {
    "fargate": "¼ vCPU and 0.5 GB for all streams, and its address",
    "t4g_nano": "0.5 GB, a disk of 8 GB and its address, the same",
    "t4g_micro": "1 GB, a disk of 8 GB and its address, the same",
    "always_two": "the plain machine, two connections all month",
}


def add(subparsers: Any) -> None:
    """Adds the verb and its options."""
    parser = subparsers.add_parser(
        "cost",
        description="Shows what a stream costs a month on AWS, in US dollars and by part. It replays a week of the "
        "stage's machine, counts the requests of its functions, and prices both.",
        epilog="docs/costs.md says how it is counted. The prices are in local/costs/prices.toml.",
    )
    parser.add_argument("--stage", default="prod", metavar="S", help="whose settings to use (default prod)")
    parser.add_argument("--streams", metavar="N", help="how many streams the stage has (default: --per-function)")
    parser.add_argument("--per-function", default="1", metavar="N", help="how many of them share a function (1)")
    parser.add_argument("--parts", default="1", metavar="N", help="how many parts each stream is read in (1)")
    parser.add_argument("--events-per-s", default="1", metavar="R", help="events a second of each stream (default 1)")
    parser.add_argument("--event-bytes", default="200", metavar="B", help="bytes of an event's body (default 200)")
    parser.add_argument("--store", default="items", metavar="KIND", help="items or log (default items)")
    parser.add_argument("--order", metavar="KIND", help="with --store items: index or none (default index)")
    parser.add_argument("--flush-s", metavar="S", help="with --store log: how long events wait for a segment")
    parser.add_argument("--arrivals", default="random", metavar="KIND", help="random or clock (default random)")
    parser.add_argument("--keep", default="1", metavar="SHARE", help="the share of events that `keep` stores (1: all)")
    parser.add_argument("--deliver", metavar="KIND", help=f"where events go next: {', '.join(KINDS)}, or several")
    parser.add_argument("--price", action="append", default=[], metavar="NAME=USD", help="replace a price of the list")
    parser.add_argument(
        "--repair",
        nargs="?",
        const="100",
        metavar="EVENTS",
        help="price the repair of a gap that missed this many events instead (100)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 once the answer is printed; raises UserError if the options do not fit."""
    load = _read_load(arguments)
    try:
        listed = prices.with_user_prices(arguments.price, prices.read())
    except ValueError as error:
        raise UserError(f"--price: {error}.") from None
    source = month.read_scenario(arguments.stage)
    if arguments.repair is not None:
        events = whole_number("--repair", arguments.repair, 0, repair_costs.MOST_EVENTS)
        asked = events, load.event_bytes, source.settings["control_memory_mb"]
        repaired = repair_costs.repair_json(*asked, listed)
        print(json.dumps(repaired, indent=1) if arguments.json else repair_costs.repair_text(*asked, repaired))
        return 0
    _check_function_capacity(load, source.settings)
    with report_if_slow("replaying the machine in virtual time …"):
        months = month.replay_months(source)
    with report_if_slow("counting the requests of its functions …"):
        usage = model.count_load(source, load)
    found = model.price_load(source.settings, months, load, usage, listed)
    notes = _notes(load, source.settings, listed)
    if note := model.log_limit_note(load, usage):
        notes.insert(0, note)
    if (parts := int(arguments.parts)) > 1:
        usd = parts * found.stream_month["sum"]
        notes.insert(0, f"a stream in {parts} parts counts as {parts} streams here, {usd:,.2f} USD a month in all.")
    if arguments.json:
        print(json.dumps(_as_json(arguments.stage, load, found, listed, notes), indent=1))
        return 0
    for line in cost_text(arguments.stage, load, found, listed, source.settings).split("\n"):
        # The words behind an amount stay behind it.
        print_line(line, _NOTES_COLUMN if line.startswith("  ") else 0)
    for note in notes:
        print(f"streamkeeper: {note}", file=sys.stderr)
    return 0


def _read_load(arguments: argparse.Namespace) -> Load:
    per_function = whole_number("--per-function", arguments.per_function, 1, MOST_TOGETHER)
    store = read_choice("--store", arguments.store, STORES)
    if arguments.order is not None and store != "items":
        raise UserError("--order works only with --store items: a log is always in order, and has no index.")
    order = read_choice("--order", ORDERS[0] if arguments.order is None else arguments.order, ORDERS)
    if arguments.flush_s is not None and store != "log":
        raise UserError("--flush-s works only with --store log: an item is written at once.")
    parts = whole_number("--parts", arguments.parts, 1, MOST_PARTS)
    return Load(
        streams=whole_number("--streams", arguments.streams or str(per_function), 1, MOST_STREAMS) * parts,
        # Each part is a stream with its share of the events.
        events_per_s=read_number("--events-per-s", arguments.events_per_s, 0, MOST_EVENTS_PER_S) / parts,
        event_bytes=whole_number("--event-bytes", arguments.event_bytes, 1, MOST_BYTES),
        store=store,
        flush_s=None if arguments.flush_s is None else read_number("--flush-s", arguments.flush_s, 0, 60),
        order=order,
        per_function=per_function,
        arrivals=read_choice("--arrivals", arguments.arrivals, ARRIVALS),
        deliver=_read_sink_kinds(arguments.deliver),
        keep=read_number("--keep", arguments.keep, 0, 1),
    )


def _read_sink_kinds(option: str | None) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(option.split(","))) if option is not None else ()
    wrong = [kind for kind in kinds if kind not in KINDS]
    if wrong:
        raise UserError(f"--deliver must name kinds of sinks ({', '.join(KINDS)}), not {wrong[0]!r}.")
    return kinds


def _check_function_capacity(load: Load, settings: Any) -> None:
    """Raises UserError if one function cannot store so many events."""
    memory_mb, together = settings["memory_mb"], load.group_size
    most = stage_costs.most_events_per_s(memory_mb, load.event_bytes)
    if load.events_per_s * together <= most:
        return
    about = f"about {plural(round(most), 'event')} of {plural(load.event_bytes, 'byte')}"
    if together == 1:
        sentence = f"a function of {memory_mb} MB stores {about} a second; spread them over more streams"
    else:
        sentence = f"the {together} streams of a function of {memory_mb} MB have more than the {about} a second "
        sentence += "that it stores; let fewer share it"
    raise UserError(f"--events-per-s: {sentence}, or raise memory_mb.")


def _notes(load: Load, settings: Any, listed: Prices) -> list[str]:
    """Notes about a load that has a price but cannot work as it is, and about what the amounts leave out."""
    notes = []
    if load.partitions > 1:
        most = PARTITION_UNITS // -(-load.event_bytes // 1024)
        notes.append(
            f"a partition of DynamoDB takes about {most} such events a second: the profile must spread them "
            f"(`partitions`), or the upstream must be read as several streams."
        )
    if settings["vpc_subnet_ids"]:
        nat_usd = HOURS * listed.usd("vpc", "nat_gateway_hour")
        notes.append(
            f"a NAT gateway, which functions in a VPC need for public upstreams, is {nat_usd:.2f} a month more in each "
            "zone, and its traffic; with it the endpoints are not needed."
        )
    return [*notes, f"a key of your own for the tables is {listed.usd('kms', 'key_month'):.2f} a month besides."]


# --- what is printed --------------------------------------------------------------------------------------------------


def _as_json(stage: str, load: Load, found: Costs, listed: Prices, notes: list[str]) -> dict[str, Any]:
    million = found.million_events
    return {
        "stage": stage,
        **asdict(load),
        "region": listed.region,
        "prices_as_of": listed.as_of,
        "stream_month": found.stream_month,
        "fixed_month": found.fixed_month["sum"],
        "fixed_month_parts": found.fixed_month,
        "million_events": None if million is None else million["sum"],
        "million_events_parts": million,
        "million_events_kept": found.million_storage_usd,
        "stage_month": stage_usd(load, found),
        "beside": found.alternatives,
        "used": asdict(found.used),
        "notes": notes,
    }


def cost_text(stage: str, load: Load, found: Costs, listed: Prices, settings: Any) -> str:
    """The amounts as a table."""
    ending = "" if load.events_per_s == 1 else "s"
    of_bytes = plural(load.event_bytes, "byte")
    rate = f"{load.events_per_s:g} event{ending} a second of {of_bytes}" if load.events_per_s else "no events"
    rate += " by a clock" if load.arrivals == "clock" and load.events_per_s else ""
    rate += f", of which {100 * load.keep:g} % are kept" if load.keep < 1 else ""
    stored = "an item each" if load.store == "items" else "in segments"
    stored += ", in no index" if load.order == "none" else ""
    shared = "" if load.group_size == 1 else f", {load.group_size} in a function"
    streams = f"{plural(load.streams, 'stream')} of the stage {stage}"
    lines = [
        f"{streams}{shared}, each with {rate}, {stored}; US dollars a month",
        f"in {listed.region} at the prices of {listed.as_of}",
        "",
        *_table("a stream", found.stream_month, notes_of_parts(load, found.used, settings)),
        "",
        *_table("the stage besides", found.fixed_month, FIXED_PART_NOTES),
        "",
        f"{'together':<18}{stage_usd(load, found):>10.2f}",
    ]
    if found.million_events is not None:
        title = "a million events" if load.keep == 1 else "a million that come"
        lines += ["", *_table(title, found.million_events, MILLION_WHY)]
        lines.append(
            f"{'  kept':<18}{found.million_storage_usd or 0:>10.3f}  a month of {_days_in_words(settings['keep_days'])}"
        )
    return "\n".join(
        [*lines, "", "for comparison, without the writes of events", *part_rows(found.alternatives, ALTERNATIVE_NOTES)]
    )


def notes_of_parts(load: Load, used: MonthUsage, settings: Any) -> dict[str, str]:
    """The words behind each part of a stream's month."""
    words = dict(settings) | asdict(used) | {"billed_s": used.billed_ms / 1000, "sinks": " and ".join(load.deliver)}
    # What the streams share belongs to the function; each stream pays its part.
    words["shared"] = "" if load.group_size == 1 else f", shared by {load.group_size}"
    words |= {name: _days_in_words(settings[name]) for name in ("keep_days", "ledger_keep_days")}
    return {name: why.format(**words) for name, why in PART_NOTES.items()}


def _days_in_words(days: int) -> str:
    return plural(days, "day") if days else "for ever"


# The column in which the words of a part begin.
_NOTES_COLUMN = 30


def _table(title: str, parts: dict[str, float], why: dict[str, str]) -> list[str]:
    digits = 2 if parts["sum"] >= 1 or not parts["sum"] else 3
    return [f"{title:<18}{parts['sum']:>10.{digits}f}", *part_rows(parts, why)]


def part_rows(parts: dict[str, float], why: dict[str, str]) -> list[str]:
    """The lines of the parts that `why` names, with their prices and words."""
    return [
        f"  {name.replace('_', ' '):<16}{parts[name]:>z10.3f}  {words}" for name, words in why.items() if name in parts
    ]

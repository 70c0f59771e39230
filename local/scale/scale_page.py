"""`python -m local.scale.scale_page`: writes the tables of docs/scale.md from counts and a virtual day.

`--count` runs a group anew and writes what it requested into counted.json, which takes half a minute; without it that
is taken as it stands. `--check` writes nothing and returns 1 where the page says something else. Invariant: no number
of the tables is written by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from handlers.run.group_function import AT_ONCE
from local.checkout import ROOT
from local.costs import model, month
from local.costs.counted_run import NAMES
from local.costs.model import Load
from local.costs.watched import read_units
from local.scale.fleet import Cycle, Day, day
from local.scale.joining import Joined, join
from local.scale.starting import Started, start
from local.scale.throttled import Limits

PAGE = ROOT / "docs" / "scale.md"
COUNTED, QUOTAS = (Path(__file__).with_name(name) for name in ("counted.json", "quotas.toml"))
STREAMS, GROUPS = 100_000, 1_000
WITHIN_S = (60, 600, 3_600)
STARTED, SPREADS_S = 10_000, (0, 30, 60, 90)
LIGHT = Load(STREAMS // GROUPS, 1 / 60, 200, "log", 60, per_function=STREAMS // GROUPS)
_WATCHED = 5_000
_REGIONS = ("large", "others")


@dataclass(frozen=True, slots=True)
class Counted:
    """What a group of 100 requested in one cycle, what the watch reads of 100,000 in units, and how 10,000 joined."""

    cycle: Cycle
    events_units_per_s: float
    watch_read_units: float
    joins: tuple[Joined, ...]


def count() -> Counted:
    """Counts anew."""
    source = month.scenario("prod")
    streams = LIGHT.together
    usage = model.counted(source, LIGHT)
    counts = usage.idle.counts
    control = NAMES["control_table"]
    ledger = [one for kind, one in counts.by_kind.items() if (kind.table, kind.item) == (control, "connection")]
    used = month.streamkeeper(source)
    assert usage.functions is not None
    flow_s = usage.flow.length_ms / 1000 * usage.flow.streams
    latency_s = source.latencies_ms["connect"][0] / 1000
    return Counted(
        Cycle(
            streams=streams,
            length_s=usage.idle.length_ms / 1000,
            jitter_s=source.settings["jitter_s"],
            opens_per_s=round(AT_ONCE / latency_s, 2),
            control_units=counts.write_units(control),
            # Each write of a record is one unit; what is above that is the entry that the first one has in the index.
            ledger_index_units=sum(one.write_units - one.requests for one in ledger if one.write_units),
            transitions=round(used.transitions / used.invocations, 3),
            functions=round(usage.functions, 4),
            renews_after=2 * source.settings["renew_after"],
        ),
        events_units_per_s=round(usage.flow.counts.write_units(NAMES["events_table"]) / flow_s, 6),
        watch_read_units=(read_units(_WATCHED, streams) - read_units(0)) * STREAMS / _WATCHED,
        joins=joins(),
    )


def joins() -> tuple[Joined, ...]:
    """How streams join that are started within each span, where quotas are lower and the control table is new."""
    listed = quotas()
    quota = listed["start_execution"]
    limits = Limits(
        listed["partition_writes"]["most"],
        listed["new_table_writes"]["most"],
        quota["refill"]["others"],
        quota["bucket"]["others"],
    )
    return tuple(join(STARTED, STREAMS // GROUPS, spread_s, limits) for spread_s in SPREADS_S)


def counted() -> Counted:
    """What was counted when the page was last written anew."""
    data = json.loads(COUNTED.read_text(encoding="utf-8"))
    joined = tuple(Joined(**one) for one in data["joins"])
    return Counted(**{**data, "cycle": Cycle(**data["cycle"]), "joins": joined})


def quotas() -> dict[str, Any]:
    """AWS's quotas, by their names."""
    return tomllib.loads(QUOTAS.read_text(encoding="utf-8"))


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(found: Counted) -> dict[str, list[str]]:
    """The tables of the page, by name."""
    listed = quotas()
    days = [day(GROUPS, found.cycle, within_s) for within_s in WITHIN_S]
    return {
        "day": _day(found, days),
        "limits": limits(found, days[1], listed),
        "start": _start(listed),
        "join": _join(found),
        "sources": _sources(listed),
    }


def _sources(listed: dict[str, Any]) -> list[str]:
    named = [one for one in listed.values() if isinstance(one, dict)]
    return ["| quota | AWS's page |", "|---|---|", *(f"| {one['title']} | {one['source']} |" for one in named)]


def _day(found: Counted, days: list[Day]) -> list[str]:
    heads = " | ".join(f"within {_span(within_s)}" for within_s in WITHIN_S)
    rows = {
        "handovers of groups, a day": [f"{one.handovers:,}" for one in days],
        "state transitions a second, mean": [f"{one.transitions_per_s:.1f}" for one in days],
        "executions started that day, to renew others": [f"{one.renewals:,}" for one in days],
        "of them in the worst second": [f"{one.most_starts}" for one in days],
        "groups that hand over in the worst second": [f"{one.most_opening}" for one in days],
        "functions at a time, most": [f"{one.most_functions:,}" for one in days],
        "write units of the control table a second, mean": [f"{one.control_units_per_s:,.0f}" for one in days],
        "the same in the worst second, at most": [f"{one.most_control_units:,.0f}" for one in days],
        "write units of the hottest partition in the worst second": [
            f"{one.most_partition_units:,.0f}" for one in days
        ],
        "write units of the events table a second, mean": [f"{STREAMS * found.events_units_per_s:,.0f}"] * len(days),
        "read units of a run of the watch": [f"{found.watch_read_units:,.0f}"] * len(days),
    }
    return [
        f"| of {STREAMS:,} streams in {GROUPS:,} groups, started | {heads} |",
        "|---|" + "---:|" * len(days),
        *(f"| {name} | {' | '.join(values)} |" for name, values in rows.items()),
    ]


def limits(found: Counted, one: Day, listed: dict[str, Any]) -> list[str]:
    """Each quota with what a day asks of it, the one that is met first before the others."""
    asked = {
        "concurrency": float(one.most_functions),
        "partition_writes": one.most_partition_units,
        "new_table_writes": one.most_control_units,
        "table_writes": one.most_control_units,
        "transitions": max(one.transitions_per_s, found.cycle.transitions * one.most_opening),
        "start_execution": float(one.most_starts),
        "open_executions": float(one.groups),
    }
    shares = {name: value / _most(listed[name]) for name, value in asked.items()}
    rows = [f"| quota, of {listed['as_of']} | default | asked | share |", "|---|---:|---:|---:|"]
    for name in sorted(shares, key=lambda name: -shares[name]):
        quota = listed[name]
        rows.append(f"| {quota['title']} | {_most(quota):,} | {asked[name]:,.0f} | {shares[name]:.0%} |")
    return rows


def _most(quota: dict[str, Any]) -> int:
    """The quota in the regions where it is lower."""
    most: int = quota["most"] if "most" in quota else quota["refill"]["others"]
    return most


def _start(listed: dict[str, Any]) -> list[str]:
    quota = listed["start_execution"]
    rows = ["| region | POSTs spread over | refused by the quota | answered by 503 | all started after |"]
    rows.append("|---|---:|---:|---:|---:|")
    for region in _REGIONS:
        for spread_s in SPREADS_S:
            one = start(STARTED, spread_s, quota["bucket"][region], quota["refill"][region])
            rows.append(f"| {_region(region)} | {_row(one)} |")
    return rows


def _join(found: Counted) -> list[str]:
    per_function, ways = STREAMS // GROUPS, found.joins
    days = [day(STARTED // per_function, found.cycle, max(1, spread_s)) for spread_s in SPREADS_S]
    rows: dict[str, list[str]] = {
        "POSTs in the worst second": [f"{one.most_posts:,}" for one in ways],
        "StartExecutions in the worst second": [f"{one.most_starts:,}" for one in ways],
        "executions, and functions": [f"{one.groups:,}" for one in ways],
        "write units of the control table in the worst second": [f"{one.most_units:,}" for one in ways],
        "of its hottest partition": [f"{one.most_partition_units:,}" for one in ways],
        "requests that AWS refused for their number": [f"{one.throttled:,}" for one in ways],
        "POSTs answered by 429 or 503": [f"{one.busy:,}" for one in ways],
        "conditions that did not hold": [f"{one.refused:,}" for one in ways],
        "all started after": [f"{one.over_after_s:.0f} s" for one in ways],
        "write units of a handover in the worst second, at most": [f"{one.most_control_units:,.0f}" for one in days],
        "write units of its hottest partition": [f"{one.most_partition_units:,.0f}" for one in days],
    }
    heads = " | ".join(f"{spread_s} s" for spread_s in SPREADS_S)
    return [
        f"| of {STARTED:,} streams, {per_function} in a function, POSTs spread over | {heads} |",
        "|---|" + "---:|" * len(SPREADS_S),
        *(f"| {name} | {' | '.join(values)} |" for name, values in rows.items()),
    ]


def _region(region: str) -> str:
    return "a large one" if region == "large" else "another"


def _row(one: Started) -> str:
    return f"{one.spread_s} s | {one.refused:,} | {one.unavailable:,} | {one.over_after_s:.0f} s"


def _span(length_s: int) -> str:
    return f"{length_s // 60} min" if length_s < 3_600 else f"{length_s // 3_600} h"


def rewritten(text: str, found: Counted) -> str:
    """The page with the tables as they are now."""
    for name, rows in tables(found).items():
        block = "\n".join(rows)
        mark = rf"(<!-- scale: {name} -->\n).*?(<!-- /scale -->)"
        text = re.sub(mark, lambda match, block=block: f"{match[1]}{block}\n{match[2]}", text, flags=re.DOTALL)  # type: ignore[misc]
    return text


def main(argv: list[str] | None = None) -> int:
    """Write the page; with --check return 1 where it is to be written."""
    parser = argparse.ArgumentParser(prog="python -m local.scale.scale_page", description="Writes the page on scale.")
    parser.add_argument("--count", action="store_true", help="count a group anew")
    parser.add_argument("--check", action="store_true", help="write nothing, return 1 where the page is old")
    options = parser.parse_args(argv)
    if options.count:
        COUNTED.write_text(json.dumps(asdict(count()), indent=1) + "\n", encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    now = rewritten(text, counted())
    if not options.check:
        PAGE.write_text(now, encoding="utf-8")
    return 1 if options.check and now != text else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m local.scale.scale_page`: writes the tables of docs/scale.md from counts and a virtual day.

`--count` runs a group and its starts again and writes counted.json and applied.json, which takes a quarter of an hour;
without it, these files are used as they are. `--check` writes nothing, and returns 1 if the page is outdated.
Invariant: no number of the tables is written by hand.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from local import stages
from local.checkout import ROOT
from local.costs import model, month
from local.costs.counted_run import NAMES
from local.costs.model import Load
from local.costs.stage_costs import watch_read_units
from local.generated_pages import insert_tables, run, table
from local.scale.fleet import FleetDay, GroupCycle, cycle_of, limits_of_day, read_quotas, simulate_day
from local.scale.throttled_aws import APPLIED, FUNCTIONS, START, TRANSITIONS, Limits, read_apply_result, simulate_apply

PAGE = "docs/scale.md"
COUNTED = Path(__file__).with_name("counted.json")
STREAMS, GROUPS = 100_000, 1_000
WITHIN_S = (60, 600, 3_600)
LIGHT = Load(STREAMS // GROUPS, 1 / 60, 200, "log", 60, per_function=STREAMS // GROUPS)
_WATCHED = 5_000


@dataclass(frozen=True, slots=True)
class ScaleCounts:
    """The requests of a group of 100 in a cycle, and the watch's read units for 100,000."""

    cycle: GroupCycle
    events_units_per_s: float
    watch_read_units: float


def count_again() -> ScaleCounts:
    source = month.read_scenario("prod")
    streams = LIGHT.group_size
    usage = model.count_load(source, LIGHT)
    used = month.replay_streamkeeper(source)
    flow_s = usage.with_events.length_ms / 1000 * usage.with_events.streams
    return ScaleCounts(
        cycle_of(source, usage, used),
        events_units_per_s=round(usage.with_events.counts.write_units(NAMES["events_table"]) / flow_s, 6),
        watch_read_units=(watch_read_units(_WATCHED, streams) - watch_read_units(0)) * STREAMS / _WATCHED,
    )


def limits_of_streams() -> Limits:
    """AWS's limits on starting streams, in the regions with the lower quotas, with a new control table."""
    listed = read_quotas()
    rates = {
        name: (listed[name]["refill"]["others"], listed[name]["bucket"]["others"])
        for name in (START, TRANSITIONS, FUNCTIONS)
    }
    return Limits(listed["partition_writes"]["most"], listed["new_table_writes"]["most"], rates)


def read_counts() -> ScaleCounts:
    """The counts in counted.json."""
    data = json.loads(COUNTED.read_text(encoding="utf-8"))
    return ScaleCounts(**{**data, "cycle": GroupCycle(**data["cycle"])})


# --- tables -----------------------------------------------------------------------------------------------------------


def page_tables(found: ScaleCounts) -> dict[str, list[str]]:
    days = [simulate_day(GROUPS, found.cycle, within_s) for within_s in WITHIN_S]
    return {"day": _day_table(found, days), "limits": limits_table(found, days[1]), "apply": _apply_table()}


def _day_table(found: ScaleCounts, days: list[FleetDay]) -> list[str]:
    heads = [
        f"of {STREAMS:,} streams in {GROUPS:,} groups, started",
        *(f"within {_span_in_words(one_s)}" for one_s in WITHIN_S),
    ]
    events_units = f"{STREAMS * found.events_units_per_s:,.0f}"
    rows = {
        "handovers of groups, a day": "{0.handovers:,}",
        "state transitions a second, mean": "{0.transitions_per_s:.1f}",
        "groups that hand over in the worst second": "{0.most_opening}",
        "functions at a time, most": "{0.most_functions:,}",
        "write units of the control table a second, mean": "{0.control_units_per_s:,.0f}",
        "the same in the worst second, at most": "{0.most_control_units:,.0f}",
        "write units of the hottest partition in the worst second": "{0.most_partition_units:,.0f}",
        "write units of the events table a second, mean": events_units,
        "read units of a run of the watch": f"{found.watch_read_units:,.0f}",
    }
    # Every day fills the format of each row.
    return table(heads, ((name, *(form.format(one) for one in days)) for name, form in rows.items()))


def limits_table(found: ScaleCounts, one: FleetDay) -> list[str]:
    """Each quota with its use in a day, the scarcest first."""
    rows = (
        (one.title, f"{one.most:,}", f"{one.asked:,.0f}", f"{one.share:.0%}")
        for one in limits_of_day(one, found.cycle, WITHIN_S[1], stages.load("prod")["api_requests_per_s"])
    )
    return table((f"quota, of {read_quotas()['as_of']}", "default", "needed", "share"), rows)


def _apply_table() -> list[str]:
    one = read_apply_result()
    rows = {
        "all started after": f"{one.over_after_s} s",
        "starts that AWS refused, each tried again": f"{one.refused:,}",
        "streams that were left": f"{one.left:,}",
        "executions, and functions": f"{one.groups:,}",
        "functions that Lambda refused at first": f"{one.functions_refused:,}",
        "StartExecutions in the worst second": f"{one.most_starts:,}",
        "write units of the control table in the worst second": f"{one.most_units:,}",
        "of its hottest partition": f"{one.most_partition_units:,}",
    }
    return table((f"a document of {one.streams:,} streams, {one.per_function} in a function", ""), rows.items())


def _span_in_words(length_s: int) -> str:
    return f"{length_s // 60} min" if length_s < 3_600 else f"{length_s // 3_600} h"


def page_files(root: Path = ROOT) -> dict[Path, str]:
    """The page with the present tables."""
    return {root / PAGE: insert_tables((root / PAGE).read_text(encoding="utf-8"), "scale", page_tables(read_counts()))}


def _write_counts() -> None:
    for path, found in (
        (COUNTED, count_again()),
        (APPLIED, simulate_apply(STREAMS, STREAMS // GROUPS, limits_of_streams())),
    ):
        path.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(run("local.scale.scale_page", "Writes the page on scale.", page_files, _write_counts))

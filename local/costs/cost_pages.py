"""`python -m local.costs.cost_pages`: writes the cost of streams into README.md and pages of docs/.

The amounts are those that the command prints for the loads below. A table stands between two comments that name it; an
amount in a sentence is found by the words behind it. `--check` writes nothing, and returns 1 if a page is outdated.
Invariant: only amounts and those tables are changed.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handlers.api.bill import RATES
from local.checkout import ROOT
from local.costs import model, month, prices, stage_costs
from local.costs.command import ALTERNATIVE_NOTES, FIXED_PART_NOTES, notes_of_parts
from local.costs.model import PARTS, Costs, Load
from local.generated_pages import insert_tables, run, table

STAGE = "prod"
IDLE = Load(1, 0, 200, "items", None)
LOADS = {
    "idle": IDLE,
    "light": Load(1, 1, 200, "items", None),
    "unordered": Load(1, 1, 200, "items", None, "none"),
    "packed": Load(1, 1, 200, "log", 5),
    "heavy": Load(1, 100, 200, "items", None),
    "heavy_unordered": Load(1, 100, 200, "items", None, "none"),
    "heavy_packed": Load(1, 100, 200, "log", 1),
}
GROUP_LOADS = (
    Load(100, 0, 200, "log", 60, per_function=100),
    Load(100, 1 / 60, 200, "log", 60, per_function=100),
    Load(100, 1 / 60, 200, "log", 60, per_function=100, arrivals="clock"),
    Load(100, 1, 200, "log", 5, per_function=100),
)
PAGES = ("README.md", "docs/archive.md", "docs/costs.md", "docs/store.md")
# The first and the last column of a table contain words.
WORDS = (0, -1)


@dataclass(frozen=True, slots=True)
class QuotedCosts:
    """The costs that the pages quote: of LOADS by name, and of TOGETHER; and the settings of the stage."""

    alone: Mapping[str, Costs]
    together: Sequence[Costs]
    settings: Mapping[str, Any]

    @property
    def amounts(self) -> dict[str, float]:
        """The amounts in sentences, by the words behind each."""
        idle, together, listed = (self.alone["idle"], [one.stream_month["sum"] for one in self.together], prices.read())
        microvm_usd = 0.25 * listed.usd("microvm", "vcpu_hour") + 0.5 * listed.usd("microvm", "gb_hour")
        return {
            "an idle stream": idle.stream_month["sum"],
            "at an event a second": self.alone["light"].stream_month["sum"],
            "without an order": self.alone["unordered"].stream_month["sum"],
            "an idle one of a hundred": together[0],
            "one of a hundred at an event a minute": together[1],
            "one of a hundred at an event a second": together[3],
            "a stage": idle.fixed_month["sum"],
            "a million events": self.million_events_usd("heavy")["sum"],
            "a million `POST`s": prices.MILLION * stage_costs.post_usd(listed),
            "with ¼ vCPU and an address": idle.alternatives["fargate"],
            "for the smallest": prices.HOURS * microvm_usd,
        }

    def million_events_usd(self, load: str) -> dict[str, float]:
        """The cost of the requests for a million events, by part."""
        return self.alone[load].million_events or {}


def compute_quoted_costs() -> QuotedCosts:
    """The present costs for the pages; this takes some seconds."""
    source, listed = month.read_scenario(STAGE), prices.read()
    months = month.replay_months(source)
    alone = {name: model.costs_of_loads(source, months, [load], listed)[0] for name, load in LOADS.items()}
    return QuotedCosts(alone, model.costs_of_loads(source, months, GROUP_LOADS, listed), source.settings)


def replace_amounts(text: str, found: QuotedCosts) -> str:
    """The page with the present amounts."""
    for words, amount in found.amounts.items():
        # `$9.69 an idle stream`, wherever the line breaks.
        behind = r"\s+".join(re.escape(word) for word in words.split())
        text = re.sub(rf"\$\d+\.\d\d(?=\s+{behind}\b)", f"${amount:.2f}", text)
    return insert_tables(text, "cost", _tables(found))


def _tables(found: QuotedCosts) -> dict[str, list[str]]:
    columns = [found.alone[load].stream_month for load in ("idle", "light", "unordered", "packed")]
    why = notes_of_parts(LOADS["light"], found.alone["light"].used, found.settings)
    streams = [
        (_part_name(part), *(f"{column[part]:.2f}" if column[part] else "–" for column in columns), why[part])
        for part in PARTS
    ]
    streams.append(("**a stream**", *(f"**{column['sum']:.2f}**" for column in columns), ""))
    shared = [(_part_name(part), *(f"{one.stream_month[part]:.4f}" for one in found.together)) for part in PARTS]
    shared.append(("**one of 100**", *(f"**{one.stream_month['sum']:.4f}**" for one in found.together)))
    loads = ("heavy", "heavy_unordered", "heavy_packed")
    amounts = [found.million_events_usd(load) for load in loads]
    million = [
        ("written at 100 a second", *(f"{one['sum']:.2f}" for one in amounts)),
        (
            f"kept for {found.settings['keep_days']} days",
            *(f"{found.alone[load].million_storage_usd or 0:.2f}" for load in loads),
        ),
    ]
    heads = ("part", "idle", "1 event/s", "1 event/s, no order", "1 event/s in a log, 5 s", "why")
    return {
        "stream": table(heads, streams, WORDS),
        "together": table(("part", "idle", "an event a minute, 60 s", "the same by a clock", "1 event/s, 5 s"), shared),
        "stage": _two_column_table("a stage besides", found.alone["idle"].fixed_month, FIXED_PART_NOTES),
        "million": table(("a million events", "items", "items, no order", "a log, 1 s"), million),
        "beside": _two_column_table("", found.alone["idle"].alternatives, ALTERNATIVE_NOTES),
        "iceberg": _iceberg(prices.read()),
    }


def _iceberg(listed: prices.Prices) -> list[str]:
    """A million events of 200 bytes: archived from items, from a log, and by Firehose into S3 Tables."""
    size_gb, read_usd = 200 * prices.MILLION / prices.GB, listed.usd("dynamodb", "million_read_units")
    # 4 KB a unit: an item each, or segments that are not compressed at all.
    reads = [prices.MILLION * read_usd, 200 * prices.MILLION / 4096 * read_usd]
    iceberg = {name: size_gb * listed.usd("iceberg", name) for name in ("firehose_gb", "compacted_gb", "gb_month")}
    kept_usd = size_gb * listed.usd("s3", "gb_month")
    rows = [
        ("reading, or Firehose", *(f"{usd:.3f}" for usd in (*reads, iceberg["firehose_gb"]))),
        ("compaction", "–", "–", f"{iceberg['compacted_gb']:.3f}"),
        ("kept for a month", *(f"{usd:.4f}" for usd in (kept_usd, kept_usd, iceberg["gb_month"]))),
    ]
    return table(("US dollars", "archive, items", "archive, a log", "Firehose into S3 Tables"), rows)


def _two_column_table(title: str, parts: Mapping[str, float], why: Mapping[str, str]) -> list[str]:
    rows = [(_part_name(part), f"{parts[part]:.3f}", words) for part, words in why.items() if part in parts]
    rows += [(f"**{title}**", f"**{parts['sum']:.2f}**", "")] if title else []
    return table(("part", "US dollars", "why"), rows, WORDS)


def _part_name(part: str) -> str:
    return {"lambda": "Lambda", "step_functions": "Step Functions"}.get(part, part.replace("_", " "))


def rates(found: QuotedCosts) -> str:
    """The rates for the page of a stream, by hours and events (handlers/api/bill.py), as JSON."""
    idle_usd, listed = found.alone["idle"].stream_month["sum"], prices.read()
    shared_usd = (idle_usd - found.together[0].stream_month["sum"]) / (1 - 1 / GROUP_LOADS[0].group_size)
    loads = {"items": "light", "items without an order": "unordered", "log": "packed"}
    table = {
        "stage": STAGE,
        "region": listed.region,
        "prices_as_of": str(listed.as_of),
        "stream_hour_usd": round(idle_usd / prices.HOURS, 8),
        "shared_hour_usd": round(shared_usd / prices.HOURS, 8),
        "million_events_usd": {
            # Without the metric of stored events, which a stage has once, however many there are.
            name: round(found.million_events_usd(load)["sum"] + (found.alone[load].million_storage_usd or 0), 4)
            for name, load in loads.items()
        },
    }
    return json.dumps(table, indent=2) + "\n"


def page_files(found: QuotedCosts, root: Path = ROOT) -> dict[Path, str]:
    """The pages and the rates with the present amounts."""
    pages = {root / name: replace_amounts((root / name).read_text(encoding="utf-8"), found) for name in PAGES}
    return pages | {root / RATES.relative_to(ROOT): rates(found)}


if __name__ == "__main__":
    sys.exit(run("local.costs.cost_pages", "Writes what streams cost.", lambda: page_files(compute_quoted_costs())))

"""`python -m local.costs.cost_pages`: writes what streams cost into README.md and the pages of docs/ that say it.

Each page has its words; the amounts are those that the command prints for the loads below. A table stands between two
comments that name it, an amount in a sentence is found by the words behind it. `--check` writes nothing and returns 1
where a page says something else. Invariant: nothing but amounts and those tables is changed.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from handlers.api.views import RATES
from local.checkout import ROOT
from local.costs import model, month, prices, stage_costs
from local.costs.command import BESIDE_WHY, FIXED_WHY, MILLION_WHY
from local.costs.model import PARTS, Costs, Load
from local.generated_pages import run, table, with_tables

STAGE = "prod"
IDLE = Load(1, 0, 200, "items", None)
LIGHT = Load(1, 1, 200, "items", None)
UNORDERED = Load(1, 1, 200, "items", None, "none")
PACKED = Load(1, 1, 200, "log", 5)
HEAVY = Load(1, 100, 200, "items", None)
HEAVY_UNORDERED = Load(1, 100, 200, "items", None, "none")
HEAVY_PACKED = Load(1, 100, 200, "log", 1)
TOGETHER = (
    Load(100, 0, 200, "log", 60, per_function=100),
    Load(100, 1 / 60, 200, "log", 60, per_function=100),
    Load(100, 1 / 60, 200, "log", 60, per_function=100, arrivals="clock"),
    Load(100, 1, 200, "log", 5, per_function=100),
)
GROUPS = "docs/decisions/0079-keep-many-streams-in-one-function.md"
PAGES = ("README.md", "docs/costs.md", "docs/deploy.md", "docs/store.md", GROUPS)
# A table's columns of words are its first and its last.
WORDS = (0, -1)
WHY = {
    "lambda": "{memory_mb} MB all month, {invocations} invocations",
    "step_functions": "{transitions} transitions",
    "events": "an item with its index entry is {event_units} write units, without one half of that; or segments",
    "control_writes": "lease, cursor and ledger",
    "reads": "lease and, at an opening, the ledger",
    "storage": "events for {keep_days} days, records for {ledger_keep_days}",
    "logs": "what the functions write to their log",
    "watch": "what the watch reads of a stream, once a minute",
    "metrics": "stored events, as a metric of the stage",
}


@dataclass(frozen=True, slots=True)
class Quoted:
    """What the pages quote."""

    idle: Costs
    light: Costs
    unordered: Costs
    packed: Costs
    heavy: Costs
    heavy_unordered: Costs
    heavy_packed: Costs
    together: Sequence[Costs]
    words: Mapping[str, str]

    @property
    def amounts(self) -> dict[str, float]:
        """The amounts in sentences, by the words behind each."""
        million = self.heavy.million_events
        assert million is not None
        return {
            "an idle stream": self.idle.stream_month["sum"],
            "at an event a second": self.light.stream_month["sum"],
            "without an order": self.unordered.stream_month["sum"],
            "an idle one of a hundred": self.together[0].stream_month["sum"],
            "one of a hundred at an event a minute": self.together[1].stream_month["sum"],
            "one of a hundred at an event a second": self.together[3].stream_month["sum"],
            "a stage": self.idle.fixed_month["sum"],
            "a million events": million["sum"],
            "with ¼ vCPU and an address": self.idle.beside["fargate"],
        }


def quoted() -> Quoted:
    """What the pages say of the project as it is now; it takes some seconds."""
    source, listed = month.scenario(STAGE), prices.read()
    months = month.replayed(source)
    loads = (IDLE, LIGHT, UNORDERED, PACKED, HEAVY, HEAVY_UNORDERED, HEAVY_PACKED)
    idle, light, unordered, packed, heavy, heavy_unordered, heavy_packed = (
        model.costs(source, months, load, listed) for load in loads
    )
    together = model.costs_together(source, months, TOGETHER, listed)
    settings = source.settings
    write_usd = listed.usd("dynamodb", "million_write_units") * prices.MILLION
    words = {
        "memory_mb": f"{settings['memory_mb']}",
        "keep_days": f"{settings['keep_days']}",
        "ledger_keep_days": f"{settings['ledger_keep_days']}",
        "invocations": f"{months.ours.invocations:,.0f}",
        "transitions": f"{months.ours.transitions:,.0f}",
        "event_units": f"{(heavy.million_events or {})['events'] / write_usd:.2g}",
        "alarms": f"{stage_costs.alarm_metrics()}",
    }
    return Quoted(idle, light, unordered, packed, heavy, heavy_unordered, heavy_packed, together, words)


def rewritten(text: str, found: Quoted) -> str:
    """The page with the amounts as they are now."""
    for words, amount in found.amounts.items():
        # `$9.69 an idle stream`, however the lines are broken.
        behind = r"\s+".join(re.escape(word) for word in words.split())
        text = re.sub(rf"\$\d+\.\d\d(?=\s+{behind}\b)", f"${amount:.2f}", text)
    return with_tables(text, "cost", _tables(found))


def _tables(found: Quoted) -> dict[str, list[str]]:
    columns = [costs.stream_month for costs in (found.idle, found.light, found.unordered, found.packed)]
    streams = [
        (_name(part), *(_cents(column[part]) for column in columns), WHY[part].format(**found.words)) for part in PARTS
    ]
    streams.append(("**a stream**", *(f"**{column['sum']:.2f}**" for column in columns), ""))
    shared = [(_name(part), *(f"{one.stream_month[part]:.4f}" for one in found.together)) for part in PARTS]
    shared.append(("**one of 100**", *(f"**{one.stream_month['sum']:.4f}**" for one in found.together)))
    loads = (found.heavy, found.heavy_unordered, found.heavy_packed)
    amounts = [one.million_events or {} for one in loads]
    million = [(_name(part), *(f"{one[part]:z.3f}" for one in amounts), why) for part, why in MILLION_WHY.items()]
    million.append(("**a million events at 100 a second**", *(f"**{one['sum']:.2f}**" for one in amounts), ""))
    kept = f"kept for {found.words['keep_days']} days"
    million.append((kept, *(f"{one.million_kept or 0:.3f}" for one in loads), "storage"))
    heads = ("part", "idle", "1 event/s", "1 event/s, no order", "1 event/s in a log, 5 s", "why")
    return {
        "stream": table(heads, streams, WORDS),
        "together": table(("part", "idle", "an event a minute, 60 s", "the same by a clock", "1 event/s, 5 s"), shared),
        "stage": _two("a stage besides", found.idle.fixed_month, FIXED_WHY),
        "million": table(("part", "items", "items, no order", "a log, 1 s", "why"), million, WORDS),
        "beside": _two("", found.idle.beside, BESIDE_WHY),
    }


def _two(title: str, parts: Mapping[str, float], why: Mapping[str, str]) -> list[str]:
    rows = [(_name(part), f"{parts[part]:.3f}", words) for part, words in why.items() if part in parts]
    rows += [(f"**{title}**", f"**{parts['sum']:.2f}**", "")] if title else []
    return table(("part", "US dollars", "why"), rows, WORDS)


def _name(part: str) -> str:
    return {"lambda": "Lambda", "step_functions": "Step Functions"}.get(part, part.replace("_", " "))


def _cents(amount: float) -> str:
    return f"{amount:.2f}" if amount else "–"


def rates(found: Quoted) -> str:
    """What the page of a stream multiplies hours and events by (handlers/api/views.py), as JSON."""
    idle_usd = found.idle.stream_month["sum"]
    listed, loads = prices.read(), {
        "items": found.light, "items without an order": found.unordered, "log": found.packed,
    }  # fmt: skip
    table = {
        "stage": STAGE,
        "region": listed.region,
        "prices_as_of": str(listed.as_of),
        "stream_hour_usd": round(idle_usd / prices.HOURS, 8),
        "million_events_usd": {
            name: round((costs.stream_month["sum"] - idle_usd) / costs.events_month * prices.MILLION, 4)
            for name, costs in loads.items()
        },
    }
    return json.dumps(table, indent=2) + "\n"


def files(found: Quoted, root: Path = ROOT) -> dict[Path, str]:
    """The pages and the rates as they must be."""
    pages = {root / name: rewritten((root / name).read_text(encoding="utf-8"), found) for name in PAGES}
    return pages | {root / RATES.relative_to(ROOT): rates(found)}


if __name__ == "__main__":
    sys.exit(run("local.costs.cost_pages", "Writes what streams cost.", lambda: files(quoted())))

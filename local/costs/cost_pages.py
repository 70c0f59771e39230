"""`python -m local.costs.cost_pages`: writes what streams cost into README.md and the pages of docs/ that say it.

Each page has its words; the amounts are those that the command prints for the loads below. A table stands between two
comments that name it, an amount in a sentence is found by the words behind it. `--check` writes nothing and returns 1
where a page says something else. Invariant: nothing but amounts and those tables is changed.
"""

import argparse
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
    for name, rows in _tables(found).items():
        block = "\n".join(rows)
        mark = rf"(<!-- cost: {name} -->\n).*?(<!-- /cost -->)"
        text = re.sub(mark, lambda match, block=block: f"{match[1]}{block}\n{match[2]}", text, flags=re.DOTALL)  # type: ignore[misc]
    return text


def _tables(found: Quoted) -> dict[str, list[str]]:
    columns = [costs.stream_month for costs in (found.idle, found.light, found.unordered, found.packed)]
    heads = "idle | 1 event/s | 1 event/s, no order | 1 event/s in a log, 5 s"
    streams = [f"| part | {heads} | why |", "|---|---:|---:|---:|---:|---|"]
    for part in PARTS:
        amounts = " | ".join(_cents(column[part]) for column in columns)
        streams.append(f"| {_name(part)} | {amounts} | {WHY[part].format(**found.words)} |")
    sums = " | ".join(f"**{column['sum']:.2f}**" for column in columns)
    streams.append(f"| **a stream** | {sums} | |")
    heads = "idle | an event a minute, 60 s | the same by a clock | 1 event/s, 5 s"
    shared = [f"| part | {heads} |", "|---|---:|---:|---:|---:|"]
    for part in (*PARTS, "sum"):
        figures = [f"{one.stream_month[part]:.4f}" for one in found.together]
        if part == "sum":
            shared.append(f"| **one of 100** | {' | '.join(f'**{figure}**' for figure in figures)} |")
        else:
            shared.append(f"| {_name(part)} | {' | '.join(figures)} |")
    loads = (found.heavy, found.heavy_unordered, found.heavy_packed)
    million = ["| part | items | items, no order | a log, 1 s | why |", "|---|---:|---:|---:|---|"]
    for part, why in MILLION_WHY.items():
        million.append(
            f"| {_name(part)} | {' | '.join(f'{(one.million_events or {})[part]:z.3f}' for one in loads)} | {why} |"
        )
    sums = " | ".join(f"**{(one.million_events or {})['sum']:.2f}**" for one in loads)
    million.append(f"| **a million events at 100 a second** | {sums} | |")
    kept = " | ".join(f"{one.million_kept or 0:.3f}" for one in loads)
    million.append(f"| kept for {found.words['keep_days']} days | {kept} | storage |")
    return {
        "stream": streams,
        "together": shared,
        "stage": _two("a stage besides", found.idle.fixed_month, FIXED_WHY),
        "million": million,
        "beside": _two("", found.idle.beside, BESIDE_WHY),
    }


def _two(title: str, parts: Mapping[str, float], why: Mapping[str, str]) -> list[str]:
    rows = ["| part | US dollars | why |", "|---|---:|---|"]
    rows += [f"| {_name(part)} | {parts[part]:.3f} | {words} |" for part, words in why.items() if part in parts]
    return [*rows, f"| **{title}** | **{parts['sum']:.2f}** | |"] if title else rows


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


def changes(found: Quoted, root: Path = ROOT) -> dict[Path, str]:
    """The pages that say something else, as they must be, and the rates."""
    files = {root / name: (root / name).read_text(encoding="utf-8") for name in PAGES}
    news = {path: rewritten(text, found) for path, text in files.items()}
    path = root / RATES.relative_to(ROOT)
    files[path] = path.read_text(encoding="utf-8") if path.exists() else ""
    news[path] = rates(found)
    return {path: new for path, new in news.items() if new != files[path]}


def main(argv: list[str] | None = None) -> int:
    """Write the pages; with --check return 1 where one is to be written."""
    parser = argparse.ArgumentParser(prog="python -m local.costs.cost_pages", description="Writes what streams cost.")
    parser.add_argument("--check", action="store_true", help="write nothing, return 1 where a page is old")
    options = parser.parse_args(argv)
    stale = changes(quoted())
    for path, text in stale.items():
        print(path.relative_to(ROOT))
        if not options.check:
            path.write_text(text, encoding="utf-8")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

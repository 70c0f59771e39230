"""`python -m local.compare.strategies_page`: writes the results into docs/strategies.md and pictures.

The page has its words; each table stands between two comments that name the question. `--check` writes nothing and
returns 1 where something else would be written. Invariant: nothing but those tables and the picture is changed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from local.checkout import ROOT
from local.compare import backoff_kinds, command
from local.compare.command import group, heading
from local.compare.played_world import Result
from local.compare.strategies import STRATEGIES
from local.costs import prices
from local.generated_pages import run, table, with_tables
from local.simulation.scenario import Scenario
from timeline import svg

PAGE, PICTURE, BACKOFF = "docs/strategies.md", "docs/strategies.svg", "docs/backoff.svg"
QUESTIONS = {"none": ["--hours", "24"], "rough": ["--hours", "24", "--faults", "rough"]}
COLUMNS = ("strategy", "connected", "gap s", "lost", "connections", "$ a month")
DRAWN, DRAWN_HOURS = "rough", "6"


def asked(options: list[str]) -> Scenario:
    """Returns the comparison that these options of `streamkeeper compare` ask for."""
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    return command.scenario(parser.parse_args(["compare", *options]))


def answered(options: list[str]) -> tuple[Scenario, list[Result]]:
    """Returns the comparison, and the result of each strategy."""
    source = asked(options)
    return source, [strategy.run(source) for strategy in STRATEGIES]


def written(root: Path = ROOT) -> dict[Path, str]:
    """Returns the page and the picture with the present results."""
    listed, text = prices.read(), (root / PAGE).read_text(encoding="utf-8")
    tables = {}
    for name, options in QUESTIONS.items():
        source, results = answered(options)
        memory_mb = source.settings["memory_mb"]
        tables[name] = shown(command.rows([result.as_json(memory_mb, listed) for result in results]))
    recovered = backoff_kinds.simulated()
    tables["backoff"] = backoff_kinds.rows(recovered)
    text = with_tables(text, "compare", {name: table(rows[0], rows[1:]) for name, rows in tables.items()})
    source, results = answered(["--faults", DRAWN, "--hours", DRAWN_HOURS])
    groups = [group(result, listed, source.settings["memory_mb"]) for result in results]
    picture = svg.draw(groups, source.run_for_ms, heading(source, DRAWN))
    drawn = {root / PICTURE: picture, root / BACKOFF: backoff_kinds.picture(recovered)}
    return {root / PAGE: text, **drawn}


def shown(rows: list[list[str]]) -> list[list[str]]:
    """Returns the columns that the page has."""
    places = [rows[0].index(title) for title in COLUMNS]
    return [[row[place] for place in places] for row in rows]


if __name__ == "__main__":
    sys.exit(run("local.compare.strategies_page", "Writes the results of the strategies.", written))

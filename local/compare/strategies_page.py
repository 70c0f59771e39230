"""`python -m local.compare.strategies_page`: writes the results into docs/strategies.md and pictures.

Each table stands between two comments that name the comparison. `--check` writes nothing, and returns 1 if a file is
outdated. Invariant: only those tables and the pictures are changed.
"""

import argparse
import sys
from pathlib import Path

from local.checkout import ROOT
from local.compare import backoff_kinds, command
from local.compare.command import heading, picture_group
from local.compare.strategies import STRATEGIES
from local.compare.strategy_world import StrategyResult
from local.costs import prices
from local.generated_pages import insert_tables, run, table
from local.simulation.scenario import Scenario
from timeline import svg

PAGE, PICTURE, BACKOFF = "docs/strategies.md", "docs/strategies.svg", "docs/backoff.svg"
COMPARISONS = {"none": ["--hours", "24"], "rough": ["--hours", "24", "--faults", "rough"]}
COLUMNS = ("strategy", "connected", "gap s", "lost", "connections", "$ a month")
DRAWN, DRAWN_HOURS = "rough", "6"


def scenario_of(options: list[str]) -> Scenario:
    """Returns the comparison for these options of `streamkeeper compare`."""
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    return command.read_scenario(parser.parse_args(["compare", *options]))


def run_all_strategies(options: list[str]) -> tuple[Scenario, list[StrategyResult]]:
    """Returns the comparison, and the result of each strategy."""
    source = scenario_of(options)
    return source, [strategy.run(source) for strategy in STRATEGIES]


def page_files(root: Path = ROOT) -> dict[Path, str]:
    """Returns the page and the picture with the present results."""
    listed, text = prices.read(), (root / PAGE).read_text(encoding="utf-8")
    tables = {}
    for name, options in COMPARISONS.items():
        source, results = run_all_strategies(options)
        memory_mb = source.settings["memory_mb"]
        tables[name] = page_columns(command.table_rows([result.as_json(memory_mb, listed) for result in results]))
    recovered = backoff_kinds.simulate_all()
    tables["backoff"] = backoff_kinds.table_rows(recovered)
    text = insert_tables(text, "compare", {name: table(rows[0], rows[1:]) for name, rows in tables.items()})
    source, results = run_all_strategies(["--faults", DRAWN, "--hours", DRAWN_HOURS])
    groups = [picture_group(result, listed, source.settings["memory_mb"]) for result in results]
    picture = svg.draw(groups, source.run_for_ms, heading(source, DRAWN))
    drawn = {root / PICTURE: picture, root / BACKOFF: backoff_kinds.draw_picture(recovered)}
    return {root / PAGE: text, **drawn}


def page_columns(rows: list[list[str]]) -> list[list[str]]:
    places = [rows[0].index(title) for title in COLUMNS]
    return [[row[place] for place in places] for row in rows]


if __name__ == "__main__":
    sys.exit(run("local.compare.strategies_page", "Writes the results of the strategies.", page_files))

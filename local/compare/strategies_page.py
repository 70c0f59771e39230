"""`python -m local.compare.strategies_page`: writes the results into docs/strategies.md, README and a picture.

The page has its words; each table stands between two comments that name the question. `--check` writes nothing and
returns 1 where something else would be written. Invariant: nothing but those tables and the picture is changed.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from local.checkout import ROOT
from local.compare import backoff_kinds, command
from local.compare.command import Question, group, heading
from local.compare.result import Result
from local.compare.strategies import STRATEGIES
from local.costs import prices
from timeline import svg

PAGE, PICTURE, BACKOFF, README = "docs/strategies.md", "docs/strategies.svg", "docs/backoff.svg", "README.md"
QUESTIONS = {
    "none": ["--hours", "24"],
    "calm": ["--hours", "24", "--faults", "calm"],
    "rough": ["--hours", "24", "--faults", "rough"],
    "measured": ["--hours", "0.05", "--limit", "45", "--wait", "35"],
    "tolerates": ["--hours", "0.05", "--limit", "45", "--wait", "35", "--upstream", "tolerates", "--overlap-s", "10"],
}
DRAWN, DRAWN_HOURS = "rough", "6"


def asked(options: list[str]) -> Question:
    """Returns what `streamkeeper compare` with these options is asked."""
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    return command.question(parser.parse_args(["compare", *options]))


def answered(options: list[str]) -> tuple[Question, list[Result]]:
    """Returns what it is asked, and what each strategy comes to."""
    question = asked(options)
    return question, [strategy.run(question.source) for strategy in STRATEGIES]


def written(root: Path = ROOT) -> dict[Path, str]:
    """Returns the page and the picture as they must be."""
    listed, text = prices.read(), (root / PAGE).read_text(encoding="utf-8")
    tables = {}
    for name, options in QUESTIONS.items():
        question, results = answered(options)
        memory_mb = question.source.settings["memory_mb"]
        tables[name] = command.rows([result.as_json(memory_mb, listed) for result in results])
        text = table_in(text, name, tables[name])
    readme = table_in((root / README).read_text(encoding="utf-8"), "short", _short(tables))
    recovered = backoff_kinds.simulated()
    text = table_in(text, "backoff", backoff_kinds.rows(recovered))
    question, results = answered(["--faults", DRAWN, "--hours", DRAWN_HOURS])
    groups = [group(result, listed, question.source.settings["memory_mb"]) for result in results]
    picture = svg.draw(groups, command.until_ms(question), heading(question))
    drawn = {root / PICTURE: picture, root / BACKOFF: backoff_kinds.picture(recovered)}
    return {root / PAGE: text, root / README: readme, **drawn}


def _short(tables: dict[str, list[list[str]]]) -> list[list[str]]:
    """README's table: a strategy, its time without a connection, and what it costs."""
    lines = [["strategy", "s a day without a connection", "with rough faults", "$ a month"]]
    for calm, rough in zip(tables["none"][1:], tables["rough"][1:], strict=True):
        gap, usd = (tables["none"][0].index(title) for title in ("gap s", "$ a month"))
        lines.append([calm[0], calm[gap], rough[gap], calm[usd]])
    return lines


def lines_of(rows: list[list[str]]) -> list[str]:
    """Returns the rows of a table as the page has them."""
    return ["| " + " | ".join(row) + " |" for row in rows]


def table_in(text: str, name: str, rows: list[list[str]]) -> str:
    """Returns the page with the table in its place."""
    lines = lines_of(rows)
    block = "\n".join([lines[0], "|---|" + "---:|" * (len(rows[0]) - 1), *lines[1:]])
    mark = rf"(<!-- compare: {name} -->\n).*?(<!-- /compare -->)"
    return re.sub(mark, lambda match: f"{match[1]}{block}\n{match[2]}", text, flags=re.DOTALL)


def main(argv: list[str] | None = None) -> int:
    """Writes the page and the picture; with --check returns 1 where one is to be written."""
    parser = argparse.ArgumentParser(
        prog="python -m local.compare.strategies_page", description="Writes what strategies come to."
    )
    parser.add_argument("--check", action="store_true", help="write nothing, return 1 where something is old")
    options = parser.parse_args(argv)
    stale = {path: text for path, text in written().items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in stale.items():
        print(path.relative_to(ROOT))
        if not options.check:
            path.write_text(text, encoding="utf-8")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

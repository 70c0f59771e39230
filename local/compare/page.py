"""`python -m local.compare.page`: writes what the strategies came to into docs/strategies.md, and its picture.

The page has its words; each table stands between two comments that name the question. `--check` writes nothing and
returns 1 where something else would be written. Invariant: nothing but those tables and the picture is changed.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from local.checkout import ROOT
from local.compare import backoff, command
from local.compare.command import Question, group, heading
from local.compare.strategies import STRATEGIES, Result
from local.costs import prices
from timeline import svg

PAGE, PICTURE, BACKOFF = "docs/strategies.md", "docs/strategies.svg", "docs/backoff.svg"
QUESTIONS = {
    "none": ["--hours", "24"],
    "calm": ["--hours", "24", "--faults", "calm"],
    "rough": ["--hours", "24", "--faults", "rough"],
    "measured": ["--hours", "0.05", "--limit", "45", "--wait", "35"],
    "tolerates": ["--hours", "0.05", "--limit", "45", "--wait", "35", "--upstream", "tolerates", "--overlap-s", "10"],
}
DRAWN, DRAWN_HOURS = "rough", "6"


def answered(options: list[str]) -> tuple[Question, list[Result]]:
    """Returns what `streamkeeper compare` with these options is asked, and what each strategy comes to."""
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    asked = command.question(parser.parse_args(["compare", *options]))
    return asked, [strategy.run(asked.source) for strategy in STRATEGIES]


def written(root: Path = ROOT) -> dict[Path, str]:
    """Returns the page and the picture as they must be."""
    listed, text = prices.read(), (root / PAGE).read_text(encoding="utf-8")
    for name, options in QUESTIONS.items():
        asked, results = answered(options)
        memory_mb = asked.source.settings["memory_mb"]
        text = _with(text, name, command.rows([result.as_json(memory_mb, listed) for result in results]))
    recovered = backoff.simulated()
    text = _with(text, "backoff", backoff.rows(recovered))
    asked, results = answered(["--faults", DRAWN, "--hours", DRAWN_HOURS])
    groups = [group(result, listed, asked.source.settings["memory_mb"]) for result in results]
    picture = svg.draw(groups, command.until_ms(asked), heading(asked))
    return {root / PAGE: text, root / PICTURE: picture, root / BACKOFF: backoff.picture(recovered)}


def _with(text: str, name: str, rows: list[list[str]]) -> str:
    """The page with the table in its place."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    block = "\n".join([lines[0], "|---|" + "---:|" * (len(rows[0]) - 1), *lines[1:]])
    mark = rf"(<!-- compare: {name} -->\n).*?(<!-- /compare -->)"
    return re.sub(mark, lambda match: f"{match[1]}{block}\n{match[2]}", text, flags=re.DOTALL)


def main(argv: list[str] | None = None) -> int:
    """Writes the page and the picture; with --check returns 1 where one is to be written."""
    parser = argparse.ArgumentParser(prog="python -m local.compare.page", description="Writes what strategies come to.")
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

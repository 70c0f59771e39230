"""Writes the README of a folder of state machines: `python -m local.workbench.folder_page FOLDER` prints it.

It has each machine's comment, a flowchart of its own line of states and of each branch of a Parallel, so that none
grows too wide, and a table of what each state is for. Definitions are read unresolved.
Invariant: the same files give the same text, to the byte.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

import yaml

from states_language.drawing.boxes import Definition, one_line_text
from states_language.drawing.mermaid import flowchart

# Prose ends before column 100.
WIDTH = 99
HEAD = """# State machines

Each file is Amazon States Language; `connections.asl.yml`, `start.asl.yml`, `upgrade.asl.yml` and
`fleet.asl.yml` are deployed, the others are kept for comparison. A rounded box waits, a rhombus
chooses, a ring ends, two rings fail. This page is made from the files: `python -m
local.workbench.folder_page statemachines` prints it.
"""


def machine_and_branches(definition: Definition, title: str = "") -> Iterator[tuple[str, Definition]]:
    """Yield the machine's own line and every branch below it, each with a title ("" for the machine's own)."""
    yield title, definition
    for name, state in definition["States"].items():
        for number, branch in enumerate(state.get("Branches", []), 1):
            yield from machine_and_branches(branch, f"{name}, branch {number}")


def folder_readme(folder: Path) -> str:
    """Return the README of a folder: of each machine its comment, its flowcharts and what each state is for."""
    parts = [HEAD]
    for path in sorted(folder.glob("*.asl.yml")):
        definition = yaml.safe_load(path.read_text(encoding="utf-8"))
        parts.append(f"## {path.name}\n\n{fill(one_line_text(definition.get('Comment', '')), WIDTH)}\n")
        former: list[tuple[str, str]] = []
        for title, line in machine_and_branches(definition):
            if title:
                parts.append(f"### {title}\n")
            parts.append(f"```mermaid\n{flowchart(line)}\n```\n")
            told = [(one["Type"], one_line_text(one["Comment"])) for one in line["States"].values()]
            # Two lanes have the same states, by other names.
            parts.append("Its states do what those of the branch above do." if told == former else _table(line))
            parts.append("")
            former = told
    return "\n".join(parts).rstrip() + "\n"


def _table(line: Definition) -> str:
    rows = (f"| {name} | {one['Type']} | {one_line_text(one['Comment'])} |" for name, one in line["States"].items())
    return "\n".join(["| state | type | |", "|---|---|---|", *rows])


if __name__ == "__main__":
    sys.stdout.write(folder_readme(Path(sys.argv[1])))

"""docs/upgrade.md says what an upgrade may change: each row of its table names an existing test."""

import ast
import re
from pathlib import Path

from local.stages import ROOT

ROW = re.compile(r"^\| .+ \| .+ \| `(tests/[\w/]+\.py)::(test_\w+)` \|$")


def rows() -> list[str]:
    """Return the rows of the table."""
    page = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")
    table = page[page.index("| what | what may change | the test |") :]
    return [line for line in table.splitlines()[2:] if line.startswith("|")]


def names_in(path: Path) -> set[str]:
    """Return the names of a file's tests."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_each_row_names_a_test_that_is_there() -> None:
    """It has the test's file and name."""
    named = [ROW.match(row) for row in rows()]
    assert len(named) == 14
    assert [row for row, name in zip(rows(), named, strict=True) if name is None] == []
    missing = [name[0] for name in named if name is not None and name[2] not in names_in(ROOT / name[1])]
    assert missing == []

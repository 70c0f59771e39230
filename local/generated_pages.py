"""Writes a command's output into pages: tables between two comments that name them, as `<!-- cost: stage -->`.

Invariant: only the text between those comments, and what a caller changes itself, is changed.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from local.checkout import ROOT


def row(*cells: str) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], text_columns: Sequence[int] = (0,)) -> list[str]:
    """Returns the lines of a table; columns at the places of `text_columns` are aligned left, others right."""
    places = [place % len(heads) for place in text_columns]
    marks = ("---" if place in places else "---:" for place in range(len(heads)))
    return [row(*heads), f"|{'|'.join(marks)}|", *(row(*cells) for cells in rows)]


def insert_tables(text: str, kind: str, tables: Mapping[str, Sequence[str]]) -> str:
    """Returns the page with the tables in their places; a table without a place is left out."""
    for name, lines in tables.items():
        begin, end = f"<!-- {kind}: {name} -->\n", f"<!-- /{kind} -->"
        block = "\n".join([*lines, end])
        text = re.sub(f"{begin}.*?{end}", lambda _, new=begin + block: new, text, flags=re.DOTALL)  # type: ignore[misc]
    return text


def run(
    module: str, description: str, files: Callable[[], Mapping[Path, str]], count: Callable[[], object] | None = None
) -> int:
    """Runs `python -m module`: writes the outdated ones of `files`, or, with --check, returns 1 if there are any.

    If there is a `count`, --count calls it first.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; return 1 if a page is outdated")
    if count is not None:
        parser.add_argument("--count", action="store_true", help="count again what the pages are made from")
    options = parser.parse_args()
    if count is not None and options.count:
        count()
    stale = outdated_files(files())
    for path, text in stale.items():
        print(path.relative_to(ROOT))
        if not options.check:
            path.write_text(text, encoding="utf-8")
    return 1 if options.check and stale else 0


def outdated_files(files: Mapping[Path, str]) -> dict[Path, str]:
    """Returns the files whose content differs."""
    return {path: text for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text}

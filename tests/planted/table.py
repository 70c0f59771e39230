"""The table of the planted defects: what is wrong, where, and who must catch it, written before it is run.

A row (`*.toml` beside this file) names one defect and one or more changes of text: `file`, the `old` text, which the
file has exactly once, and the `new` one. `caught_by` names catchers, each of which must catch it:

    {test = "tests/…::test_…"}                                 the test fails on what it asserts
    {seed = 6, breaks = "lost"}                                that schedule of chaos breaks this rule
    {seed = 6, groups = true, breaks = "lost"}                 the same of the schedule of groups
    {seed = 6, like = "two outages", breaks = "lost"}          the same of a schedule of `schedules.py`, by this seed
    {model = "evicts", faults = {drop = 1}, breaks = "…"}      the exploration names this invariant, or one of a list
    {group_model = "evicts evicts", faults = {join = 1}, …}    the same of a group's protocol
    {log_model = {events = 2, connections = 2}, breaks = "…"}  the same of the log's protocol

A schedule runs on for `more_ms`, and its faults may come `faults_later_ms`; a model goes `depth` steps deep. What is
`always` changed is changed in the sound run as well. `real` rows are shown by the soak too
(`tests/chaos/real/test_soak.py`). It decides nothing else.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent

Catcher = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One change of text; the file's path is from the root of the project."""

    file: str
    old: str
    new: str

    @property
    def problem(self) -> str:
        """Why it cannot be made; "" where it can."""
        if not (ROOT / self.file).is_file():
            return f"there is no {self.file}"
        found = (ROOT / self.file).read_text(encoding="utf-8").count(self.old)
        return "" if found == 1 else f"{self.file} has the old text {found} times: {self.old!r}"


@dataclass(frozen=True)
class Row:
    """One defect."""

    name: str
    changes: tuple[Change, ...]
    caught_by: tuple[Catcher, ...]
    always: tuple[Change, ...] = ()
    real: bool = False

    @property
    def problems(self) -> list[str]:
        """Why it cannot be run: each is a sentence that begins with its name."""
        found = [change.problem for change in (*self.changes, *self.always)]
        found += [
            f"no such test: {one['test']}" for one in self.caught_by if "test" in one and not _is_there(one["test"])
        ]
        return [f"{self.name}: {problem}" for problem in found if problem]


def _is_there(test: str) -> bool:
    file, _, name = test.partition("::")
    path = ROOT / file
    return path.is_file() and f"def {name.partition('[')[0]}(" in path.read_text(encoding="utf-8")


def _changes(given: Iterable[Mapping[str, str]]) -> tuple[Change, ...]:
    return tuple(Change(one["file"], one["old"], one["new"]) for one in given)


def rows() -> list[Row]:
    """All rows, in the order of the files' names and of the files."""
    found = []
    for path in sorted(FOLDER.glob("*.toml")):
        for one in tomllib.loads(path.read_text(encoding="utf-8"))["defect"]:
            changes = _changes([one] if "file" in one else one["change"])
            catchers, always = tuple(one["caught_by"]), _changes(one.get("always", ()))
            found.append(Row(one["name"], changes, catchers, always, one.get("real", False)))
    return found


def changed(changes: Iterable[Change]) -> dict[Path, str]:
    """The texts of the files that are changed; ValueError where one cannot be."""
    texts: dict[Path, str] = {}
    for change in changes:
        if change.problem:
            raise ValueError(change.problem)
        path = ROOT / change.file
        texts[path] = texts.get(path, path.read_text(encoding="utf-8")).replace(change.old, change.new)
    return texts

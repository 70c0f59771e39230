"""`check`: its output and its exit status."""

import json
from pathlib import Path
from typing import Any

import pytest

from machines import write_file
from states_language.__main__ import main

GOOD = {"Comment": "A test.", "StartAt": "A", "States": {"A": {"Type": "Succeed", "Comment": "The end."}}}
PLAIN = {"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}
BAD = {"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "C", "InputPath": 3}, "B": {"Type": "Succeed"}}}


@pytest.mark.parametrize(
    ("definition", "options", "status"),
    [(GOOD, [], 0), (GOOD, ["--strict"], 0), (PLAIN, [], 0), (PLAIN, ["--strict"], 1), (BAD, [], 1)],
)
def test_check_exits_with_1_if_a_definition_does_not_load(
    tmp_path: Path, definition: Any, options: list[str], status: int
) -> None:
    """The status is 0 if the definition loads, 1 if not; --strict counts warnings too."""
    assert main(["check", *options, write_file(tmp_path, "a.json", definition)]) == status


def test_every_problem_is_printed_with_its_pointer_rule_and_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A problem has three lines on standard error, under the file's name. A file that loads is on standard output."""
    path = write_file(tmp_path, "a.json", BAD)
    good = write_file(tmp_path, "good.json", GOOD)
    assert main(["check", path, good]) == 1
    said = capsys.readouterr()
    assert said.out.splitlines()[0].startswith(f"{good}: ")
    assert said.err.splitlines() == [
        f"{path}: 2 problems",
        "  problem at /States/A/InputPath",
        "    must be a JSONPath",
        "    A path begins with $ for the input, or with $$ for the Context Object: $.a.b[0].",
        "  problem at /States/A/Next",
        "    there is no state 'C'",
        "    The states beside it: A, B.",
    ]


def test_json_output_of_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each file has an entry. A file that cannot be read gives status 2, and the other files are still listed."""
    good, bad = write_file(tmp_path, "good.json", GOOD), write_file(tmp_path, "bad.yml", "StartAt: A\nStartAt: B\n")
    missing = str(tmp_path / "none.yml")
    assert main(["check", "--json", good, missing, str(tmp_path), bad]) == 2
    rule, hint = "line 2: the key 'StartAt' appears twice", "Rename one of the two, for one of them would be lost."
    none: dict[str, Any] = {"problems": [], "warnings": []}
    assert json.loads(capsys.readouterr().out)["files"] == [
        {"file": good, **none},
        {"file": missing, "unreadable": f"{missing} does not exist.", **none},
        {"file": str(tmp_path), "unreadable": f"{tmp_path} is a folder.", **none},
        {"file": bad, **none, "problems": [{"pointer": "/", "rule": rule, "hint": hint}]},
    ]

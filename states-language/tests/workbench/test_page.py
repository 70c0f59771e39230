"""docs/command.md shows what the commands accept."""

import textwrap
from pathlib import Path

from states_language.workbench import files as functions

PAGE = (Path(__file__).parents[2] / "docs" / "command.md").read_text(encoding="utf-8")


def test_the_example_of_functions_can_be_read(tmp_path: Path) -> None:
    """`run` accepts the file of functions that the page shows."""
    text = "    resize-image:" + PAGE.partition("    resize-image:")[2].partition("\n\n")[0]
    (tmp_path / "f.yml").write_text(textwrap.dedent(text))
    given = functions.read_answers(str(tmp_path / "f.yml"))
    assert {name: len(answer.answers) for name, answer in given.items()} == {
        "resize-image": 2,
        "dynamodb:putItem": 1,
        "slow-report": 1,
    }

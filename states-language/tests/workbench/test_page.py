"""docs/command.md says what the commands take."""

import textwrap
from pathlib import Path

from states_language.workbench import answers as functions

PAGE = (Path(__file__).parents[2] / "docs" / "command.md").read_text(encoding="utf-8")


def test_the_example_of_functions_can_be_read(tmp_path: Path) -> None:
    """What the page shows is a file that `run` takes."""
    text = "    resize-image:" + PAGE.partition("    resize-image:")[2].partition("\n\n")[0]
    (tmp_path / "f.yml").write_text(textwrap.dedent(text))
    given = functions.read(str(tmp_path / "f.yml"))
    assert {name: len(answer.answers) for name, answer in given.items()} == {
        "resize-image": 2,
        "dynamodb:putItem": 1,
        "slow-report": 1,
    }

"""docs/asl.md says what the interpreter does."""

import textwrap
from pathlib import Path

from local.stages import ROOT
from local.workbench import functions
from states_language.supported import AIDS, page


def test_the_page_is_made_from_the_code() -> None:
    """`python -m states_language.supported` prints docs/asl.md, to the byte."""
    assert (ROOT / "docs" / "asl.md").read_text(encoding="utf-8") == page()


def test_the_page_lists_what_the_tables_have() -> None:
    """One of each: a state type, an intrinsic function, an operator, an integration with its patterns."""
    for name in ("`Parallel`", "`States.MathAdd`", "`NumericLessThanPath`", "`startExecution` (`.sync`, `.sync:2`"):
        assert name in page()


def test_the_example_of_functions_can_be_read(tmp_path: Path) -> None:
    """What the page shows is a file that `asl run` takes."""
    example = AIDS.partition("    resize-image:")
    text = "    resize-image:" + example[2].partition("\n\n")[0]
    (tmp_path / "f.yml").write_text(textwrap.dedent(text))
    found = functions.read(str(tmp_path / "f.yml")).behaviours
    assert {name: len(listed) for name, listed in found.items()} == {
        "resize-image": 2,
        "dynamodb:putItem": 1,
        "slow-report": 1,
    }

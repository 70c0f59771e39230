"""docs/supported.md says what the interpreter does."""

from pathlib import Path

from states_language.supported import page


def test_the_page_is_made_from_the_code() -> None:
    """`python -m states_language.supported` prints docs/supported.md, to the byte."""
    assert (Path(__file__).parents[2] / "docs" / "supported.md").read_text(encoding="utf-8") == page()

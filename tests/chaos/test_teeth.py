"""The documentation tells of every deliberate defect, and which proof catches it."""

from pathlib import Path

from tests.chaos import chaos_defects, model_defects
from tests.chaos.teeth import FOREMOST, table

PROOFS = Path(__file__).parents[2] / "docs" / "proofs.md"


def test_the_table_in_the_documentation_is_the_one_that_is_tested() -> None:
    """`python -m tests.chaos.teeth` prints it."""
    assert table() in PROOFS.read_text(encoding="utf-8")


def test_what_must_be_caught_is_caught_by_a_proof_at_least() -> None:
    """Each of the foremost defects is one of the model's or of chaos's, and there are more than thirty in all."""
    names = {defect.what for defect in model_defects.DEFECTS} | {defect.name for defect in chaos_defects.DEFECTS}
    assert set(FOREMOST) <= names
    assert len(names) >= 25

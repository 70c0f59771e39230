"""The documentation tells of every deliberate defect, and which proof catches it."""

from pathlib import Path

import pytest

from handlers.stream.manager import Manager
from tests.chaos import chaos_defects, model_defects
from tests.chaos.teeth import FOREMOST, OF_THE_MANAGER, OF_THE_STORE, managers, table
from tests.handlers import test_event_writer, test_store
from tests.handlers.stream import test_manager

PROOFS = Path(__file__).parents[2] / "docs" / "proofs.md"


def test_the_table_in_the_documentation_is_the_one_that_is_tested() -> None:
    """`python -m tests.chaos.teeth` prints it."""
    assert table() in PROOFS.read_text(encoding="utf-8")


def test_what_must_be_caught_is_caught_by_a_proof_at_least() -> None:
    """Each of the foremost defects is one of the model's or of chaos's, and there are more than thirty in all."""
    names = {defect.what for defect in model_defects.DEFECTS} | {defect.name for defect in chaos_defects.DEFECTS}
    assert set(FOREMOST) <= names
    assert len(names) >= 25


@pytest.mark.parametrize(("name", "defective"), managers().items(), ids=list(managers()))
def test_the_named_unit_test_catches_the_defect_of_the_manager(
    name: str, defective: type[Manager], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes with the sound manager and fails with the defective one."""
    unit_test = getattr(test_manager, OF_THE_MANAGER[name])
    unit_test()
    monkeypatch.setattr(test_manager, "Manager", defective)
    with pytest.raises(AssertionError):
        unit_test()


def test_the_named_unit_tests_of_the_store_exist() -> None:
    """What they catch was tried by hand; they are there."""
    there = {**vars(test_store), **vars(test_event_writer)}
    assert {name: name in there for name in OF_THE_STORE.values()} == dict.fromkeys(OF_THE_STORE.values(), True)

"""The documentation names every deliberate defect, and which proof catches it."""

from pathlib import Path

import pytest

from handlers.connection.manager import Manager
from tests.chaos import chaos_defects, model_defects
from tests.chaos.teeth import ELSEWHERE, FOREMOST, OF_THE_MACHINE, OF_THE_MANAGER, OF_THE_STORE, UNITS, managers, table
from tests.chaos.unit_defects import MACHINE, STORE
from tests.handlers.connection import managers as built
from tests.handlers.connection import test_draining, test_hot_standby, test_intake, test_manager

PROOFS = Path(__file__).parents[2] / "docs" / "proofs.md"


def test_the_table_in_the_documentation_is_the_one_that_is_tested() -> None:
    """`python -m tests.chaos.teeth` prints it."""
    assert table() in PROOFS.read_text(encoding="utf-8")


def test_what_must_be_caught_is_caught_by_a_proof_at_least() -> None:
    """Each of the foremost defects is one of the model's or of chaos's, and there are more than thirty in all."""
    names = {defect.what for defect in model_defects.DEFECTS} | {defect.name for defect in chaos_defects.DEFECTS}
    assert set(FOREMOST) <= names
    assert len(names) >= 25


def test_every_defect_fails_a_unit_test_as_well() -> None:
    """None is caught only by a proof that takes seconds."""
    names = {defect.what for defect in model_defects.DEFECTS} | {defect.name for defect in chaos_defects.DEFECTS}
    assert set(UNITS) == names
    assert set(OF_THE_STORE) == set(STORE)
    assert set(OF_THE_MACHINE) == set(MACHINE)


@pytest.mark.parametrize(("name", "defective"), managers().items(), ids=list(managers()))
def test_the_named_unit_test_catches_the_defect_of_the_manager(
    name: str, defective: type[Manager], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes with the sound manager and fails with the defective one."""
    subjects = (test_manager, test_intake, test_draining, test_hot_standby)
    unit_test = next(vars(subject)[test] for subject in subjects if (test := OF_THE_MANAGER[name]) in vars(subject))
    unit_test()
    monkeypatch.setattr(built, "Manager", defective)
    with pytest.raises(AssertionError):
        unit_test()


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_named_unit_test_catches_the_defect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes without it and fails with it."""
    module, test = ELSEWHERE[name]
    vars(module)[test]()
    defect = next(defect for defect in chaos_defects.DEFECTS if defect.name == name)
    assert defect.function is not None
    monkeypatch.setattr(*defect.function)
    with pytest.raises(AssertionError):
        vars(module)[test]()

"""The unit tests of the ledger have teeth: each deliberate defect fails the one that is named for it."""

import pytest

from tests.chaos.ledger_defects import LEDGER
from tests.chaos.teeth import OF_THE_LEDGER
from tests.handlers.connection import test_intake, test_ledger
from tests.handlers.store import test_requests


def test_every_defect_of_the_ledger_has_its_unit_test() -> None:
    """None is caught only by chaos."""
    assert set(OF_THE_LEDGER) == set(LEDGER)


@pytest.mark.parametrize("name", OF_THE_LEDGER)
def test_the_named_unit_test_catches_the_defect_of_the_ledger(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes with the sound code and fails with the defect."""
    subjects = (test_ledger, test_intake, test_requests)
    unit_test = next(vars(subject)[test] for subject in subjects if (test := OF_THE_LEDGER[name]) in vars(subject))
    cases = [mark.args[1] for mark in getattr(unit_test, "pytestmark", [])]

    def run() -> None:
        for arguments in cases[0] if cases else [()]:
            unit_test(*arguments)

    run()
    monkeypatch.setattr(*LEDGER[name])
    with pytest.raises(AssertionError):
        run()

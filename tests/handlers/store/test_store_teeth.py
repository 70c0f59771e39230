"""Each deliberate defect of the store fails the unit test that docs/proofs.md names, which passes without it."""

from typing import Any

import pytest

from tests.chaos.teeth import OF_THE_STORE
from tests.chaos.unit_defects import STORE
from tests.handlers.aws import Aws
from tests.handlers.store import (
    test_connection_store,
    test_dead_letters,
    test_event_reader,
    test_event_writer,
    test_stored_events,
)

SUBJECTS = (test_connection_store, test_event_writer, test_stored_events, test_dead_letters, test_event_reader)
UNIT_TESTS = {name: test for subject in SUBJECTS for name, test in vars(subject).items()}
# The further arguments of a test that takes more than the services.
ARGUMENTS: dict[str, tuple[Any, ...]] = {"test_pages_follow_one_another_in_order": (5,)}


@pytest.mark.parametrize("name", OF_THE_STORE)
def test_the_named_unit_test_catches_the_defect_of_the_store(
    name: str, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails on what it asserts, or on an error that it expects and that does not come."""
    monkeypatch.setattr(*STORE[name])
    unit_test = UNIT_TESTS[OF_THE_STORE[name]]
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        unit_test(aws, *ARGUMENTS.get(OF_THE_STORE[name], ()))

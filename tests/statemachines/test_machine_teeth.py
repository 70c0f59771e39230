"""Each deliberate defect of the machine fails the unit test that docs/proofs.md names, which passes without it."""

from typing import Any

import pytest

from tests.chaos.teeth import OF_THE_MACHINE
from tests.chaos.unit_defects import MACHINE
from tests.statemachines import connections, test_claims, test_connections, test_renewal, test_stop
from tests.statemachines.connections import START, Aws

# The further arguments of a test that takes more than the services.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "test_a_stop_request_after_the_post_holds": ({}, START),
    "test_a_claim_outlasts_an_outage": ("describeExecution",),
}


@pytest.mark.parametrize("name", OF_THE_MACHINE)
def test_the_named_unit_test_catches_the_defect_of_the_machine(
    name: str, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails on what it asserts."""
    sound: Any = connections.definition

    def defective(*names: Any, **changes: int) -> Any:
        definition = sound(*names, **changes)
        MACHINE[name](definition)
        return definition

    monkeypatch.setattr(connections, "definition", defective)
    test = OF_THE_MACHINE[name]
    unit_test = {**vars(test_claims), **vars(test_connections), **vars(test_renewal), **vars(test_stop)}[test]
    with pytest.raises(AssertionError):
        unit_test(aws, *ARGUMENTS.get(test, ()))

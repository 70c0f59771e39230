"""Fixtures of the tests of the deployed machine."""

import pytest

from tests.statemachines.connections import Aws


@pytest.fixture
def aws() -> Aws:
    """AWS with an empty control table; the execution `other` runs."""
    return Aws()

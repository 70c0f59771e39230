"""Fixtures of the tests of the deployed machine."""

from collections.abc import Iterator

import pytest
from moto import mock_aws

from tests.statemachines.connections import OTHER, Aws, tables


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """AWS with an empty control table; the execution `other` runs."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with mock_aws():
        for client in tables():
            yield Aws(client, {OTHER: "RUNNING"})

"""AWS as moto plays it, in this process: the tables and the queue that the handlers use."""

from collections.abc import Iterator

import pytest
from hypothesis import settings
from moto import mock_aws

from tests.handlers.aws import Aws

# A busy machine is no counterexample: what an example may cost is held by tests that measure it.
settings.register_profile("streamkeeper", deadline=None)
settings.load_profile("streamkeeper")


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """Empty tables and an empty queue."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_SQS", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        yield Aws()

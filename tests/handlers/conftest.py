"""AWS as the embedded engine plays it, in a process of its own: the tables and the queue that the handlers use."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handlers import tls
from tests.handlers import engine
from tests.handlers.aws import Aws


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the embedded AWS. moto would do for single calls, but knows no parameters of PartiQL."""
    with engine.running(tmp_path_factory.mktemp("engine")) as address:
        yield address


@pytest.fixture
def aws(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """Empty tables and an empty queue."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    for name in ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_SQS", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    embedded = Aws()
    yield embedded
    embedded.close()


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Lets the process trust the certificates of a file, as one that starts with SSL_CERT_FILE does."""

    def begins(file: Path) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        tls.tls.cache_clear()

    yield begins
    tls.tls.cache_clear()

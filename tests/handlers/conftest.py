"""Fixtures: the embedded engine plays AWS in a process of its own, with the handlers' tables and queue."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from handlers import tls
from handlers.store.event_reader import EventReader
from handlers.store.overflow import Objects
from handlers.store.stream_records import StreamRecords
from tests.handlers import engine
from tests.handlers.aws import BUCKET, CONTROL, EVENTS, Aws, Memory
from tests.handlers.context import cold_start
from tests.handlers.test_settings import RESTS, environment


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of the embedded AWS; moto does not support PartiQL parameters."""
    with engine.running(tmp_path_factory.mktemp("engine")) as address:
        yield address


@pytest.fixture(scope="session")
def tables(endpoint: str) -> Iterator[str]:
    """Return the address of the tables; the engine's own tables are ten times as slow."""
    with engine.tables(endpoint) as address:
        yield address


@pytest.fixture
def aws(endpoint: str, tables: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """Yield empty tables and an empty queue."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", tables)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    for name in ("AWS_ENDPOINT_URL_SQS", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    embedded = Aws()
    yield embedded
    embedded.close()


@pytest.fixture
def memory() -> Memory:
    """Return empty tables, an empty queue and an empty bucket in memory."""
    return Memory()


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Let the process trust the certificates of a file, as a process that starts with SSL_CERT_FILE does."""

    def begins(file: Path) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        tls.tls.cache_clear()

    yield begins
    tls.tls.cache_clear()


@pytest.fixture
def function(aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return the control API's module as a new sandbox imports it, with one profile, `demo`."""
    yield from _control(aws, tmp_path, monkeypatch)


@pytest.fixture
def control(memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return the same on tables in memory; no execution was ever started."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    memory.queue_url = "https://sqs.test/queue"
    for module in _control(memory, tmp_path, monkeypatch):
        monkeypatch.setattr(module.stage, "first_execution", lambda _: None)
        yield module


def _control(aws: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    places = {
        "DEAD_LETTER_QUEUE_URL": aws.queue_url,
        "STATE_MACHINE_ARN": "arn:aws:states:us-east-1:111111111111:stateMachine:streamkeeper",
        "STREAMS_DIR": str(tmp_path),
        "FLEET_MACHINE_ARN": "arn:aws:states:us-east-1:000000000000:stateMachine:streamkeeper-test-fleet",
    }
    times = {"LEASE_EVERY_S": "2", "PROGRESS_EVERY_S": "5", "COOL_DOWN_S": "20"}
    # A logger and its added keys live as long as the process, so each sandbox has a logger of its own.
    logs = {"POWERTOOLS_SERVICE_NAME": str(uuid.uuid4()), "POWERTOOLS_LOG_LEVEL": "INFO"}
    for name, value in environment(tmp_path, **RESTS | places | times | logs).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "demo.toml").write_text("")
    with cold_start("handlers.control") as module:
        monkeypatch.setattr(module.stage, "client", aws.dynamodb)
        monkeypatch.setattr(module.stage, "store", StreamRecords(aws.dynamodb, CONTROL, EVENTS))
        monkeypatch.setattr(module.stage, "sqs", lambda: aws.sqs)
        monkeypatch.setattr(
            module.stage, "reader", EventReader(aws.dynamodb, EVENTS, Objects(lambda: aws.s3, BUCKET).get)
        )
        yield module

"""The function that delivers, as Lambda calls it, with its own clients, at a server that answers as AWS does."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from handlers.aws import clients
from tests.handlers.context import Context, cold_start
from tests.handlers.deliver.records import event, item_record
from tests.http_server import Answer, Request, answering

PROFILE = 'address = "https://upstream.invalid/"\ndeliver = [{ lambda = "mine" }, { eventbridge = "bus" }]\n'


class Aws:
    """What was asked; a function takes `function_s`, and there is no bus where `is_away`."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.function_s = 0.0
        self.is_away = False

    def answer(self, operation: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the body."""
        self.asked.append(operation)
        if operation == "Invoke":
            threading.Event().wait(self.function_s)
        if operation == "PutEvents" and self.is_away:
            return 400, {"__type": "ResourceNotFoundException"}
        return 200, {"Entries": [{"EventId": "1"} for _ in body.get("Entries", ())], "FailedEntryCount": 0}


class Timed(Context):
    """Lambda's context object."""

    def get_remaining_time_in_millis(self) -> int:
        """As at the beginning."""
        return 120_000


@pytest.fixture
def aws() -> Iterator[Aws]:
    """A server on a socket."""
    made = Aws()

    def answer(request: Request) -> Answer:
        operation = request.headers.get("x-amz-target", ".Invoke").rpartition(".")[2]
        status, body = made.answer(operation, json.loads(request.body or b"{}"))
        return Answer(status, {"content-type": "application/x-amz-json-1.1"}, json.dumps(body).encode())

    with answering(answer) as made.url:
        yield made


@pytest.fixture
def delivery(aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The function's module, imported as at a cold start."""
    (tmp_path / "prices.toml").write_text(PROFILE)
    for name, value in {
        "AWS_ENDPOINT_URL": aws.url,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_DEFAULT_REGION": "us-east-1",
        "CONTROL_TABLE": "control",
        "DEAD_LETTER_QUEUE_URL": "http://sqs.invalid/000000000000/dead",
        "STREAMS_DIR": str(tmp_path),
        "SECRETS_PREFIX": "/test/",
        "METRICS_BY": "stage",
        "POWERTOOLS_METRICS_NAMESPACE": "sk-test",
        "POWERTOOLS_SERVICE_NAME": "sk",
        "POWERTOOLS_LOG_LEVEL": "ERROR",
    }.items():
        monkeypatch.setenv(name, value)
    clients.boto3_client.cache_clear()
    with cold_start("handlers.delivery") as module:
        yield module
    clients.boto3_client.cache_clear()


def call(delivery: ModuleType, key: str) -> Any:
    """One call with one event, which was written now."""
    record = item_record("prices:eur", event(key), 1)
    record["dynamodb"]["ApproximateCreationDateTime"] = time.time()
    return delivery.handler({"Records": [record]}, Timed())


def test_a_function_may_take_its_time(aws: Aws, delivery: ModuleType) -> None:
    """It is called once, though it answers later than a service of AWS may: a second call would do its work twice."""
    aws.function_s = clients.READ_S + 0.5
    assert call(delivery, "1") == {"batchItemFailures": []}
    assert sorted(aws.asked) == ["Invoke", "PutEvents", "UpdateItem", "UpdateItem"]


def test_each_call_prints_its_numbers_whatever_the_level_of_the_log(
    aws: Aws, delivery: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """A document for each stream and sink, and the reason in no document."""
    aws.is_away = True
    assert call(delivery, "1")["batchItemFailures"] != []
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["stream"], one["sink"], one["Delivered"], one["DeliveryFailed"]) for one in documents] == [
        ("prices:eur", "lambda:mine", 1, 0),
        ("prices:eur", "eventbridge:bus", 0, 1),
    ]
    assert [one["_aws"]["CloudWatchMetrics"][0]["Namespace"] for one in documents] == ["sk-test"] * 2
    assert all(one["DeliveryLagMs"] > 0 for one in documents)

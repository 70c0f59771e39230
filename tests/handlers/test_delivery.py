"""The delivering function as Lambda calls it, with its own clients, at a server that answers as AWS does."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench.function import environment
from bench.tables import TABLES, Tables
from handlers.aws import lambda_environment
from handlers.deliver.bells import Place
from handlers.deliver.delivery_records import SinkRecords
from handlers.store.event_items import event_item
from local.simulation.tables import METHODS, MemoryDynamoDB
from tests.handlers.context import Context, cold_start
from tests.handlers.deliver.records import event, record
from tests.http_server import Answer, Request, answering

PROFILE = 'address = "https://upstream.invalid/"\ndeliver = [{ lambda = "mine" }, { eventbridge = "bus" }]\n'


class Aws:
    """AWS with tables in memory: records the requests; a function takes `function_s`, the bus fails if `is_away`."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.called: list[dict[str, Any]] = []
        self.function_s = 0.0
        self.is_away = False
        self.tables = MemoryDynamoDB(*TABLES)
        self._answers = Tables(self.tables)
        self._lock = threading.Lock()

    def answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        """Return the status and the body."""
        body = json.loads(request.body or b"{}")
        if request.headers.get("x-amz-invocation-type") == "Event":
            self.called.append(body)
            return 202, {}
        operation = request.headers.get("x-amz-target", ".Invoke").rpartition(".")[2]
        if operation in METHODS:
            with self._lock:
                return self._answers.answer(operation, body)
        self.asked.append(operation)
        if operation == "Invoke":
            threading.Event().wait(self.function_s)
        if operation == "PutEvents" and self.is_away:
            return 400, {"__type": "ResourceNotFoundException"}
        return 200, {"Entries": [{"EventId": "1"} for _ in body.get("Entries", ())], "FailedEntryCount": 0}


class Timed(Context):
    """Lambda's context object."""

    def get_remaining_time_in_millis(self) -> int:
        """Return so little that no worker waits for a sink that is away."""
        return 75_000


@pytest.fixture
def aws() -> Iterator[Aws]:
    """Yield a server on a socket."""
    made = Aws()

    def answer(request: Request) -> Answer:
        status, body = made.answer(request)
        return Answer(status, {"content-type": "application/x-amz-json-1.1"}, json.dumps(body).encode())

    with answering(answer) as made.url:
        yield made


@pytest.fixture
def delivery(aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return the function's module, imported as at a cold start."""
    (tmp_path / "prices.toml").write_text(PROFILE)
    names = {"DELIVERY_TABLE": "delivery", "CONNECTION_DELIVERY": "deliver", "POWERTOOLS_LOG_LEVEL": "ERROR"}
    for name, value in environment(tmp_path, aws.url, **names).items():
        monkeypatch.setenv(name, value)
    lambda_environment.boto3_client.cache_clear()
    with cold_start("handlers.delivery") as module:
        yield module
    lambda_environment.boto3_client.cache_clear()


def call(aws: Aws, delivery: ModuleType, *keys: str) -> None:
    """Pass stored events to the function, then answer the bells that it rang."""
    for key in keys:
        item = event_item("prices:eur", 1, int(key), event(key, at_ms=delivery.now_ms()))
        aws.tables.put_item(TableName="events", Item=item)
        assert delivery.handler({"Records": [record(item, int(key), delivery.now_ms())]}, Timed()) == {}
    while aws.called:
        assert delivery.handler(aws.called.pop(0), Timed()) == {}


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_noting_an_event_invokes_the_function_to_send_it(aws: Aws, delivery: ModuleType) -> None:
    """Noting an event sends nothing to an untried sink: it invokes the function, once for a stream's bells."""
    item = event_item("prices:eur", 1, 1, event("1"))
    aws.tables.put_item(TableName="events", Item=item)
    delivery.handler({"Records": [record(item, 1)]}, Timed())
    assert aws.asked == []
    ((first, second),) = [one["bells"] for one in aws.called]
    assert [first[:2], second[:2]] == [["prices:eur", "lambda:mine"], ["prices:eur", "eventbridge:bus"]]
    delivery.handler(aws.called.pop(), Timed())
    assert sorted(aws.asked) == ["Invoke", "PutEvents"]


def test_a_slow_function_is_called_once_and_delays_no_other_sink(aws: Aws, delivery: ModuleType) -> None:
    """A slow function is called once, even if it answers later than AWS services may; the bus does not wait for it."""
    aws.function_s = lambda_environment.READ_S + 0.5
    ended: list[str] = []
    answer = aws.answer

    def timed(request: Request) -> tuple[int, dict[str, Any]]:
        answered = answer(request)
        ended.append(request.headers.get("x-amz-target", ".Invoke").rpartition(".")[2])
        return answered

    aws.answer = timed  # type: ignore[method-assign]
    call(aws, delivery, "1")
    assert sorted(aws.asked) == ["Invoke", "PutEvents"]
    # The last Invoke is the slow function itself; the earlier ones have bells answered.
    assert ended.index("PutEvents") < len(ended) - 1 - ended[::-1].index("Invoke")


def test_each_call_prints_its_numbers_whatever_the_level_of_the_log(
    aws: Aws, delivery: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call prints one document for each stream and sink, without a reason; a sweep prints how far they are behind."""
    aws.is_away = True
    monkeypatch.setattr("time.sleep", lambda _: None)
    call(aws, delivery, "1")
    documents = sorted(printed(capsys), key=lambda one: str(one["sink"]))
    assert [(one["stream"], one["sink"], one["Delivered"], one["DeliveryFailed"] > 0) for one in documents] == [
        ("prices:eur", "eventbridge:bus", 0, True),
        ("prices:eur", "lambda:mine", 1, False),
    ]
    assert [one["_aws"]["CloudWatchMetrics"][0]["Namespace"] for one in documents] == ["bench"] * 2
    assert delivery.handler({"sweep": True}, Timed()) == {}
    (lag,) = printed(capsys)
    assert (lag["DeliveryWaiting"], lag["DeliveryLagMs"] > 0) == (1, True)


def test_an_event_that_is_noted_late_counts_as_lag(delivery: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """A call that notes events late prints the lag, because a sweep sees only events that are noted."""
    for late_ms in (delivery.LATE_MS - 5_000, 400_000):
        item = event_item("prices:eur", 1, late_ms, event(str(late_ms), at_ms=0))  # A dead letter that was put back.
        delivery.handler({"Records": [record(item, late_ms, delivery.now_ms() - late_ms)]}, Timed())
    (lag,) = printed(capsys)
    assert 400_000 <= lag["DeliveryLagMs"] < 460_000
    assert lag["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["service"]]


def test_a_command_is_carried_out_and_rings(aws: Aws, delivery: ModuleType) -> None:
    """A command applies to each of its streams: pausing a sink keeps its events, resuming sends them at once."""
    call(aws, delivery, "1")
    asked = {"streams": ["prices:usd", "prices:eur"], "sink": "eventbridge:bus"}
    assert delivery.handler({**asked, "command": "pause"}, Timed()) == {}
    call(aws, delivery, "2")
    assert aws.asked.count("PutEvents") == 1
    records = SinkRecords(delivery.table)
    read = [records.read(Place(stream, "eventbridge:bus")) for stream in asked["streams"]]
    assert [record is not None and record.is_paused for record in read] == [True, True]
    assert delivery.handler({**asked, "command": "resume"}, Timed()) == {}
    call(aws, delivery)
    assert aws.asked.count("PutEvents") == 2

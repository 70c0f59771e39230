"""The watch on the embedded AWS: the streams that it finds away or unwell, its messages, its starts, and its cost."""

import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from handlers.connection.lease import Lease
from handlers.connection.orphans import Verdict
from handlers.errors import StoreUnavailable
from handlers.store import control_record
from handlers.store.control_table import Table
from handlers.store.typed_values import instant_text
from handlers.watching.alerts import KINDS, MOST_OF_GROUP, lines, with_streams
from handlers.watching.orphan_recovery import ExecutionDescription, release_stopped
from local.costs.stage_costs import WATCH_METRICS, measurements
from local.service import osls
from local.simulation.tables import MemoryDynamoDB
from tests.handlers.aws import Aws, Client, drop_request, fail_with
from tests.handlers.context import Context

TABLE = "watched"
AFTER_S = 300
MACHINE = "arn:aws:states:us-east-1:111111111111:stateMachine:machine"
ENVIRONMENT = {
    "CONTROL_TABLE": TABLE,
    "STATE_MACHINE_ARN": MACHINE,
    "ALERTS_TOPIC_ARN": "arn:aws:sns:eu-central-1:000000000000:alerts",
    "DEAD_LETTER_QUEUE_URL": "http://127.0.0.1:9/000000000000/none",
    "UNCONNECTED_AFTER_S": str(AFTER_S),
    "POWERTOOLS_METRICS_NAMESPACE": "watch",
}


class States:
    """Step Functions' client: its answers about executions, and the executions that were started."""

    def __init__(self, **executions: Any) -> None:
        self.executions = executions
        self.started: list[dict[str, Any]] = []

    def describe_execution(self, *, executionArn: str) -> Any:
        """Answer DescribeExecution by the last part of the ARN; a refusal is raised."""
        answer = self.executions.get(executionArn.rpartition(":")[2], refusal("ExecutionDoesNotExist"))
        if isinstance(answer, Exception):
            raise answer
        return answer | {"startDate": datetime.now(UTC)}

    def start_execution(self, **wanted: str) -> dict[str, Any]:
        self.started.append(wanted)
        return {"executionArn": "arn:aws:states:us-east-1:111111111111:execution:machine:" + wanted["name"]}


def refusal(code: str) -> ClientError:
    """Return a refusal of AWS."""
    return ClientError({"Error": {"Code": code}}, "DescribeExecution")


RUNS, ABORTED = {"status": "RUNNING"}, {"status": "ABORTED"}


def claimed(expires_in_s: int, **more: Any) -> dict[str, Any]:
    """Return a lease that an execution holds and that expires in so many seconds."""
    expires_at_ms = time.time_ns() // 1_000_000 + expires_in_s * 1000
    started = {"started_at": {"S": "2026-01-01T00:00:00.000Z"}, "expires_at_ms": {"N": str(expires_at_ms)}}
    return {"generation": {"N": "1"}, "execution": {"S": "arn:1"}} | started | more


class Subscriber:
    """A subscriber to a topic of the embedded AWS, with a queue of its own."""

    def __init__(self, aws: Aws, topic: str) -> None:
        self._sqs = aws.sqs
        self._sns = boto3.client("sns", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
        self.topic: str = self._sns.create_topic(Name=topic)["TopicArn"]
        self._queue = aws.sqs.create_queue(QueueName=topic)["QueueUrl"]
        arn = aws.sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        self._sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=arn)

    def letters(self) -> list[tuple[str, str]]:
        """Return the subject and the text of each new message."""
        answer = self._sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10)
        received = answer.get("Messages", [])
        bodies = [json.loads(one["Body"]) for one in received]
        for one in received:
            self._sqs.delete_message(QueueUrl=self._queue, ReceiptHandle=one["ReceiptHandle"])
        return [(body["Subject"], body["Message"]) for body in bodies]

    def close(self) -> None:
        """Delete the topic and the queue."""
        self._sns.delete_topic(TopicArn=self.topic)
        self._sqs.delete_queue(QueueUrl=self._queue)


class Watched:
    """The control table, in memory, and the function; `module` is a new sandbox for each test."""

    def __init__(
        self, aws: Aws, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.aws, self.letters, self.patch, self.capsys = aws, subscriber.letters, monkeypatch, capsys
        self.dynamodb = MemoryDynamoDB(TABLE)

    @cached_property
    def module(self) -> ModuleType:
        """The function's module as a new sandbox imports it; its logger keeps the output of that moment."""
        module = importlib.import_module("handlers.watch")
        self.patch.setattr(module, "dynamodb", self.dynamodb)
        made = module.client
        self.clients: dict[str, Any] = {"sqs": self.aws.sqs, "stepfunctions": States(**{"1": RUNS})}
        self.patch.setattr(module, "client", lambda service: self.clients.get(service) or made(service))
        return module

    def states(self, **executions: Any) -> States:
        """Let Step Functions answer so."""
        _, states = self.module, States(**executions)
        self.clients["stepfunctions"] = states
        return states

    def put(self, stream_id: str, sort_key: str = "lease", **attributes: Any) -> None:
        """Write a record of the control table."""
        item = {"PK": {"S": stream_id}, "SK": {"S": sort_key}} | attributes
        self.dynamodb.put_item(TableName=TABLE, Item=item)

    def run(self) -> dict[str, Any]:
        """Run once and return the answer."""
        answer: dict[str, Any] = self.module.handler({}, Context())
        return answer

    def runs(self, count: int) -> list[dict[str, Any]]:
        """Run so many times."""
        return [self.run() for _ in range(count)]

    def reported(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the metrics document that was written, and the log lines."""
        lines = [json.loads(line) for line in self.capsys.readouterr().out.splitlines()]
        (document,) = [line for line in lines if "_aws" in line]
        return document, [line for line in lines if "_aws" not in line]

    def reaches_one(self) -> None:
        """Let each later run be late and reach only one stream."""
        self.patch.setattr(self.module, "READ_S", -1)
        for name in ("KEYS", "AT_ONCE"):
            self.patch.setattr("handlers.watching.lease_rounds." + name, 1)

    @contextlib.contextmanager
    def topic_refuses(self) -> Iterator[None]:
        """Let the topic refuse every message."""
        self.clients["sns"] = Client(self.module.client("sns"), "publish", fail_with("AuthorizationError"))
        yield
        del self.clients["sns"]


@pytest.fixture
def watched(
    aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Watched]:
    """Yield the watch of its own table and topic."""
    subscriber = Subscriber(aws, "alerts")
    own = {"POWERTOOLS_SERVICE_NAME": tmp_path.name, "DEAD_LETTER_QUEUE_URL": aws.queue_url}
    for name, value in (ENVIRONMENT | own | {"ALERTS_TOPIC_ARN": subscriber.topic}).items():
        monkeypatch.setenv(name, value)
    sys.modules.pop("handlers.watch", None)
    yield Watched(aws, subscriber, monkeypatch, capsys)
    sys.modules.pop("handlers.watch", None)
    subscriber.close()


def test_the_watch_finds_every_stream_by_the_index(watched: Watched) -> None:
    """The watch finds streams by their leases, logs those that are away, and its metric is the longest time away."""
    watched.put("connected", **claimed(20))
    watched.put("connected", "connection#000000000001", fence={"N": "1"}, execution={"S": "arn:1"})
    watched.put("connected", "cursor", cursor={"S": "7"})
    watched.put("dropped", **claimed(-3))
    watched.put("dead", **claimed(-AFTER_S))
    # The time without a connection counts from the start, not from the end of an earlier lease.
    begun: dict[str, Any] = {"started_at": {"S": instant_text(time.time_ns() // 1_000_000 - 3_000)}}
    for name, lease in (("first", begun), ("again", begun | {"expires_at_ms": {"N": "7"}})):
        watched.put(name, generation={"N": "1"}, execution={"S": "arn:1"}, **lease)
    watched.put("stopped", **claimed(-9999, stop={"BOOL": True}))
    watched.put("over", generation={"N": "3"}, fence={"N": "9"})
    answer = watched.run()
    assert (answer["wanted"], answer["unconnected"], answer["named"]) == (5, 4, ["dead"])
    document, lines = watched.reported()
    assert AFTER_S <= document["LongestUnconnected"][0] < AFTER_S + 60
    assert (document["Wanted"], document["Unconnected"]) == (5, 4)
    assert [list(line["streams"]) for line in lines] == [["dead"]]
    # The alarm watches exactly this metric: with another dimension it would never see it.
    alarm = osls.template("test")["Resources"]["UnconnectedAlarm"]["Properties"]
    (described,) = document["_aws"]["CloudWatchMetrics"]
    assert described["Dimensions"] == [[one["Name"] for one in alarm["Dimensions"]]]
    # No other metric is paid for: each costs 30 cents a month.
    assert [metric["Name"] for metric in described["Metrics"]] == [alarm["MetricName"]] == list(WATCH_METRICS)


def test_each_stream_that_is_away_is_named_to_the_subscribers(watched: Watched) -> None:
    """The watch names each stream that goes away to the subscribers once, with any id, even while another is away."""

    def named() -> list[str]:
        return list(watched.run()["named"])

    watched.put("first", **claimed(-AFTER_S))
    watched.put("demo:\x01é", **claimed(20))
    assert (named(), named()) == (["first"], [])
    ((subject, text),) = watched.letters()
    assert subject == "Streamkeeper: 1 stream is not connected"
    assert '"first" away 5 min' in text
    assert "In all, 1 stream is away." in text
    watched.put("demo:\x01é", **claimed(-AFTER_S))
    assert (named(), named()) == (["demo:\x01é"], [])
    ((_, text),) = watched.letters()
    assert ('"demo:\\u0001\\u00e9" away 5 min' in text, "first" in text, "In all, 2 streams are" in text) == (
        True,
        False,
        True,
    )
    watched.put("first", **claimed(20))
    assert named() == []
    watched.put("first", **claimed(-AFTER_S))
    assert named() == ["first"]


def test_a_lease_that_cannot_be_read_is_named_and_hides_no_other(watched: Watched) -> None:
    """A damaged lease is named to the subscribers once, and its execution is checked.

    Its time without a connection is unknown, so it does not count as unconnected; other streams are unaffected.
    """
    watched.put("bad", **claimed(-AFTER_S, started_at={"S": "yesterday"}, expires_at_ms={"S": "7"}))
    watched.put("dead", **claimed(-AFTER_S))
    watched.states(**{"1": ABORTED})
    answer = watched.run()
    assert (answer["wanted"], answer["unconnected"], answer["named"]) == (2, 1, ["dead", "bad"])
    assert answer["orphans"] == ["bad", "dead"]
    document, lines = [json.loads(line) for line in watched.capsys.readouterr().out.splitlines()][:2], watched.letters()
    assert AFTER_S <= document[0]["LongestUnconnected"][0] < AFTER_S + 60
    (text,) = [text for subject, text in lines if subject == "Streamkeeper: 1 lease is damaged"]
    assert '"bad" expires_at_ms, started_at' in text
    assert watched.run()["named"] == []


def test_connected_streams_that_are_not_well_are_named_once(watched: Watched) -> None:
    """Connected streams that are quiet or whose ids start over are named once, and again only after they were well."""
    now_ms = time.time_ns() // 1_000_000
    pace = {"fence": {"N": "1"}, "seen_ms": {"N": "1"}, "event_ms": {"N": str(now_ms - 90_000)}}
    watched.put("calm", **claimed(900, live={"M": pace | {"expect_ms": {"N": "600000"}}}))
    watched.put("unasked", **claimed(900, live={"M": pace | {"pause_ms": {"N": "9"}}}))
    quiet = claimed(900, live={"M": pace | {"expect_ms": {"N": "60000"}}})
    watched.put("silent", **quiet)
    watched.put("again", **claimed(900, epoch={"S": f"1/5/{now_ms}/1"}))
    assert [run["named"] for run in watched.runs(2)] == [["silent", "again"], []]
    letters = dict(watched.letters())
    assert '"silent" quiet: nothing new for 9' in letters["Streamkeeper: 1 stream is quiet"]
    assert '"again" its ids start over: ' in letters["Streamkeeper: 1 stream is reusing known ids"]
    watched.put("silent", **claimed(900))
    assert watched.run()["named"] == []
    watched.put("silent", **quiet)
    assert watched.run()["named"] == ["silent"]


def test_a_late_run_names_no_stream_twice(watched: Watched) -> None:
    """A late run reports that it is incomplete; a stream is named again only after a whole round has found it well."""
    for name, expires_in_s in (("a", 900), ("b", -AFTER_S), ("c", 900)):
        watched.put(name, **claimed(expires_in_s))
    watched.reaches_one()
    runs = watched.runs(3)
    # The stream goes away in the second round: the first round saw it well and must not make the watch forget it.
    watched.put("a", **claimed(-AFTER_S))
    runs += watched.runs(6)
    assert [run["is_whole"] for run in runs] == [False, False, True] * 3
    assert [run["named"] for run in runs] == [[], ["b"], [], ["a"], [], [], [], [], []]
    assert [run["unconnected"] for run in runs] == [0, 1, 1, 1, 2, 2, 2, 2, 2]
    watched.put("b", **claimed(900))
    runs = watched.runs(3)
    watched.put("b", **claimed(-AFTER_S))
    runs += watched.runs(3)
    assert [run["named"] for run in runs] == [[], [], [], [], ["b"], []]
    subjects = [subject for subject, _ in watched.letters()]
    away = "Streamkeeper: 1 stream is not connected"
    assert subjects == ["Streamkeeper: the watch is late", away, away, away]


def test_a_late_run_is_reported_until_the_topic_accepts_it(watched: Watched) -> None:
    """The message of a late run names how many streams the run reached; it is sent until the topic accepts it."""
    for name in ("a", "b", "c"):
        watched.put(name, **claimed(900))
    watched.reaches_one()
    with watched.topic_refuses():
        assert watched.run()["is_whole"] is False
    assert watched.letters() == []
    assert watched.run()["is_whole"] is False
    ((subject, text),) = watched.letters()
    assert (subject, "reached 1 stream, and not all" in text) == ("Streamkeeper: the watch is late", True)


def test_a_message_that_the_topic_refuses_is_sent_in_the_next_run(watched: Watched) -> None:
    """A message that the topic refuses is logged and sent by the next run; the rest of the run goes on."""
    watched.put("dead", **claimed(-AFTER_S))
    watched.aws.sqs.send_message(QueueUrl=watched.aws.queue_url, MessageBody="{}")
    with watched.topic_refuses():
        answer = watched.run()
    assert (answer["named"], answer["dead_letters"], answer["unconnected"]) == ([], 1, 1)
    document, lines = watched.reported()
    assert document["Unconnected"] == 1
    assert [line["message"] for line in lines] == [
        "streams that should be connected are not",
        "the message that names the streams was not sent",
    ]
    assert watched.run()["named"] == ["dead"]
    assert len(watched.letters()) == 1


def test_a_queue_that_does_not_answer_stops_nothing(watched: Watched) -> None:
    """If the dead-letter queue does not answer, its number is missing, a line reports that, and the run goes on."""
    silent = Client(watched.aws.sqs, "get_queue_attributes", drop_request)
    _ = watched.module
    watched.clients["sqs"] = silent
    assert watched.run()["dead_letters"] is None
    assert [line["message"] for line in watched.reported()[1]] == ["the dead-letter queue does not answer"]


@pytest.mark.parametrize("stream_id", ["demo:", "😀" * 250])
def test_a_message_and_a_line_are_bounded_however_many_streams_there_are(stream_id: str) -> None:
    """A message about 10,000 streams names as many as fit and counts the others; the lines of the log name all."""
    streams = {f"{stream_id}{number}": "away 5 min" for number in range(10_000)}
    subject, text = KINDS["damage"].message(streams, 70_000)
    assert len(subject) < 100
    assert len(text) < 64 * 1024
    named = text.count(" away 5 min")
    assert named >= 18
    assert f"  and {10_000 - named} more, which the log of the watch names\n" in text
    assert "In all, 70,000 streams are" in text
    parts = list(lines(streams))
    assert all(len(json.dumps(part)) < 256 * 1024 for part in parts)
    assert [entry for part in parts for entry in part.items()] == list(streams.items())


def test_an_orphan_is_started_again_and_reported(watched: Watched) -> None:
    """A stream whose lease names an execution that is over is reported as an orphan.

    An execution is started for it if the old one was aborted, but not if the stream was stopped.
    """
    for name in ("aborted", "running", "stopped", "refused"):
        watched.put(f"demo:{name}", **claimed(-20, execution={"S": f"arn:{name}"}))
    watched.put("demo:released", generation={"N": "2"})
    watched.put("demo:connected", **claimed(20, execution={"S": "arn:aborted"}))
    stopped = {"status": "SUCCEEDED", "output": '{"status": "stopped"}'}
    refused = refusal("ThrottlingException")
    states = watched.states(aborted=ABORTED, running=RUNS, stopped=stopped, refused=refused)
    assert watched.run()["orphans"] == ["demo:aborted", "demo:stopped"]
    (start,) = states.started
    assert (start["stateMachineArn"], start["name"].partition("-")[2]) == (MACHINE, "orphan-0")
    assert json.loads(start["input"]) == {"pathParameters": {"streamId": "demo:aborted"}, "renews": "arn:aborted"}
    lines = [json.loads(line) for line in watched.capsys.readouterr().out.splitlines()]
    documents = [line for line in lines if "_aws" in line]
    assert [document.get("Orphaned") for document in documents] == [None, [2.0]]
    said = {line["stream_id"]: line["message"] for line in lines if "message" in line}
    assert said["demo:aborted"].endswith("-orphan-0 continues the stream")
    assert said["demo:stopped"].endswith("nothing is started; POST starts it again, DELETE ends this alert")
    assert said["demo:refused"] == "the stream could not be checked, or an orphan not started"
    alarm = osls.template("test")["Resources"]["OrphanedAlarm"]["Properties"]
    (described,) = documents[1]["_aws"]["CloudWatchMetrics"]
    assert described["Dimensions"] == [[one["Name"] for one in alarm["Dimensions"]]]
    assert (alarm["MetricName"], alarm["Threshold"]) == (described["Metrics"][0]["Name"], 0)


def test_a_stopped_stream_whose_execution_cannot_release_it_is_released(watched: Watched) -> None:
    """A stopped stream is released if its execution was aborted, or if the stream half joined a group.

    It is kept if its execution runs, if it was stopped just now, or if it was started again.
    """
    old = {"stop": {"BOOL": True}, "stop_since": {"S": "2026-01-01T00:00:00.000Z"}}
    fresh = old | {"stop_since": {"S": instant_text(time.time_ns() // 1_000_000)}}
    aborted, joining = {"execution": {"S": "arn:aborted"}}, {"execution": {"S": "#1"}, "group": {"S": "#1"}}
    watched.put("#1", **claimed(20))
    leases = {
        "aborted": aborted | old, "joining": joining | old,
        "running": old, "fresh": aborted | fresh, "member": joining | old | {"execution": {"S": "arn:1"}},
    }  # fmt: skip
    for name, found in leases.items():
        watched.put(f"demo:{name}", **claimed(-AFTER_S, **found))
    watched.states(aborted=ABORTED, **{"1": RUNS})
    assert watched.run()["orphans"] == []
    table = Table(watched.dynamodb, TABLE)
    items = {name: table.get(f"demo:{name}", "lease") or {} for name in leases}
    assert [name for name, item in items.items() if "execution" not in item] == ["aborted", "joining"]
    for name in ("aborted", "joining"):
        lease = control_record.lease_of(items[name])
        assert (lease.ending, lease.ending_cause, "group" in items[name]) == ("StreamEnded", "stopped", False)
    # A POST between the read and the write has cleared the stop.
    watched.put("demo:again", **claimed(-AFTER_S, **aborted))
    assert not release_stopped(
        table,
        "demo:again",
        Lease(execution="arn:aborted", stop=True),
        0,
        lambda *_: ExecutionDescription("", Verdict.OVER, 0),
    )


def test_the_streams_of_a_group_that_is_away_are_named(watched: Watched) -> None:
    """The message names each stream of a group that is away; the log names the group, some streams and their number."""
    count = MOST_OF_GROUP + 3
    watched.put("#1", **claimed(-AFTER_S, execution={"S": "arn:aborted"}))
    for number in range(count):
        place = {"group": {"S": "#1"}, "fence": {"N": "1"}, "connected": {"N": "1"}}
        watched.put(f"demo:{number:02d}", **claimed(-AFTER_S, execution={"S": "arn:aborted"}, **place))
    watched.states(aborted=ABORTED)
    answer = watched.run()
    assert (len(answer["named"]), answer["orphans"]) == (count, ["#1"])
    ((subject, text),) = watched.letters()
    assert subject == f"Streamkeeper: {count} streams are not connected"
    assert text.count(f", one of {count} that are away in the group #1\n") == count
    said = [json.loads(line) for line in watched.capsys.readouterr().out.splitlines()]
    (sentence,) = [line["message"] for line in said if line.get("stream_id") == "#1"]
    assert f'; {count} streams are away with it: "demo:00", "demo:01", ' in sentence
    assert sentence.endswith('"demo:19" and 3 more')
    assert with_streams("It is over", []) == "It is over"


def test_the_watch_reports_its_numbers_without_any_stream(watched: Watched) -> None:
    """The watch reports its numbers even without any stream, because missing numbers would raise an alarm."""
    nothing = {"is_whole": True, "wanted": 0, "unconnected": 0, "named": [], "dead_letters": 0}
    assert watched.run() == nothing | {"repairs": [], "orphans": []}
    document, lines = watched.reported()
    # The price covers this document, with Lambda's lines START, END and REPORT.
    assert len(json.dumps(document)) + 350 < measurements()["log_bytes_per_watch"]
    assert (document["LongestUnconnected"], document["Wanted"], lines) == ([0.0], 0, [])


@pytest.mark.parametrize("operation", ["query", "batch_get_item"])
def test_a_watch_without_its_table_reports_no_metrics(watched: Watched, operation: str) -> None:
    """A watch whose table does not answer fails and reports no numbers: it must not report that all is well."""
    watched.put("connected", **claimed(20))
    watched.patch.setattr(watched.module, "dynamodb", Client(watched.dynamodb, operation, drop_request))
    with pytest.raises(StoreUnavailable, match=r"ReadTimeoutError$"):
        watched.run()
    assert watched.capsys.readouterr().out == ""

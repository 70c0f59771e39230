"""The metrics of the local run, from real tables, read by Prometheus's own parser and sent to a real receiver."""

import contextlib
import json
import re
from collections.abc import Collection, Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parsed

from handlers.api.sinks import Sinks
from handlers.connection.effects import Progress
from handlers.deliver import delivery_metrics
from handlers.deliver.arrivals import Arrivals, Entry
from handlers.deliver.bells import Place
from handlers.deliver.delivery_records import SinkRecord, SinkRecords
from handlers.run import metric_names
from handlers.run.connection_metrics import ENDS
from handlers.store.control_table import Table
from handlers.store.group_store import GroupStore
from handlers.store.stream_records import StreamRecords
from local.costs.stage_costs import WATCH_METRICS
from local.metrics import export
from local.metrics.collector import Collector, Sample
from local.terminal import UserError
from tests.handlers.aws import CONTROL, EVENTS, Aws, save_connection
from tests.http_server import Answer, Request, answering
from tests.local import support

DASHBOARD = support.PROJECT / "packaging" / "resources" / "dashboard.yml"


def read_values(text: str) -> dict[tuple[str, ...], float]:
    """Returns the values that Prometheus reads, by name and labels."""
    return {(one.name, *one.labels.values()): one.value for family in parsed(text) for one in family.samples}


STARTED = {"generation": {"N": "1"}, "started_at": {"S": "1970-01-01T00:00:01.000Z"}}


def collector_of(aws: Aws, running: list[str], sinks: Collection[str] = (), ended: Collection[str] = ()) -> Collector:
    """Returns a collector for the tables: `running` runs, `ended` has ended, and every profile has these sinks."""
    records, delivery = StreamRecords(aws.dynamodb, CONTROL, EVENTS), Sinks(aws.dynamodb, CONTROL, EVENTS)
    return Collector(lambda: records, lambda: running, lambda: delivery, lambda _: sinks, lambda: ended, 20_000)


def save(aws: Aws, fence: int, stored: int, ended_by: str = "", **more: Any) -> None:
    """Writes a connection's record as its function does."""
    closed: dict[str, Any] = {"closed_ms": 4_000, "ended_by": ended_by} if ended_by else {}
    progress = Progress(fence=fence, claimed_ms=1_000, opened_ms=2_000, seen_ms=3_000, stored=stored, **closed, **more)
    save_connection(aws.store(), "demo", progress, lane="B", execution="arn:mine", request_id=f"request-{fence}")


def test_counters_grow_with_the_records_of_connections(aws: Aws) -> None:
    """Counters count by stream and by end; an expired record takes nothing away; gauges show the present."""
    aws.put_control("demo", "lease", execution={"S": "arn:mine"}, **STARTED)
    running = ["demo", ""]
    collector = collector_of(aws, running)
    save(aws, 1, 5, duplicates=2)
    first = read_values(export.prometheus_text(collector.collect(10_000)))
    assert first["streamkeeper_events_stored_total", "demo"] == 5
    assert first["streamkeeper_events_duplicate_total", "demo"] == 2
    assert first["streamkeeper_streams_wanted",] == first["streamkeeper_streams_unconnected",] == 1
    assert first["streamkeeper_unconnected_longest_seconds",] == 9.0
    assert first["streamkeeper_executions_running",] == 2
    figures = [first[f"streamkeeper_stream_{name}", "demo"] for name in ("connected_percent", "complete_percent")]
    assert [*figures, first["streamkeeper_stream_missing_seconds", "demo"]] == [100, 100, 0]
    save(aws, 1, 7, "taken_over", duplicates=2, error="StreamTakenOver")
    save(aws, 2, 1)
    second = read_values(export.prometheus_text(collector.collect(10_000)))
    assert second["streamkeeper_events_stored_total", "demo"] == 8
    assert second["streamkeeper_connections_ended_total", "demo", "TakenOver"] == 1
    assert second["streamkeeper_stream_connected_percent", "demo"] == 100
    aws.dynamodb.delete_item(TableName=CONTROL, Key={"PK": {"S": "demo"}, "SK": {"S": "connection#000000000001"}})
    running.clear()
    third = read_values(export.prometheus_text(collector.collect(10_000)))
    assert third["streamkeeper_events_stored_total", "demo"] == 8
    assert [*collector._counted["demo"]] == [2], "in months of handovers it would remember each connection"
    assert collector.collect(10_000) == collector.collect(10_000)


def test_a_stream_that_ended_before_the_first_scrape_is_counted(aws: Aws) -> None:
    """A stream that ended before a scrape is counted, and so are the members of an ended group."""
    aws.put_control("demo", "lease", **STARTED)
    save(aws, 1, 5, "taken_over", error="StreamTakenOver")
    found = read_values(export.prometheus_text(collector_of(aws, [], ended=["demo", "demo", ""]).collect(10_000)))
    assert found["streamkeeper_events_stored_total", "demo"] == 5
    assert found["streamkeeper_executions_running",] == found["streamkeeper_streams_wanted",] == 0


def test_a_sink_has_a_lag_while_its_profile_names_it(aws: Aws) -> None:
    """The lag is the age of the oldest waiting event; a sink that its profile no longer names has no metric."""
    aws.put_control("demo", "lease", **STARTED)
    table = Table(aws.dynamodb, CONTROL)
    entries = [Entry("demo", str(n), 1, 3_000 + n) for n in range(3)]
    (noted,) = Arrivals(table).note({"demo": (entries, "1-3")}, 4_000).values()
    for sink in ("s3:a", "s3:b"):
        SinkRecords(table).save(
            Place("demo", sink), SinkRecord(sink, number=noted.number, done=1, delivered=1, failed=1)
        )
    found = read_values(export.prometheus_text(collector_of(aws, ["demo"], {"s3:a"}).collect(9_000)))
    assert {name: value for name, value in found.items() if "delivery" in name[0]} == {
        ("streamkeeper_delivery_sent_total", "demo", "s3:a"): 1,
        ("streamkeeper_delivery_waited_total", "demo", "s3:a"): 1,
        ("streamkeeper_delivery_dead_lettered_total", "demo", "s3:a"): 0,
        ("streamkeeper_delivery_waiting", "demo", "s3:a"): 2,
        ("streamkeeper_delivery_lag_seconds", "demo", "s3:a"): 5.999,
    }


def test_each_stream_of_a_group_has_its_own_metrics(aws: Aws) -> None:
    """Each stream has its own counters and gauges; more gauges have its group, and how many are not connected."""
    groups = GroupStore(aws.dynamodb, CONTROL, "#1")
    for stream_id in ("demo", "demo:b"):
        aws.put_control(stream_id, "lease", execution={"S": "arn:mine"}, group={"S": "#1"}, **STARTED)
        groups.add_member(stream_id, "1")
    save(aws, 1, 5)
    found = read_values(export.prometheus_text(collector_of(aws, ["#1"]).collect(10_000)))
    assert found["streamkeeper_events_stored_total", "demo"] == 5
    assert found["streamkeeper_events_stored_total", "demo:b"] == 0
    assert found["streamkeeper_stream_group", "demo", "#1"] == found["streamkeeper_stream_group", "demo:b", "#1"] == 1
    assert found["streamkeeper_group_streams", "#1"] == found["streamkeeper_group_unconnected", "#1"] == 2
    assert found["streamkeeper_streams_wanted",] == 2
    assert not [key for key in found if key[1:] == ("#1",) and "group" not in key[0]]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1))
def test_any_stream_id_stays_within_its_label(stream_id: str) -> None:
    """Prometheus reads the same id and nothing else, whatever characters it has."""
    text = export.prometheus_text([Sample(metric_names.STORED, (stream_id,), 3)])
    assert read_values(text) == {("streamkeeper_events_stored_total", stream_id): 3}


def test_every_name_of_the_dashboard_and_of_the_documents_is_in_the_table() -> None:
    """The dashboard's queries, what the functions print, and the table have the same names."""
    table = {one.cloudwatch for one in metric_names.ALL} | set(ENDS.values()) | set(metric_names.TIMES)
    body = yaml.load(DASHBOARD.read_text(), yaml.BaseLoader)["Resources"]["Dashboard"]["Properties"]["DashboardBody"][0]
    named = r"(?:sum|max|ispresent)\((\w+)\)", r'"\$\{Namespace\}", "(\w+)"'
    queried = {name for pattern in named for name in re.findall(pattern, body)}
    assert len(queried) >= 8
    assert queried <= table
    assert {*WATCH_METRICS, *delivery_metrics.NAMES, delivery_metrics.LAG} <= table
    names = [one.prometheus for one in metric_names.ALL]
    assert len(set(names)) == len(names)
    assert len({one.opentelemetry for one in metric_names.ALL}) == len(names)


@contextlib.contextmanager
def serve_collector(status: int = 200) -> Iterator[tuple[str, list[Request]]]:
    """The address of a collector's server, and the requests that it got."""
    received: list[Request] = []

    def answer(request: Request) -> Answer:
        received.append(request)
        return Answer(status)

    with answering(answer) as url:
        yield url, received


def test_opentelemetry_gets_the_same_numbers() -> None:
    """The numbers go as OTLP in JSON to the collector's path with its headers; integers are texts, counters sums."""
    samples = [
        Sample(metric_names.STORED, ("demo",), 8),
        Sample(metric_names.ENDED, ("demo", "TakenOver"), 2),
        Sample(metric_names.LONGEST, (), 1.5),
    ]
    with serve_collector() as (url, received):
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b"}
        target = export.read_target(settings)
        assert target is not None
        assert export.send(target, export.opentelemetry_body(samples, 1_000, 2_000)) == ""
    ((_, path, headers, text),) = received
    body = json.loads(text)
    assert (path, headers["api-key"], headers["content-type"]) == ("/v1/metrics", "a b", "application/json")
    (resource,) = body["resourceMetrics"]
    assert resource["resource"]["attributes"] == [{"key": "service.name", "value": {"stringValue": "streamkeeper"}}]
    stored, ended, longest = resource["scopeMetrics"][0]["metrics"]
    at = {"startTimeUnixNano": "1000000000", "timeUnixNano": "2000000000"}
    stream = {"key": "stream", "value": {"stringValue": "demo"}}
    assert (stored["name"], stored["unit"]) == ("streamkeeper.events.stored", "{event}")
    point = {"attributes": [stream], **at, "asInt": "8"}
    assert stored["sum"] == {"dataPoints": [point], "aggregationTemporality": 2, "isMonotonic": True}
    assert ended["sum"]["dataPoints"][0]["attributes"][1] == {"key": "end", "value": {"stringValue": "TakenOver"}}
    assert longest["gauge"] == {"dataPoints": [{"attributes": [], **at, "asDouble": 1.5}]}


def test_a_failed_export_is_named_and_raises_nothing() -> None:
    """The line has the collector's status, or says that it does not answer."""
    with serve_collector(503) as (url, _):
        target = export.ExportTarget(url, {}, 1000)
        assert export.send(target, {}) == "it answered 503"
    assert export.send(target, {}) == "it does not answer (NewConnectionError)"


def test_settings_of_the_export() -> None:
    """Without an endpoint nothing is exported; each wrong setting is named in a sentence without any header."""
    end = "OTEL_EXPORTER_OTLP_ENDPOINT"
    assert export.read_target({}) is None
    assert export.read_target({end: "http://a:1", "OTEL_SDK_DISABLED": "true"}) is None
    whole = export.read_target(
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://a:1/x", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
    )
    assert whole == export.ExportTarget("http://a:1/x", {}, 500)
    for settings, words in (
        ({end: "a:1"}, "must be the URL of a collector"),
        ({end: "http://["}, "must be the URL of a collector"),
        ({end: "http://a", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "metrics are only sent as http/json"),
        ({end: "http://a", "OTEL_EXPORTER_OTLP_HEADERS": "secret"}, "must be name=value pairs"),
        ({end: "http://a", "OTEL_METRIC_EXPORT_INTERVAL": "0"}, "from 100 to 3600000"),
    ):
        with pytest.raises(UserError, match=words) as raised:
            export.read_target(settings)
        assert "secret" not in str(raised.value)

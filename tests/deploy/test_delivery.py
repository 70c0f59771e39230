"""The further resources of a stage whose profiles deliver; a stage without such a profile has none."""

import json
import re
from typing import Any

import pytest

from handlers.deliver.bells import Place
from handlers.deliver.delivery_metrics import LAG, NAMES, document
from handlers.deliver.delivery_records import SinkRecord
from handlers.deliver.worker import Worked
from handlers.profile.deliver_field import KINDS
from local import stages
from local.permissions import needs
from local.permissions.needs import Need
from local.service import osls
from local.stack import read_stack
from local.template import Resources
from tests.deploy import node
from tests.deploy.delivery import delivering, delivery_resources
from tests.harness import STAGE
from tests.projects import kept
from tests.real import permissions

PROFILE = 'address = "https://example.org/x"\nframing = "ndjson"\n'
WEBHOOK = '{ webhook = "https://example.org/hook", secret = "${secret:hook:key}" }'
HERE, HOOK = "us-east-1:000000000000", "/streamkeeper/test/hook"


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    """Return the template of a stage with two profiles that deliver, to sinks of every kind."""
    several = 'deliver = [{ sqs = "a.fifo" }, { s3 = "lake", prefix = "raw/" }, { lambda = "f" }, ' + WEBHOOK + "]\n"
    more = 'deliver = [{ eventbridge = "bus" }, { kinesis = "k" }, { firehose = "h" }, { sqs = "a.fifo" }]\n'
    profiles = {"mine": PROFILE + several, "more.x": PROFILE + more, "quiet": PROFILE}
    return osls.template(STAGE, kept("delivery", lambda folder: delivering(folder, profiles), __file__))


def test_a_stage_that_delivers_nothing_has_none_of_the_resources() -> None:
    """It has no stream, function, mapping, role or alarm for it, so it costs nothing more."""
    plain = osls.template("test")["Resources"]
    assert not [key for key in plain if "Delivery" in key]
    assert "StreamSpecification" not in plain["EventsTable"]["Properties"]


def test_a_delivering_profile_changes_nothing_else(template: dict[str, Any]) -> None:
    """Everything else is unchanged, and the table stays the same table."""
    plain, delivering = osls.template("test")["Resources"], template["Resources"]
    added = {*delivery_resources(), "ConnectionDeliveryLambdaFunction", "ConnectionDeliveryLogGroup"}
    # A deployment of the API has its time in its name.
    assert {key for key in set(delivering) - set(plain) if not key.startswith("ApiGatewayDeployment")} == added
    function = delivering["ConnectionDeliveryLambdaFunction"]
    assert set(function["DependsOn"]) <= set(delivering)
    assert function["Properties"]["RecursiveLoop"] == "Allow"  # it calls itself
    properties = dict(delivering["EventsTable"]["Properties"])
    assert properties.pop("StreamSpecification") == {"StreamViewType": "NEW_IMAGE"}
    assert {**delivering["EventsTable"], "Properties": properties} == plain["EventsTable"]
    control = Resources(template, {}).properties("ConnectionControlLambdaFunction")["Environment"]["Variables"]
    names = stages.names("test")
    more = {"DELIVERY_TABLE": names["delivery_table"], "CONNECTION_DELIVERY": names["connection_delivery"]}
    assert control.items() >= more.items()
    assert not more.keys() & plain["ConnectionControlLambdaFunction"]["Properties"]["Environment"]["Variables"].keys()


def test_the_api_may_read_the_sinks_and_call_the_delivery(template: dict[str, Any]) -> None:
    """It may write none of the delivery's records itself."""
    role, names = (needs.read(template).functions[stages.names("test")["connection_control"]], stages.names("test"))
    table, function = f"arn:aws:dynamodb:{HERE}:table/{names['delivery_table']}", names["connection_delivery"]
    wanted = [
        (role, Need("dynamodb:Query", table)),
        (role, Need("lambda:InvokeFunction", f"arn:aws:lambda:{HERE}:function:{function}")),
    ]
    others = [(role, Need(f"dynamodb:{action}Item", table)) for action in ("Put", "Update", "Delete")]
    assert permissions.verdicts(wanted + others) == ["Allowed"] * 2 + ["ImplicitlyDenied"] * 3


def test_a_sweep_comes_each_minute(template: dict[str, Any]) -> None:
    """A rule calls the function. Lambda itself retries a killed call once, a minute after its end."""
    resources = Resources(template, {})
    rule, calls = resources.properties("DeliverySweep"), resources.properties("DeliveryCalls")
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    assert [json.loads(target["Input"]) for target in rule["Targets"]] == [{"sweep": True}]
    assert (calls["MaximumRetryAttempts"], calls["MaximumEventAgeInSeconds"]) == (1, 240)


def test_the_mapping_reads_only_profiles_that_deliver(template: dict[str, Any]) -> None:
    """The local service uses the table, function and filter of the mapping."""
    mapping = Resources(template, {}).properties("DeliveryMapping")
    names = stages.names("test")
    keys = [key for one in ("mine", "more.x") for key in (one, {"prefix": f"{one}:"}, {"prefix": f"{one}#"})]
    pattern = {"eventName": ["INSERT", "MODIFY"], "dynamodb": {"Keys": {"PK": {"S": keys}}}}
    assert json.loads(mapping.pop("FilterCriteria")["Filters"][0]["Pattern"]) == pattern
    assert mapping == {
        "EventSourceArn": f"arn:aws:dynamodb:{HERE}:table/{names['events_table']}/stream/latest",
        "FunctionName": f"arn:aws:lambda:{HERE}:function:{names['connection_delivery']}",
        "StartingPosition": "TRIM_HORIZON",
        "BatchSize": 250,
        "ParallelizationFactor": 1,
        "BisectBatchOnFunctionError": True,
        "MaximumRetryAttempts": -1,
        "MaximumRecordAgeInSeconds": 86400,
        "DestinationConfig": {"OnFailure": {"Destination": f"arn:aws:sqs:{HERE}:{names['dead_letter_queue']}"}},
    }
    (source,) = read_stack(template, {}).event_sources
    assert (source.table, source.function, source.batch_size, source.filters) == (
        names["events_table"], names["connection_delivery"], 250, (pattern,),
    )  # fmt: skip


def test_the_dashboard_of_a_delivering_stage_shows_the_delivery(template: dict[str, Any], prod: dict[str, Any]) -> None:
    """It has the delivery's alarms, and a query that sums up the function's figures by sink, the worst sink first.

    No other setting changes the dashboard: a release cannot tell apart two that change one text (variants.Clash).
    """
    compiled = (osls.template("test"), template, prod)
    plain, (text, variables), most = (
        one["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"] for one in compiled
    )
    assert most == [text, variables]
    assert variables == {**plain[1], "DeliveryLog": {"Ref": "ConnectionDeliveryLogGroup"}}
    before, now = json.loads(plain[0])["widgets"], json.loads(text)["widgets"]
    alarms = [key for key, one in template["Resources"].items() if "CloudWatch::Alarm" in one["Type"]]
    assert set(now[0]["properties"]["alarms"]) == {f"${{{name}.Arn}}" for name in alarms}
    assert [one for one in now if one not in before][1:] == now[-1:]
    query = now[-1]["properties"]["query"]
    assert query.startswith("SOURCE '${DeliveryLog}' | ")
    assert query.endswith(" by stream, sink | sort failed desc")
    assert set(re.findall(r"sum\((\w+)\)", query)) == set(NAMES)
    boxes = [(one["x"], one["y"], one["width"], one["height"]) for one in now]
    assert all(boxes[-1][1] >= y + height for _, y, _, height in boxes[:-1])


def test_the_documented_query_uses_the_printed_fields() -> None:
    """The query of docs/operations.md filters by a field of the documents, and sums up all numbers by sink."""
    page = (stages.ROOT / "docs" / "operations.md").read_text("utf-8")
    ((stream, present, sums),) = re.findall(
        r"```\nfilter (\w+) = '[^']+' and ispresent\((\w+)\)\n\| stats (.*?)\n```", page, re.DOTALL
    )
    printed = document(Place("orders:eu", "sqs:orders.fifo"), Worked(SinkRecord("")), "sk", "sk", "stage", 1)
    assert {stream, present, "sink"} <= printed.keys()
    assert (set(re.findall(r"(?:sum|max)\((\w+)\)", sums)), sums.endswith(" by bin(5m), sink")) == (set(NAMES), True)


def test_a_sink_that_is_away_keeps_the_alarm_on(template: dict[str, Any]) -> None:
    """A sweep measures the age of the oldest event that a sink has not taken. A missing metric is an alarm too."""
    alarm = Resources(template, {}).properties("DeliveryLagAlarm")
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == ("streamkeeper-test", LAG, "Maximum")
    assert alarm["Dimensions"] == [{"Name": "service", "Value": "streamkeeper"}]
    assert (alarm["Period"], alarm["EvaluationPeriods"], alarm["Threshold"]) == (60, 2, 300_000)
    assert (alarm["ComparisonOperator"], alarm["TreatMissingData"]) == ("GreaterThanOrEqualToThreshold", "breaching")
    assert alarm["AlarmActions"] == alarm["OKActions"] != []


NEEDS = (
    ("sqs:SendMessage", f"arn:aws:sqs:{HERE}:a.fifo", "b.fifo"),
    ("sqs:GetQueueUrl", f"arn:aws:sqs:{HERE}:a.fifo", "b.fifo"),
    ("sqs:GetQueueAttributes", f"arn:aws:sqs:{HERE}:a.fifo", "b.fifo"),
    ("s3:PutObject", "arn:aws:s3:::lake/raw/mine/x", "other/x"),
    ("lambda:InvokeFunction", f"arn:aws:lambda:{HERE}:function:f", "function:g"),
    ("events:PutEvents", f"arn:aws:events:{HERE}:event-bus/bus", "event-bus/default"),
    ("kinesis:PutRecords", f"arn:aws:kinesis:{HERE}:stream/k", "stream/l"),
    ("firehose:PutRecordBatch", f"arn:aws:firehose:{HERE}:deliverystream/h", "deliverystream/i"),
    ("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{HERE}:secret:{HOOK}-000000", "secret:x"),
)


def test_the_role_allows_each_sink_and_no_other(template: dict[str, Any]) -> None:
    """An independent evaluator allows each sink, and denies another queue, bucket or bus."""
    role = needs.read(template).functions[stages.names("test")["connection_delivery"]]
    wanted = [(role, Need(action, resource)) for action, resource, _ in NEEDS]
    others = [
        (role, Need(action, resource[: len(resource) - len(resource.split(":", 5)[5])] + other))
        for action, resource, other in NEEDS
    ]
    assert permissions.verdicts(wanted) == ["Allowed"] * len(wanted)
    assert permissions.verdicts(others) == ["ImplicitlyDenied"] * len(others)
    assert not [statement for statement in role.statements if "*" in statement.resources]


def test_each_kind_of_sink_has_a_statement() -> None:
    """A kind that the template's plugin does not know would lack a permission."""
    sinks = [{kind: "name", "secret": "${secret:hook}"} for kind in KINDS]
    script = "return given.map((sink) => require('./packaging/delivery.cjs').statements([sink], '/s/').length)"
    assert dict(zip(KINDS, node.run(script, sinks), strict=True)) == dict.fromkeys(KINDS, 1)

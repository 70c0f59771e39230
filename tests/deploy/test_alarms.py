"""Every alarm acts on the topic, and each kind of trouble has an alarm."""

import json
import re
import shlex
from typing import Any

import pytest

from handlers import errors
from handlers.group.next_step import BROKEN
from handlers.run.connection_metrics import document
from local import stages
from local.costs import stage_costs
from local.service import osls
from tests.deploy.delivery import delivery_resources
from tests.deploy.test_template import resources
from tests.statemachines.connections import definition
from tests.statemachines.test_definitions import states

TOPIC = [{"Ref": "AlertsTopic"}]


def alarms() -> dict[str, dict[str, Any]]:
    """Return the alarms of the template by their metric, and the machine or function to which they belong."""
    by_metric = {}
    for alarm in resources(osls.template("test"), "AWS::CloudWatch::Alarm"):
        (*_, last) = alarm.get("Dimensions", [{"Value": ""}])
        whose = f"/{last['Value']['Ref']}" if alarm["Namespace"] in ("AWS/States", "AWS/Lambda") else ""
        by_metric[f"{alarm['Namespace']}/{alarm['MetricName']}{whose}"] = alarm
    return by_metric


def filters() -> dict[str, list[str]]:
    """Return the patterns of the metric filters by their metric, those of a group last."""
    metric_filters = resources(osls.template("test"), "AWS::Logs::MetricFilter")
    assert {one["LogGroupName"]["Ref"] for one in metric_filters} == {"ConnectionManagerLogGroup"}
    found: dict[str, list[str]] = {}
    for one in metric_filters:
        (change,) = one["MetricTransformations"]
        found.setdefault(f"{change['MetricNamespace']}/{change['MetricName']}", []).append(one["FilterPattern"])
    return found


def test_every_alarm_acts_on_the_topic() -> None:
    """Only the watch's alarm also acts when its metric is missing. Each alarm has one metric and a price; each metric
    of the log has an alarm.
    """
    ours = "streamkeeper-test"
    every = alarms()
    assert (len(every), set(filters()) < set(every)) == (stage_costs.ALARMS, True)
    assert {name: alarm["AlarmActions"] for name, alarm in every.items()} == dict.fromkeys(every, TOPIC)
    silence = {name for name, alarm in every.items() if alarm["TreatMissingData"] == "breaching"}
    assert silence == {f"{ours}/LongestUnconnected"}
    assert every[f"{ours}/LongestUnconnected"]["Threshold"] == stages.load("test")["unconnected_after_s"]


def test_alarms_count_new_messages_instead_of_the_queues_length() -> None:
    """An alarm on the length would stay on until a person empties the queue, and hide the next trouble.

    Three minutes after a rejection or a message the alarm is over, and acts on the next. Only messages that lie there
    for a week keep an alarm on: nobody handles them.
    """
    levels = {"ApproximateNumberOfMessagesVisible", "LongestUnconnected", "Orphaned"}
    assert {one["MetricName"] for one in alarms().values() if one["Statistic"] != "Sum"} == levels
    for name in ("streamkeeper-test/Rejections", "AWS/SQS/NumberOfMessagesSent", "AWS/States/ExecutionsFailed/Start"):
        alarm = alarms()[name]
        window = (alarm["Period"], alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"], alarm["Threshold"])
        assert (name, window) == (name, (60, 3, 1, 0))


def test_a_message_that_nobody_handles_is_reported_before_it_is_deleted() -> None:
    """The alarm comes at least six days before, however often a person looked: a look changes no day's maximum.

    CloudWatch evaluates a week at most.
    """
    (queue,) = resources(osls.template("test"), "AWS::SQS::Queue")
    alarm = alarms()["AWS/SQS/ApproximateNumberOfMessagesVisible"]
    days = alarm["EvaluationPeriods"]
    assert (alarm["Period"], days, alarm["Statistic"], alarm["Threshold"]) == (86_400, 7, "Maximum", 0)
    assert "DatapointsToAlarm" not in alarm
    assert queue["MessageRetentionPeriod"] - (days + 1) * 86_400 == 6 * 86_400


def test_the_alarm_of_the_api_has_the_names_of_osls() -> None:
    """Its dimensions are the API's name and stage as osls makes them; with others it would never see any data."""
    (api,) = resources(osls.template("test"), "AWS::ApiGateway::RestApi")
    (stage,) = resources(osls.template("test"), "AWS::ApiGateway::Stage")
    for metric in ("5XXError", "4XXError"):
        dimensions = {one["Name"]: one["Value"] for one in alarms()[f"AWS/ApiGateway/{metric}"]["Dimensions"]}
        assert dimensions == {"ApiName": api["Name"], "Stage": stage["StageName"]}


def test_the_pattern_of_rejections_matches_the_final_errors() -> None:
    """It counts the errors after which the machine stops trying, except the error that fails its execution."""
    catchers = [catcher for _, state in states(definition("connections")) for catcher in state.get("Catch", [])]
    (final,) = {tuple(catcher["ErrorEquals"]) for catcher in catchers if catcher["Next"] in ("End A", "End B")}
    counted = shlex.split(filters()["streamkeeper-test/Rejections"][0])
    # StreamBroken fails the execution, which the alarm ExecutionFailed counts.
    assert counted == [f"?[ERROR] {name}" for name in final if name != "StreamBroken"]


def test_an_error_that_is_not_of_ours_is_unexpected() -> None:
    """The pattern leaves out every name of handlers/errors.py, and nothing else."""
    wanted, *others = shlex.split(filters()["streamkeeper-test/UnexpectedErrors"][0])
    names = {error.__name__ for error in errors.StreamkeeperError.__subclasses__()}
    assert (wanted, set(others)) == ("[ERROR]", {f"-[ERROR] {name}" for name in names})
    assert filters()["streamkeeper-test/StoreRefusals"][0] == '"[ERROR] StoreUnavailable"'


def test_a_kill_counts_once() -> None:
    """Lambda's REPORT, the entry after the error, names the error's type once more."""
    killed = "RequestId: r1 Error: Runtime exited with error: signal: killed\nRuntime.ExitError"
    report = "REPORT RequestId: r1 Status: error Error Type: Runtime.OutOfMemory"
    words = [one.removeprefix("?") for one in shlex.split(filters()["streamkeeper-test/Kills"][0])]
    assert ([sum(word in line for word in words) for line in (killed, report)], words[0]) == ([1, 0], "Task timed out")


REJECTED = (("Rejections", "StreamRejected"), ("Rejections", "InvalidRequest"))
COUNTED = (*REJECTED, ("StoreRefusals", "StoreUnavailable"), ("UnexpectedErrors", BROKEN))


@pytest.mark.parametrize(("metric", "error"), COUNTED)
def test_an_error_in_a_group_counts_as_well(metric: str, error: str) -> None:
    """The group's function raises nothing, so its document counts. For a stream alone only the error counts."""
    alone, grouped = (
        document({}, error, profile="p", service="s", namespace="n", by="stage", now_ms=1, group=group)
        for group in ("", "#1")
    )
    assert (grouped["group"], grouped["outcome"], "group" in alone) == ("#1", error, False)
    outcomes = " || ".join(f'$.outcome = "{one}"' for name, one in COUNTED if name == metric)
    assert filters()[f"streamkeeper-test/{metric}"][-1] == f'{{ $.group = "#*" && ({outcomes}) }}'


def test_the_log_has_the_words_that_an_alarm_searches() -> None:
    """The connection manager writes them, and no other line has them."""
    (words,) = shlex.split(filters()["streamkeeper-test/StuckAtCursor"][0])
    assert _handlers().count(f'logger.warning("{words}"') == _handlers().count(words) == 1


def test_every_alarm_has_its_section_in_the_runbook() -> None:
    """The section has the mail's name, the meaning, what to do and how soon. No section is superfluous."""
    _, *sections = (stages.ROOT / "docs" / "runbook.md").read_text(encoding="utf-8").split("\n## ")
    texts = dict(section.split("\n", 1) for section in sections)
    assert texts.pop("First look")
    # Of every stage, of a delivering profile, and of a bucket.
    every = osls.template("test")["Resources"] | delivery_resources()
    alarms = {key for key, one in every.items() if "CloudWatch::Alarm" in one["Type"]} | {"WrongProfilesAlarm"}
    assert {f"{name}Alarm" for name in texts} == alarms
    for name, text in texts.items():
        parts = re.findall(r"^\*(Means|Do)(?: (?:now|today|this week))?\.\* ", text, re.MULTILINE)
        assert (name, parts) == (name, ["Means", "Do"])


def test_an_address_of_the_stage_is_subscribed(prod: dict[str, Any]) -> None:
    """SNS asks the address to confirm by e-mail. The topic exists in any case; an empty address subscribes nobody."""
    mailed = [{"Protocol": "email", "Endpoint": "ops@example.org"}]
    for template, subscribed in ((prod, mailed), (osls.template("test"), [])):
        (topic,) = resources(template, "AWS::SNS::Topic")
        assert (topic["TopicName"], topic["Subscription"]) == ("streamkeeper-test-alerts", subscribed)


def test_the_dashboard_shows_what_is_measured() -> None:
    """It has every alarm, and draws only metrics or fields that a function writes."""
    template = osls.template("test")
    (properties,) = resources(template, "AWS::CloudWatch::Dashboard")
    text, variables = properties["DashboardBody"]["Fn::Sub"]
    assert variables == {
        "Namespace": "streamkeeper-test",
        "Service": "streamkeeper",
        "ManagerLog": {"Ref": "ConnectionManagerLogGroup"},
        "WatchLog": {"Ref": "ConnectionWatchLogGroup"},
    }
    assert {"ConnectionManagerLogGroup", "ConnectionWatchLogGroup"} <= template["Resources"].keys()
    widgets = json.loads(text)["widgets"]
    logical = {key for key, one in template["Resources"].items() if "CloudWatch::Alarm" in one["Type"]}
    assert set(widgets[0]["properties"]["alarms"]) == {f"${{{name}.Arn}}" for name in logical}
    own = [row for widget in widgets for row in widget["properties"].get("metrics", ()) if row[0] == "${Namespace}"]
    assert own == [["${Namespace}", "LongestUnconnected", "service", "${Service}"]]
    queries = [widget["properties"]["query"] for widget in widgets if widget["type"] == "log"]
    source = re.compile(r"SOURCE '\$\{(\w+)\}' \| filter ispresent\(\w+\)(?: and group like '#')? \| stats ")
    sources = [source.match(query) for query in queries]
    assert [found and found[1] for found in sources] == ["WatchLog", "ManagerLog", "ManagerLog", "ManagerLog"]
    fields = set(re.findall(r"(?:sum|max|ispresent)\((\w+)\)", " ".join(queries)))
    assert fields == {"Wanted", "Unconnected", *("Stored", "Duplicates", "DeadLettered", "Missing"), *DRAWN_ENDS}
    assert {"Wanted", "Unconnected"} <= set(re.findall(r'add_metadata\("(\w+)"', WATCH))
    assert [query.rpartition(" ")[2] for query in queries[2:]] == ["profile", "group"]


WATCH = (stages.ROOT / "handlers" / "watch.py").read_text()
DRAWN_ENDS = {"TakenOver", "Dropped", "Throttled", "Expired"}


def _handlers() -> str:
    return "".join((stages.ROOT / "handlers" / name).read_text() for name in ("connection_manager.py", "watch.py"))

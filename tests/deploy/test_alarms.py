"""Every alarm acts on the topic, and each kind of trouble has an alarm."""

import json
import re
import shlex
from typing import Any

import pytest

from handlers import errors
from local import stages
from local.service import osls
from tests.deploy.test_template import resources

TOPIC = [{"Ref": "AlertsTopic"}]


def alarms() -> dict[str, dict[str, Any]]:
    """The alarms of the template by their metric."""
    return {
        f"{alarm['Namespace']}/{alarm['MetricName']}": alarm
        for alarm in resources(osls.template("test"), "AWS::CloudWatch::Alarm")
    }


def filters() -> dict[str, str]:
    """The patterns of the metric filters by the metric that they count into."""
    metric_filters = resources(osls.template("test"), "AWS::Logs::MetricFilter")
    assert {one["LogGroupName"]["Ref"] for one in metric_filters} == {"ConnectionManagerLogGroup"}
    return {
        f"{change['MetricNamespace']}/{change['MetricName']}": one["FilterPattern"]
        for one in metric_filters
        for change in one["MetricTransformations"]
    }


def test_every_alarm_acts_on_the_topic() -> None:
    """One for each kind of trouble; none is of one stream, and silence is an alarm of the watch alone."""
    ours = "streamkeeper-test"
    every = alarms()
    assert set(every) == {
        f"{ours}/LongestUnconnected",
        f"{ours}/Orphaned",
        f"{ours}/UnexpectedErrors",
        f"{ours}/Kills",
        f"{ours}/StoreRefusals",
        f"{ours}/StuckAtCursor",
        "AWS/States/ExecutionsFailed",
        "AWS/States/ExecutionsTimedOut",
        "AWS/SQS/ApproximateNumberOfMessagesVisible",
        "AWS/Lambda/Throttles",
        "AWS/Lambda/Errors",
    }
    assert {name: alarm["AlarmActions"] for name, alarm in every.items()} == dict.fromkeys(every, TOPIC)
    silence = {name for name, alarm in every.items() if alarm["TreatMissingData"] == "breaching"}
    assert silence == {f"{ours}/LongestUnconnected"}
    assert every[f"{ours}/LongestUnconnected"]["Threshold"] == stages.load("test")["unconnected_after_s"]


def test_every_metric_of_the_log_has_its_alarm() -> None:
    """What is filtered out of the log is looked at."""
    assert set(filters()) < set(alarms())


def test_an_error_that_is_not_of_ours_is_unexpected() -> None:
    """The pattern leaves out every name of handlers/errors.py and nothing else."""
    wanted, *others = shlex.split(filters()["streamkeeper-test/UnexpectedErrors"])
    names = {error.__name__ for error in errors.StreamkeeperError.__subclasses__()}
    assert (wanted, set(others)) == ("[ERROR]", {f"-[ERROR] {name}" for name in names})
    assert filters()["streamkeeper-test/StoreRefusals"] == '"[ERROR] StoreUnavailable"'


def test_the_words_that_an_alarm_looks_for_are_those_of_the_log() -> None:
    """The connection manager writes them, and nothing else that it writes has them."""
    (words,) = shlex.split(filters()["streamkeeper-test/StuckAtCursor"])
    assert _handlers().count(f'logger.warning("{words}"') == _handlers().count(words) == 1


@pytest.mark.parametrize("stage", ["local", "test"])
def test_nobody_is_mailed_unless_the_stage_says_so(stage: str) -> None:
    """The topic exists for any subscriber; an empty address subscribes nobody."""
    (topic,) = resources(osls.template(stage), "AWS::SNS::Topic")
    assert (topic["TopicName"], topic["Subscription"]) == (f"streamkeeper-{stage}-alerts", [])


def test_an_address_of_the_stage_is_subscribed(tmp_path: Any) -> None:
    """By e-mail, which SNS asks to be confirmed."""
    osls.snapshot(stages.ROOT, tmp_path)
    file = tmp_path / "env" / "test.yml"
    file.write_text(file.read_text().replace('alert_email: ""', 'alert_email: "ops@example.org"'))
    (topic,) = resources(osls.template("test", tmp_path), "AWS::SNS::Topic")
    assert topic["Subscription"] == [{"Protocol": "email", "Endpoint": "ops@example.org"}]
    assert "ops@example.org" not in json.dumps(osls.template("test"))


def test_the_dashboard_shows_what_is_measured() -> None:
    """Every alarm is on it, and every metric of ours that it draws is one that a function writes."""
    (properties,) = resources(osls.template("test"), "AWS::CloudWatch::Dashboard")
    text, variables = properties["DashboardBody"]["Fn::Sub"]
    assert variables == {"Namespace": "streamkeeper-test", "Service": "streamkeeper"}
    body = json.loads(text)
    logical = {key for key, one in osls.template("test")["Resources"].items() if "CloudWatch::Alarm" in one["Type"]}
    assert set(body["widgets"][0]["properties"]["alarms"]) == {f"${{{name}.Arn}}" for name in logical}
    written = set(re.findall(r'add_metric\("(\w+)"', _handlers())) | set(re.findall(r'": "(\w+)",', _handlers()))
    drawn = set(re.findall(r'MetricName="(\w+)', str(body))) | set(re.findall(r"'\$\{Namespace\}', '(\w+)'", str(body)))
    assert {"Wanted", "LongestUnconnected", "Stored", "Dropped"} <= drawn <= written
    # CloudWatch, "Search expression syntax": a name with anything but letters and digits stands in quotation marks.
    searches = re.findall(r"SEARCH\('\{(.+?),profile", text)
    assert set(searches) == {r"\"${Namespace}\""}


def _handlers() -> str:
    return "".join((stages.ROOT / "handlers" / name).read_text() for name in ("connection_manager.py", "watch.py"))

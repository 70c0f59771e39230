"""`streamkeeper doctor` on the resources of the real template, in an account that moto plays."""

import json
from typing import Any

import boto3
import pytest
from moto import mock_aws

from local.cli import main
from local.doctor import command

STACK = "streamkeeper-dev"
KINDS = ("AWS::DynamoDB::Table", "AWS::SNS::Topic", "AWS::SQS::Queue", "AWS::S3::Bucket")
EVENTS = f"{STACK}-events"
# As in the template of a release (docs/stacks.md), a parameter decides what there is.
KEPT = ["IsKept", True, False]
GIVEN = {
    "Parameters": {"Days": {"Type": "Number"}},
    "Conditions": {"IsKept": {"Fn::Not": [{"Condition": "IsNot"}]}, "IsNot": {"Fn::Equals": [{"Ref": "Days"}, "0"]}},
}


@pytest.fixture
def account(template: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield a client of DynamoDB, in an account with the data of the stage dev, as CloudFormation makes it."""
    monkeypatch.setattr(command, "REST_S", 0)
    monkeypatch.setattr(command, "ROUNDS", 2)
    for name, value in {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(name, value)
    resources = {key: dict(one) for key, one in template["Resources"].items() if one["Type"] in KINDS}
    for one in resources.values():
        one.pop("DependsOn", None)
        if "PointInTimeRecoverySpecification" in one["Properties"]:
            recovered = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": {"Fn::If": KEPT}}}
            one["Properties"] = {**one["Properties"], **recovered}
    resources["EventsTable"]["Properties"]["StreamSpecification"] = {"StreamViewType": "NEW_IMAGE"}
    resources["AlertsTopic"]["Properties"] = {"TopicName": f"{STACK}-alerts"}
    with mock_aws():
        cloudformation = boto3.client("cloudformation", "us-east-1")
        absent = {"OtherTable": resources["EventsTable"] | {"Condition": "IsNot"}}
        body, days = GIVEN | {"Resources": resources | absent}, {"ParameterKey": "Days", "ParameterValue": "3"}
        cloudformation.create_stack(StackName=STACK, TemplateBody=json.dumps(body), Parameters=[days])
        boto3.client("sns", "us-east-1").subscribe(
            TopicArn=f"arn:aws:sns:us-east-1:123456789012:{STACK}-alerts", Protocol="email", Endpoint="ops@example.org"
        )
        yield boto3.client("dynamodb", "us-east-1")


def doctor(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, tuple[str, str]], str]:
    """Return the exit status, the state and finding of each check, and standard error."""
    code = main(["doctor", "--stage", "dev", "--json", *options])
    printed = capsys.readouterr()
    found = [json.loads(line) for line in printed.out.splitlines()]
    return code, {one["what"]: (one["state"], one["found"]) for one in found}, printed.err


# moto takes no change of a table's encryption.
DRIFT = ("time to live", "stream", "point-in-time recovery")


@pytest.mark.long
def test_a_table_that_was_restored_is_found_and_mended(account: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A restored table has only its name and keys. The command restores the template's settings."""
    old = account.describe_table(TableName=EVENTS)["Table"]
    account.delete_table(TableName=EVENTS)
    parts = {name: old[name] for name in ("KeySchema", "AttributeDefinitions")}
    indexes = [
        {name: one[name] for name in ("IndexName", "KeySchema", "Projection")} for one in old["GlobalSecondaryIndexes"]
    ]
    account.create_table(TableName=EVENTS, BillingMode="PAY_PER_REQUEST", GlobalSecondaryIndexes=indexes, **parts)
    code, drifted, _ = doctor(capsys)
    assert not [what for what in drifted if "Other" in what]
    assert (code, [drifted[f"EventsTable, {name}"] for name in DRIFT]) == (1, [("wrong", "off")] * len(DRIFT))
    _, mended, said = doctor(capsys, "--repair")
    on = [("ok", "expires_at"), ("ok", "NEW_IMAGE"), ("ok", "on")]
    assert [mended[f"EventsTable, {name}"] for name in DRIFT] == on
    # One request for each, and of the tables alone.
    assert [said.count(f"repair EventsTable, {name}: ") for name in DRIFT] == [1] * len(DRIFT)
    # moto knows no settings of Lambda's account: the quota is the default, and said to be. What cannot be looked at is
    # not called well.
    _, quota = mended["quota, concurrent functions of the account"]
    assert "1,000 by default; AWS did not return the account's own" in quota
    assert mended["subscribers of the alarms"] == ("ok", "1, confirmed")


@pytest.mark.long
def test_a_stage_that_is_not_there_is_a_mistake(account: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints one sentence and exits with status 2."""
    assert account.list_tables()["TableNames"]
    for stage, sentence in (
        ("none", "The stack streamkeeper-none cannot be read in us-east-1"),
        ("A", "A stage's name"),
    ):
        assert (main(["doctor", "--stage", stage]), sentence in capsys.readouterr().err) == (2, True)

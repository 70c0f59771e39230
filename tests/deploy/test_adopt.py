"""A deployment by osls adopts what an earlier stack of its stage left; here the stacks have only retained resources."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.service import osls
from local.stages import ROOT
from tests.deploy import node
from tests.deploy.account import ACCOUNT, DEPLOYED, REGION, Account, Run, opened

STACK, OTHER = "streamkeeper-dev", "streamkeeper-other"
EVENTS, CONTROL, LETTERS = f"{STACK}-events", f"{STACK}-control", f"{STACK}-dead-letters"
BUCKET = f"{EVENTS}-{ACCOUNT}-{REGION}"
ADOPTED = f"Adopted what an earlier stack left: {EVENTS}, {CONTROL}, {BUCKET}, {LETTERS}"
ITEM = {"PK": {"S": "prices"}, "SK": {"S": "event"}}
# Without functions osls has nothing to package, which is what takes long.
SERVICE = """
service: streamkeeper
plugins: [./packaging/adopt-retained.cjs, ./packaging/deletion-protection.cjs]
custom:
  settings: {deletion_protection: true, point_in_time_recovery: false}
  names: {events_table: %(stack)s-events, control_table: %(stack)s-control, dead_letter_queue: %(stack)s-dead-letters}
provider: {name: aws, region: us-east-1, deploymentMethod: direct}
resources:
  - ${file(packaging/resources/storage.yml)}
  - Resources: {%(more)s}
"""
# Fails when everything else exists: there is no such function to ask.
BROKEN = (
    "Broken: {Type: AWS::CloudFormation::CustomResource, DependsOn: [EventsTable, ControlTable, EventsBucket,"
    ' DeadLetterQueue], Properties: {ServiceToken: "arn:aws:lambda:us-east-1:000000000000:function:none"}}'
)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """Yield the account of this file."""
    with opened(tmp_path_factory.mktemp("account")) as account:
        yield account


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project of only the retained resources."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "packaging" / "resources").mkdir(parents=True)
    for name in ("adopt-retained.cjs", "deletion-protection.cjs", "plugin.cjs", "resources/storage.yml"):
        shutil.copy(ROOT / "packaging" / name, folder / "packaging" / name)
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    return folder


def wire(project: Path, more: str = "", stack: str = STACK) -> None:
    """Write serverless.yml, with `more` resources."""
    (project / "serverless.yml").write_text(SERVICE % {"stack": stack, "more": more})


def protected(account: Account) -> list[tuple[bool, bool]]:
    """Return for each table whether it is protected from deletion, and whether the template says so."""
    cloudformation, dynamodb = account.client("cloudformation"), account.client("dynamodb")
    resources = cloudformation.get_template(StackName=STACK, TemplateStage="Original")["TemplateBody"]["Resources"]
    return [
        (
            dynamodb.describe_table(TableName=name)["Table"]["DeletionProtectionEnabled"],
            "DeletionProtectionEnabled" in resources[key]["Properties"],
        )
        for name, key in ((EVENTS, "EventsTable"), (CONTROL, "ControlTable"))
    ]


EVERYTHING = {"tables": [CONTROL, EVENTS], "buckets": [BUCKET], "queues": [LETTERS]}
NOTHING: dict[str, Any] = {"tables": [], "buckets": [], "queues": []}


# What the plugin asks for when it adopts: of each resource its id, its type and its name.
ASKED = """const { retained } = require('./packaging/adopt-retained.cjs');
    return retained(...given).map(({ id, type, name }) => [id, type, name]);"""


def test_every_retained_resource_is_looked_up_by_its_name() -> None:
    """The plugin looks up each resource that a stage retains, by the name that CloudFormation gives it."""
    template = osls.template("test")
    found = node.run(ASKED, [template, {"AWS::AccountId": ACCOUNT, "AWS::Region": REGION}])
    asked = {key: (kind, name) for key, kind, name in found}
    retains = {key for key, one in template["Resources"].items() if one.get("DeletionPolicy", "Delete") != "Delete"}
    assert set(asked) == retains
    of_test = "streamkeeper-test"
    assert asked == {
        "EventsTable": ("AWS::DynamoDB::Table", f"{of_test}-events"),
        "ControlTable": ("AWS::DynamoDB::Table", f"{of_test}-control"),
        "EventsBucket": ("AWS::S3::Bucket", f"{of_test}-events-{ACCOUNT}-{REGION}"),
        "DeadLetterQueue": ("AWS::SQS::Queue", f"{of_test}-dead-letters"),
    }


@pytest.mark.long
def test_a_failed_deployment_restores_the_state_before(project: Path, tmp_path: Path) -> None:
    """A failed first deployment leaves no table, bucket or queue; a failed update leaves the version before it. Both
    can be repeated.
    """
    topic = "Topic: {Type: AWS::SNS::Topic}"
    with opened(tmp_path) as account:

        def deploy(more: str) -> Run:
            wire(project, more)
            return account.sls(project, "deploy")

        first = deploy(BROKEN)
        assert (first.code, "UPDATE_FAILED: Broken" in first.output) == (1, True), first.output
        assert account.data() == NOTHING
        repeated = deploy("")
        assert (repeated.code, "Adopted" in repeated.output, account.data()) == (0, False, EVERYTHING), repeated.output
        before = account.resources(STACK)
        update = deploy(f"{topic}, {BROKEN}")
        assert (update.code, account.status(STACK)) == (1, "UPDATE_ROLLBACK_COMPLETE"), update.output
        assert account.resources(STACK).keys() == before.keys()
        repeated = deploy(topic)
        after = account.resources(STACK)
        assert (repeated.code, after.keys() - before.keys()) == (0, {"Topic"}), repeated.output
        assert [after[key]["PhysicalResourceId"] for key in before] == [
            one["PhysicalResourceId"] for one in before.values()
        ]


@pytest.mark.long
@pytest.mark.cpu(12)
def test_a_removed_stage_has_its_data_and_its_protection_again(account: Account, project: Path) -> None:
    """The next stack adopts the retained data. They are protected even after a roll-back to the adopting deployment,
    whose template does not protect them.
    """
    _deployed_removed_and_deployed_again(account, project)
    last = account.sls(project, "deploy")
    assert (last.code, protected(account)) == (0, [(True, True)] * 2), last.output
    (bucket,) = (one["Name"] for one in account.client("s3").list_buckets()["Buckets"] if DEPLOYED in one["Name"])
    objects = account.client("s3").list_objects_v2(Bucket=bucket)["Contents"]
    first_kept = min(re.findall(r"/(\d+)-", " ".join(one["Key"] for one in objects)), key=int)
    back = account.sls(project, "rollback", "--timestamp", first_kept)
    assert (back.code, protected(account)) == (0, [(True, False)] * 2), back.output


def _deployed_removed_and_deployed_again(account: Account, project: Path) -> None:
    wire(project)
    second = account.sls(project, "deploy")
    assert (second.code, account.data(), "Adopted" in second.output) == (0, EVERYTHING, False), second.output
    # In none of the two templates that could have been rolled back, and there all the same.
    assert protected(account) == [(True, False)] * 2
    with pytest.raises(ClientError, match="protected against deletion"):
        account.client("dynamodb").delete_table(TableName=EVENTS)
    account.client("dynamodb").put_item(TableName=EVENTS, Item=ITEM)
    account.client("s3").put_object(Bucket=BUCKET, Key="body", Body=b"large")
    queue = account.client("sqs").get_queue_url(QueueName=LETTERS)["QueueUrl"]
    account.client("sqs").send_message(QueueUrl=queue, MessageBody="a letter")

    removed = account.sls(project, "remove")
    assert (removed.code, account.data(), account.resources(STACK)) == (0, EVERYTHING, {}), removed.output

    again = account.sls(project, "deploy")
    assert (again.code, ADOPTED in again.output, account.data()) == (0, True, EVERYTHING), again.output
    owned = set(account.resources(STACK))
    assert owned >= {"EventsTable", "ControlTable", "EventsBucket", "DeadLetterQueue"}
    assert account.client("dynamodb").get_item(TableName=EVENTS, Key=ITEM)["Item"] == ITEM
    assert account.client("s3").get_object(Bucket=BUCKET, Key="body")["Body"].read() == b"large"
    assert protected(account) == [(True, False)] * 2
    (message,) = account.client("sqs").receive_message(QueueUrl=queue)["Messages"]
    assert message["Body"] == "a letter"


@pytest.mark.long
def test_a_table_of_another_stack_is_not_adopted(account: Account, project: Path) -> None:
    """The deployment ends with CloudFormation's reason in one sentence, and the table stays in its stack."""
    table = {
        "TableName": f"{OTHER}-events",
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}],
    }
    cloudformation = account.client("cloudformation")
    body = json.dumps({"Resources": {"Theirs": {"Type": "AWS::DynamoDB::Table", "Properties": table}}})
    cloudformation.create_stack(StackName="theirs", TemplateBody=body)
    cloudformation.get_waiter("stack_create_complete").wait(StackName="theirs", WaiterConfig={"Delay": 1})

    wire(project, stack=OTHER)
    run = account.sls(project, "deploy", "--stage", "other")
    refused = f"The stack {OTHER} cannot adopt what exists already ({OTHER}-events): {OTHER}-events already exists in "
    assert (run.code, refused in run.output) == (1, True), run.output
    assert set(account.resources("theirs")) == {"Theirs"}
    assert "EventsTable" not in account.resources(OTHER)

"""The life of a deployment, by osls and with all that ships. It takes some minutes, so only `make test-all` runs it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from local.service import osls
from tests.deploy.account import Account, Run, copied, opened
from tests.local.support import until
from tests.real.upstream import serving

pytestmark = pytest.mark.long

STAGE, BESIDE = "cycle", "beside"
STACK = f"streamkeeper-{STAGE}"
STREAM = "trial:one"
# Fails when most else exists: there is no such function to ask.
BROKEN = """
  - Resources:
      Broken:
        Type: AWS::CloudFormation::CustomResource
        DependsOn: [EventsTable, ControlTable, EventsBucket, DeadLetterQueue, ConnectionManagerLambdaFunction]
        Properties:
          ServiceToken: arn:aws:lambda:us-east-1:000000000000:function:none
"""
RETAINED = ("ControlTable", "DeadLetterQueue", "EventsBucket", "EventsTable")


@dataclass(frozen=True)
class Project:
    """A copy of the project that is changed and deployed to an account."""

    folder: Path
    account: Account
    wiring: str
    upstream: str

    def sls(self, command: str, stage: str = STAGE) -> Run:
        """Run `sls deploy` or `sls remove`."""
        return self.account.sls(self.folder, command, "--stage", stage)

    def write(self, memory_mb: int = 256, broken: bool = False) -> None:
        """Write the stages' settings, with limits of seconds, and the wiring, perhaps with a resource that fails."""
        settings = (self.folder / "env" / "test.yml").read_text()
        for stage in (STAGE, BESIDE):
            changed = settings.replace("\nmemory_mb: 128", f"\nmemory_mb: {memory_mb}")
            changed = changed.replace("upstreams: {}", f"upstreams: {{UPSTREAM_TRIAL: {json.dumps(self.upstream)}}}")
            # One stage as prod is, the other as dev.
            if stage == STAGE:
                changed = changed.replace("api_auth: key", "api_auth: iam")
                changed = changed.replace("deletion_protection: false", "deletion_protection: true")
            (self.folder / "env" / f"{stage}.yml").write_text(changed)
        (self.folder / "serverless.yml").write_text(self.wiring + BROKEN * broken)

    def archive(self) -> bytes:
        """Return the zip that was packaged last."""
        return (self.folder / ".serverless" / "streamkeeper.zip").read_bytes()

    def memory_mb(self, stage: str = STAGE) -> int:
        """Return the memory of the deployed connection manager."""
        name = f"streamkeeper-{stage}-connection-manager"
        size: int = self.account.client("lambda").get_function_configuration(FunctionName=name)["MemorySize"]
        return size

    def start(self) -> None:
        """Start the stream as API Gateway does; ministack's does not reach Step Functions."""
        machine = self.account.resources(STACK)["Connections"]["PhysicalResourceId"]
        body = json.dumps({"pathParameters": {"streamId": STREAM}, "queryStringParameters": {}})
        self.account.client("stepfunctions").start_execution(stateMachineArn=machine, input=body)

    def declared(self) -> set[str]:
        """Return the logical ids of the template that was packaged last."""
        template = json.loads((self.folder / ".serverless" / osls.COMPILED).read_text())
        return set(template["Resources"])

    def control(self, method: str) -> Any:
        """Return the deployed control function's answer for the stream."""
        route = "/connections/{streamId}"
        event = {
            "httpMethod": method, "resource": route, "path": f"/connections/{STREAM}", "headers": {},
            "pathParameters": {"streamId": STREAM}, "queryStringParameters": None, "requestContext": {},
        }  # fmt: skip
        answer = self.account.client("lambda").invoke(
            FunctionName=f"streamkeeper-{STAGE}-connection-control", Payload=json.dumps(event)
        )
        return json.loads(json.load(answer["Payload"])["body"])

    def items(self, table: str, prefix: str = "") -> list[dict[str, Any]]:
        """Return the items of the stream in a table whose sort keys begin with a prefix."""
        answer = self.account.client("dynamodb").query(
            TableName=f"{STACK}-{table}", ConsistentRead=True, KeyConditionExpression="PK = :p",
            ExpressionAttributeValues={":p": {"S": STREAM}},
        )  # fmt: skip
        return [item for item in answer["Items"] if item["SK"]["S"].startswith(prefix)]

    def handovers(self) -> int:
        """How many connections ended while another was connected; where the machine is slow, not each does.

        A gap is written when the next is connected, so of the newest nobody knows yet.
        """
        return len(self.items("control", "connection#")) - 1 - len(self.items("control", "gap#"))

    def is_whole(self) -> bool:
        """Return whether each event between the first and the last is stored; their keys are numbers."""
        numbers = sorted(int(item["SK"]["S"]) for item in self.items("events"))
        return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Yield the project in an empty account, with a profile of a running upstream."""
    with opened(tmp_path_factory.mktemp("account")) as account, serving() as (_, port):
        folder = copied(tmp_path_factory.mktemp("copy") / "project")
        profile = (folder / "env" / "streams" / "demo.toml").read_text()
        profile = profile.replace("${UPSTREAM_DEMO}/{streamId}", "${UPSTREAM_TRIAL}/demo:{name}")
        (folder / "env" / "streams" / "trial.toml").write_text(profile)
        yield Project(folder, account, (folder / "serverless.yml").read_text(), f"http://127.0.0.1:{port}")


def test_deployed_changed_removed_and_deployed_again(project: Project) -> None:
    """Each failed step can be repeated, a second stage is separate, and a removed one has its events again."""
    begin(project)
    handover(project)
    change(project)
    second_stage(project)
    failed_update(project)
    remove_and_deploy(project)


def begin(project: Project) -> None:
    """A first deployment that fails leaves nothing behind; the next makes every resource."""
    project.write(broken=True)
    failed = project.sls("deploy")
    assert (failed.code, "UPDATE_FAILED: Broken" in failed.output) == (1, True), failed.output
    assert project.account.client("dynamodb").list_tables()["TableNames"] == []
    zipped = project.archive()
    project.write()
    run = project.sls("deploy")
    # The compiled files are those kept from the deployment before.
    assert project.archive() == zipped
    assert (run.code, "Adopted" in run.output) == (0, False), run.output
    resources = project.account.resources(STACK)
    assert set(resources) == project.declared()
    dynamodb = project.account.client("dynamodb")
    tables = [dynamodb.describe_table(TableName=f"{STACK}-{name}")["Table"] for name in ("events", "control")]
    assert [table["DeletionProtectionEnabled"] for table in tables] == [True, True]


def handover(project: Project) -> None:
    """A stream is started through what was deployed, others take over without a gap, and each event is stored."""
    project.start()
    assert until(lambda: project.handovers() >= 2, 30), project.control("GET")
    status = project.control("GET")
    open_ = [gap for gap in status["coverage"]["gaps"] if gap["state"] != "delivered"]
    assert (status["status"], open_) == ("running", []), status
    assert until(project.is_whole), project.items("events")
    assert len(project.items("events")) > 10


def change(project: Project) -> None:
    """A changed setting is deployed, in place: the tables are the same."""
    before = project.account.resources(STACK)
    project.write(memory_mb=512)
    run = project.sls("deploy")
    assert (run.code, project.memory_mb()) == (0, 512), run.output
    after = project.account.resources(STACK)
    assert [after[name]["PhysicalResourceId"] for name in RETAINED] == [
        before[name]["PhysicalResourceId"] for name in RETAINED
    ]


def second_stage(project: Project) -> None:
    """Another stage is deployed beside it, with resources of its own, and removed again."""
    own = {one["PhysicalResourceId"] for one in project.account.resources(STACK).values()}
    run = project.sls("deploy", BESIDE)
    beside = project.account.resources(f"streamkeeper-{BESIDE}")
    assert (run.code, set(beside)) == (0, project.declared()), run.output
    assert own.isdisjoint({one["PhysicalResourceId"] for one in beside.values()})
    run = project.sls("remove", BESIDE)
    assert (run.code, project.account.resources(f"streamkeeper-{BESIDE}")) == (0, {}), run.output


def failed_update(project: Project) -> None:
    """An update that fails leaves the version before it, and can be repeated."""
    project.write(memory_mb=1024, broken=True)
    failed = project.sls("deploy")
    assert (failed.code, project.memory_mb(), project.account.status(STACK)) == (1, 512, "UPDATE_ROLLBACK_COMPLETE")
    project.write(memory_mb=1024)
    run = project.sls("deploy")
    assert (run.code, project.memory_mb()) == (0, 1024), run.output


def remove_and_deploy(project: Project) -> None:
    """A removed stage leaves its data alone; deployed again, it owns them, and the stream goes on from its cursor."""
    # Step Functions deletes executions with their machine; ministack lets them run on, so the stream is stopped first.
    project.control("DELETE")
    assert until(lambda: project.control("GET")["status"] == "stopped", 20), project.control("GET")
    stored, kept = len(project.items("events")), project.account.data()
    run = project.sls("remove")
    assert (run.code, project.account.resources(STACK), project.account.data()) == (0, {}, kept), run.output
    assert project.account.client("lambda").list_functions()["Functions"] == []

    run = project.sls("deploy")
    assert (run.code, "Adopted what an earlier stack left" in run.output) == (0, True), run.output
    again = project.account.resources(STACK)
    assert set(again) == project.declared()
    assert len(project.items("events")) == stored
    project.start()
    assert until(lambda: len(project.items("events")) > stored, 20), project.control("GET")
    status = project.control("GET")
    assert (status["status"], status["generation"]) == ("running", 2), status

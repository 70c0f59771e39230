"""Groups, delivery and an upgrade by waves in the stack that CloudFormation made: for `.ci/run`, and `make test-all`.

osls packages and deploys the real `serverless.yml` to an account that ministack plays (`account.py`). No service is
replaced by code of ours: the table's stream calls the delivery, and the machines call functions by their versions.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench import harness
from local.service import osls
from local.stages import ROOT
from tests.deploy.account import REGION, Account, copied, opened, with_runtime_client
from tests.examples import IS_CI
from tests.local.support import until
from tests.projects import with_settings

pytestmark = [pytest.mark.cpu(60)] if IS_CI else [pytest.mark.long, pytest.mark.cpu(60)]

STAGE = "whole"
STACK = f"streamkeeper-{STAGE}"
STREAMS, QUEUE = ["trial:0", "trial:1"], "orders.fifo"
# How long something takes at most where nothing else runs.
WAIT_S = 40


@dataclass(frozen=True)
class Stage:
    """The stage of a copy of the project, in an account with a queue for the streams' events."""

    folder: Path
    account: Account
    queue: str

    def deploy(self, memory_mb: int) -> str:
        """Deploy the stage with functions of half a minute, and two streams in a function; return osls's output."""
        with_settings(
            self.folder, STAGE, "test", memory_mb=memory_mb, function_timeout_s=20, wait_s=8, margin_s=2,
            start_allowance_s=12, unconnected_after_s=20, streams_per_function=2, deploy_by_waves=True,
        )  # fmt: skip
        run = self.account.sls(self.folder, "deploy", "--stage", STAGE, STREAMKEEPER_TEMPLATE_ONLY="1")
        assert run.code == 0, run.output
        declared = json.loads((self.folder / ".serverless" / osls.COMPILED).read_text())["Resources"]
        assert set(self.account.resources(STACK)) == set(declared)
        return run.output

    def start(self, stream_id: str) -> None:
        """Start the stream as a POST does; ministack's API Gateway does not reach Step Functions."""
        machine = self.account.resources(STACK)["Start"]["PhysicalResourceId"]
        body = json.dumps({"pathParameters": {"streamId": stream_id}})
        self.account.client("stepfunctions").start_execution(stateMachineArn=machine, input=body)

    def control(self, stream_id: str, sort_key: str = "lease") -> dict[str, Any]:
        key = {"PK": {"S": stream_id}, "SK": {"S": sort_key}}
        answer = self.account.client("dynamodb").get_item(TableName=f"{STACK}-control", Key=key, ConsistentRead=True)
        found: dict[str, Any] = answer.get("Item", {})
        return found

    def ask(self, method: str, stream_id: str) -> Any:
        """Return the answer of the deployed control function about the stream."""
        event = {
            "httpMethod": method, "resource": "/connections/{streamId}", "path": f"/connections/{stream_id}",
            "headers": {}, "pathParameters": {"streamId": stream_id}, "queryStringParameters": None,
            "requestContext": {},
        }  # fmt: skip
        called = self.account.client("lambda").invoke(
            FunctionName=f"{STACK}-connection-control", Payload=json.dumps(event)
        )
        return json.loads(json.load(called["Payload"])["body"])

    def stored(self, stream_id: str) -> list[str]:
        """Return the keys of its events, which the upstream counts, in order."""
        pages = self.account.client("dynamodb").get_paginator("query").paginate(
            TableName=f"{STACK}-events", ConsistentRead=True, KeyConditionExpression="PK = :p",
            ExpressionAttributeValues={":p": {"S": stream_id}},
        )  # fmt: skip
        return sorted((item["SK"]["S"] for page in pages for item in page["Items"]), key=int)

    def delivered(self) -> dict[str, set[str]]:
        """Return the keys of all events that reached the queue so far, by stream."""
        sqs = self.account.client("sqs")
        while messages := sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                body = json.loads(message["Body"])
                _TAKEN.setdefault(body["stream"], set()).add(body["key"])
                sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=message["ReceiptHandle"])
        return _TAKEN

    def alias(self) -> str:
        """Return the version of the function that the streams' machine calls."""
        name = f"{STACK}-connection-manager"
        version: str = self.account.client("lambda").get_alias(FunctionName=name, Name="stable")["FunctionVersion"]
        return version

    def upgrade(self) -> subprocess.CompletedProcess[str]:
        """Run `streamkeeper upgrade` as a person does."""
        environment = os.environ | {
            "AWS_ENDPOINT_URL": self.account.url, "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        command = [sys.executable, "-m", "local.cli", "upgrade", "--stage", STAGE]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


_TAKEN: dict[str, set[str]] = {}


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """Yield the address of an upstream that numbers its events, one a second on each of its streams."""
    with harness.run_module("bench.fleet_peers", str(len(STREAMS)), "1") as (addresses, _):
        yield addresses[0]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, upstream: str) -> Iterator[Stage]:
    """Yield the stage, which the first test deploys; a shared fixture counts for the file's budget."""
    with opened(tmp_path_factory.mktemp("account")) as account:
        queue = account.client("sqs").create_queue(QueueName=QUEUE, Attributes={"FifoQueue": "true"})["QueueUrl"]
        folder = copied(tmp_path_factory.mktemp("copy") / "project")
        with_runtime_client(folder, account.url)
        profile = (folder / "env" / "streams" / "demo.toml").read_text()
        profile = profile.replace("${UPSTREAM_DEMO}/{streamId}", f"{upstream}/{{name}}")
        (folder / "env" / "streams" / "trial.toml").write_text(f'{profile}\n[[deliver]]\nsqs = "{QUEUE}"\n')
        yield Stage(folder, account, queue)


def test_streams_share_a_function_and_are_delivered(stage: Stage) -> None:
    """Two streams in one group hand over, and each stored event reaches the queue."""
    stage.deploy(128)
    for stream_id in STREAMS:
        stage.start(stream_id)
    assert until(lambda: all(len(stage.stored(one)) > 5 for one in STREAMS), WAIT_S), [
        stage.control(one) for one in STREAMS
    ]
    groups = {stage.control(one)["group"]["S"] for one in STREAMS}
    assert len(groups) == 1
    first = {one: int(stage.control(one)["fence"]["N"]) for one in STREAMS}
    assert until(lambda: all(int(stage.control(one)["fence"]["N"]) >= first[one] + 2 for one in STREAMS), WAIT_S)
    wanted = {one: set(stage.stored(one)) for one in STREAMS}
    assert until(lambda: all(wanted[one] <= stage.delivered().get(one, set()) for one in STREAMS), WAIT_S), (
        stage.delivered()
    )


def test_a_wave_moves_the_streams_to_another_version(stage: Stage) -> None:
    """Only the command moves the streams to what is deployed. Each goes on and has every event."""
    before = stage.alias()
    stage.deploy(256)
    assert stage.alias() != "$LATEST"
    upgraded = stage.upgrade()
    assert upgraded.returncode == 0, (upgraded.stdout, upgraded.stderr)
    assert stage.alias() not in ("$LATEST", before)
    stored = {one: len(stage.stored(one)) for one in STREAMS}
    assert until(lambda: all(len(stage.stored(one)) > stored[one] + 5 for one in STREAMS), WAIT_S)
    for stream_id in STREAMS:
        numbers = [int(key) for key in stage.stored(stream_id)]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.long
def test_a_removed_stage_goes_on_once_it_is_deployed_again(stage: Stage) -> None:
    """Its data outlive it. The next deployment owns them, and each stream goes on from its cursor."""
    # Step Functions deletes executions with their machine; ministack lets them run on, so streams are stopped first.
    for stream_id in STREAMS:
        stage.ask("DELETE", stream_id)
    assert until(lambda: all(stage.ask("GET", one)["status"] == "stopped" for one in STREAMS), WAIT_S)
    before, kept = {one: stage.stored(one) for one in STREAMS}, stage.account.data()
    # How far each sink has come is not kept: a new stage delivers from the beginning.
    kept["tables"].remove(f"{STACK}-delivery")
    removed = stage.account.sls(stage.folder, "remove", "--stage", STAGE)
    assert (removed.code, stage.account.resources(STACK), stage.account.data()) == (0, {}, kept), removed.output
    assert stage.account.client("lambda").list_functions()["Functions"] == []
    assert "Adopted what an earlier stack left" in stage.deploy(256)
    generations = [int(stage.control(one)["generation"]["N"]) for one in STREAMS]
    for stream_id in STREAMS:
        stage.start(stream_id)
    assert until(lambda: all(len(stage.stored(one)) > len(before[one]) + 2 for one in STREAMS), WAIT_S), before
    for stream_id, generation in zip(STREAMS, generations, strict=True):
        status = stage.ask("GET", stream_id)
        assert (status["status"], status["generation"]) == ("running", generation + 1), status
        numbers = [int(key) for key in stage.stored(stream_id)]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))

"""An AWS account to deploy to: ministack in a thread of the test, and copies of the project that osls deploys to it.

These tests cannot show what ministack lacks: IAM refuses nothing, CloudFormation's waits are short, and API Gateway
does not reach Step Functions. It does not accept a computed time limit of a task, so a copy has a number. It gives
every error of a Python function one name, which a machine retries; if that matters, the functions run by AWS's own
runtime client (`with_runtime_client`). Its imports and roll-backs follow AWS's.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from local.service import osls
from local.stages import ROOT
from tests.local import support
from tests.local.service.embedded import embedded_aws_in

REGION = "us-east-1"
ACCOUNT = "000000000000"
# In the name of the bucket to which osls uploads.
DEPLOYED = "deploymentbucket"
MACHINE = Path("statemachines", "connections.asl.yml")


@dataclass(frozen=True)
class Run:
    """The result of a run of osls; `output` is everything that it printed."""

    code: int
    output: str


@dataclass(frozen=True)
class Account:
    """The account behind an endpoint."""

    url: str

    def client(self, service: str) -> Any:
        return support.client(service, self.url)

    def sls(self, folder: Path, *arguments: str, **variables: str) -> Run:
        """Runs osls in a copy's folder, with this account's endpoint and credentials and no other access to AWS.

        With STREAMKEEPER_TEMPLATE_ONLY the zip lacks the requirements, which ministack's functions find in the tests'
        own environment; that takes a quarter of the time.
        """
        if (folder / MACHINE).exists():
            counted(folder, arguments[arguments.index("--stage") + 1])
        environment = {name: os.environ[name] for name in ("PATH", "HOME")} | {
            "AWS_ENDPOINT_URL": self.url, "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
            # Milliseconds between two looks at the stack; 5,000 without.
            "SLS_AWS_MONITORING_FREQUENCY": "200",
        } | variables  # fmt: skip
        command = ["node", *osls.COMMAND, *arguments]
        run = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        return Run(run.returncode, run.stdout + run.stderr)

    def resources(self, stack: str) -> dict[str, dict[str, Any]]:
        """Returns the resources of a stack now, by their logical ids; {} if there is no stack."""
        cloudformation = self.client("cloudformation")
        try:
            pages = list(cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack))
        except cloudformation.exceptions.ClientError:
            return {}
        summaries = [one for page in pages for one in page["StackResourceSummaries"]]
        return {one["LogicalResourceId"]: one for one in summaries if one["ResourceStatus"] != "DELETE_COMPLETE"}

    def data(self) -> dict[str, list[str]]:
        """Returns the tables, buckets and queues of any stack, without the deploy tool's own bucket."""
        buckets = [one["Name"] for one in self.client("s3").list_buckets()["Buckets"]]
        queues = self.client("sqs").list_queues().get("QueueUrls", [])
        return {
            "tables": sorted(self.client("dynamodb").list_tables()["TableNames"]),
            "buckets": [name for name in buckets if DEPLOYED not in name],
            "queues": [url.rpartition("/")[2] for url in queues],
        }

    def status(self, stack: str) -> str:
        (described,) = self.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
        return str(described["StackStatus"])


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Account]:
    """Yields an empty account, kept in a folder."""
    log: list[str] = []

    @contextlib.asynccontextmanager
    async def service() -> AsyncIterator[Account]:
        async with embedded_aws_in(folder, log) as aws:
            yield Account(aws.url)

    with support.in_thread(service) as account:
        yield account


_SUM = re.compile(r'"\{% \$\{self:custom\.settings\.(\w+)\} \+ \$\{self:custom\.settings\.(\w+)\} %\}"')


def counted(folder: Path, stage: str) -> None:
    """Replaces the computed time limits of a copy's tasks by the numbers of a stage's settings."""
    file = folder / MACHINE
    settings = yaml.safe_load((folder / "env" / f"{stage}.yml").read_text())
    text, found = _SUM.subn(lambda match: str(settings[match[1]] + settings[match[2]]), file.read_text())
    assert found <= 1
    file.write_text(text)


def with_runtime_client(folder: Path, url: str) -> None:
    """Gives the functions of a copy a runtime of their own: AWS's client for Python, which names errors.

    `url` is the account's address, which ministack passes only to functions without a runtime of their own.
    """
    client = folder / "bootstrap"
    client.write_text(f'#!/bin/sh\nAWS_ENDPOINT_URL={url} exec "{sys.executable}" -m awslambdaric "$_HANDLER"\n')
    client.chmod(0o755)
    file = folder / "serverless.yml"
    text = file.read_text().replace("  runtime: python3.13\n", "  runtime: provided.al2023\n")
    file.write_text(text.replace("    - handlers/**\n", "    - handlers/**\n    - bootstrap\n"))


def copied(folder: Path) -> Path:
    """Returns the folder, filled with a copy of all that is packaged and deployed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    osls.copy_sources(ROOT, folder)
    shutil.copytree(ROOT / "handlers", folder / "handlers", dirs_exist_ok=True)
    for name in ("package.json", "pyproject.toml", "requirements.txt"):
        shutil.copy(ROOT / name, folder / name)
    return folder

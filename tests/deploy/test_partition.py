"""The template is right in every partition that it can be packaged for."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from local import stages
from local.service import osls


def packaged(folder: Path, region: str) -> subprocess.CompletedProcess[str]:
    """What `sls package` for a region comes to, in a copy of the project."""
    osls.snapshot(stages.ROOT, folder)
    command = ["node", str(osls.OSLS), "package", "--stage", "test", "--region", region]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov"), ("eu-central-1", "aws")]
)
def test_the_template_is_right_in_every_partition(tmp_path: Path, region: str, partition: str) -> None:
    """The integrations have the region's partition, every other ARN is CloudFormation's; the API is regional."""
    run = packaged(tmp_path, region)
    assert run.returncode == 0, run.stdout + run.stderr
    compiled = (tmp_path / ".serverless" / osls.COMPILED).read_text()
    named = re.findall(r"arn:(aws[a-z-]*)", compiled)
    assert (set(named), len(named) > 10) == ({partition}, True)
    resources = json.loads(compiled)["Resources"]
    assert resources["Connections"]["Type"] == "AWS::StepFunctions::StateMachine"
    # China and GovCloud refuse an API of the type EDGE.
    assert resources["ApiGatewayRestApi"]["Properties"]["EndpointConfiguration"]["Types"] == ["REGIONAL"]


def test_a_region_of_an_unknown_partition_is_refused(tmp_path: Path) -> None:
    """In one sentence, which names the region."""
    run = packaged(tmp_path, "us-iso-east-1")
    refused = "Streamkeeper cannot be deployed to the region us-iso-east-1: only regions of AWS, "
    assert (run.returncode, refused + "AWS China and AWS GovCloud (US) are known." in run.stdout + run.stderr) == (
        1,
        True,
    )

"""The template is right in every partition for which it can be packaged."""

import json
import re
from pathlib import Path

import pytest

from local.service import osls
from tests.deploy import node


@pytest.mark.parametrize(
    ("packaging", "region", "partition"),
    [
        ("china", "cn-north-1", "aws-cn"),
        pytest.param("govcloud", "us-gov-west-1", "aws-us-gov", marks=pytest.mark.long),
        ("package", "us-east-1", "aws"),
    ],
)
def test_the_template_is_right_in_every_partition(
    request: pytest.FixtureRequest, packaging: str, region: str, partition: str
) -> None:
    """Integrations have the region's partition, every other ARN that of CloudFormation; the API is regional."""
    folder: Path = request.getfixturevalue(packaging)
    state = json.loads((folder / "serverless-state.json").read_text())
    assert state["service"]["provider"]["region"] == region
    compiled = (folder / osls.COMPILED).read_text()
    named = re.findall(r"arn:(aws[a-z-]*)", compiled)
    assert (set(named), len(named) > 10) == ({partition}, True)
    resources = json.loads(compiled)["Resources"]
    # China and GovCloud refuse an API of the type EDGE.
    assert resources["ApiGatewayRestApi"]["Properties"]["EndpointConfiguration"]["Types"] == ["REGIONAL"]


def test_a_region_of_an_unknown_partition_is_refused() -> None:
    """One sentence names the region."""
    script = """const Plugin = require('./packaging/partition.cjs');
        new Plugin({ service: { provider: { region: given } }, configurationInput: {}, classes: { Error } })
            .hooks['before:package:compileFunctions']()"""
    refused = r"^Streamkeeper cannot be deployed to the region us-iso-east-1: only regions of AWS, "
    with pytest.raises(node.Failed, match=refused):
        node.run(script, "us-iso-east-1")

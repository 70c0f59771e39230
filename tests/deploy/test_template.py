"""What the template requests of CloudFormation, in every partition for which it can be packaged."""

import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from local import stages
from local.service import osls
from local.template import Resources
from tests.deploy import node


def resources(template: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [resource["Properties"] for resource in template["Resources"].values() if resource["Type"] == kind]


def statements(template: dict[str, Any], role: str) -> list[tuple[Any, Any]]:
    """Return the (actions, resource) pairs that a role allows."""
    (policy,) = template["Resources"][role]["Properties"]["Policies"]
    return [(one["Action"], one["Resource"]) for one in policy["PolicyDocument"]["Statement"]]


@pytest.mark.long
def test_cfn_lint_finds_nothing_of_ours(package: Path, tmp_path: Path) -> None:
    """cfn-lint is silent but for a doubled dependency that osls itself writes (W3005)."""
    # For TimeoutSeconds its schema allows only a number, AWS an expression too.
    template, linted = (package / osls.COMPILED).read_text(encoding="utf-8"), tmp_path / "template.json"
    linted.write_text(re.sub(r'(TimeoutSeconds\\": )\\"{% \d+ \+ \d+ %}\\"', r"\g<1>960", template), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("cfn-lint")), "--ignore-checks", "W3005", "--", str(linted)]
    run = subprocess.run(command, cwd=stages.ROOT, capture_output=True, text=True, check=False)
    assert (run.stdout + run.stderr, run.returncode) == ("", 0)


def test_tables_are_on_demand_encrypted_recoverable_and_kept(template: dict[str, Any], prod: dict[str, Any]) -> None:
    """Both tables have PK and SK, encryption and a time to live; prod's can be restored and not be deleted."""
    keys = [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}]
    for table, (compiled, is_safe) in product(("EventsTable", "ControlTable"), ((template, False), (prod, True))):
        properties = compiled["Resources"][table]["Properties"]
        assert (properties["BillingMode"], properties["KeySchema"]) == ("PAY_PER_REQUEST", keys)
        assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": is_safe}
        assert properties["DeletionProtectionEnabled"] is is_safe
        assert properties["SSESpecification"] == {"SSEEnabled": True}
        assert properties["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}


def test_no_bucket_can_be_made_public(template: dict[str, Any]) -> None:
    """This holds for the bucket of bodies, and for the bucket of code that osls makes."""
    buckets = [one["Properties"] for one in template["Resources"].values() if one["Type"] == "AWS::S3::Bucket"]
    blocked = [[*one["PublicAccessBlockConfiguration"].values()] for one in buckets]
    assert blocked == [[True] * 4] * 2


def test_two_stages_have_nothing_in_common() -> None:
    """Every name of a resource contains the stage."""
    test, local = (Resources(osls.template(stage), {}) for stage in ("test", "local"))
    kinds = {one["Type"] for one in osls.template("test")["Resources"].values()}
    named = {key: test.name(key) for kind in kinds for key in test.ids_of_type(kind) if test.name(key) != key}
    assert len(named) > 20
    assert named == {key: local.name(key).replace("-local", "-test") for key in named}
    assert [name for name in named.values() if "-test" not in name] == []


def test_retained_data_do_not_outlive_a_failed_first_deployment(template: dict[str, Any]) -> None:
    """A stack that could not be created leaves nothing whose name would fail the next one."""
    kept = {
        name: (resource["DeletionPolicy"], resource["UpdateReplacePolicy"])
        for name, resource in template["Resources"].items()
        if "DeletionPolicy" in resource
    }
    names = ("ControlTable", "DeadLetterQueue", "EventsBucket", "EventsTable")
    assert kept == dict.fromkeys(names, ("RetainExceptOnCreate", "Retain"))


def test_no_deployment_moves_the_alias(template: dict[str, Any]) -> None:
    """The template never changes it, so CloudFormation leaves what an upgrade has set."""
    (alias,) = resources(template, "AWS::Lambda::Alias")
    function = {"Ref": "ConnectionManagerLambdaFunction"}
    assert alias == {"FunctionName": function, "FunctionVersion": "$LATEST", "Name": "stable"}
    assert template["Resources"]["Connections"]["DependsOn"] == ["ConnectionManagerStable"]
    assert resources(template, "AWS::Lambda::Version") == []


ALL, INDEX = "ApiGatewayMethodConnectionsGet", "ApiGatewayMethodGet"
DOCUMENT = "ApiGatewayMethodOpenapijsonGet"
METHODS = "ApiGatewayMethodConnectionsStreamidVar"
PAGE = ("ApiGatewayMethodConsoleGet", "ApiGatewayMethodConsoleFileVarGet")
FLEET = ("ApiGatewayMethodFleetGet", "ApiGatewayMethodFleetPut")
OWN = (ALL, INDEX, DOCUMENT, *PAGE)


def methods(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the API's methods by the path after the stream and the HTTP method; ALL is the list of streams."""
    kind = "AWS::ApiGateway::Method"
    properties = {name: one["Properties"] for name, one in template["Resources"].items() if one["Type"] == kind}
    return {name.removeprefix(METHODS): method for name, method in properties.items()}


def test_get_and_delete_go_to_the_control_function(template: dict[str, Any]) -> None:
    """API Gateway may call the function, and is deployed after all methods."""
    routes = methods(template)
    views = ("CostGet", "DeadDashlettersGet", "GapsGet", "LatestGet", "MachineGet", "SinksGet", "TimelineGet")
    assert sorted(name for name in routes if not name.endswith("Any")) == sorted(
        [*OWN, *FLEET, "Delete", "EventsGet", "Get", "Post", "RedrivePost", "RepairPost", "SinksPost", *views]
    )
    # Each path has ANY besides, for a 405.
    anys = {name.removesuffix("Any") for name in routes if name.endswith("Any")}
    assert anys == {"Redrive", "Repair", *(name.removesuffix("Get") for name in routes if name.endswith("Get"))}
    for name in set(routes) - {"Post"}:
        integration = routes[name]["Integration"]
        assert integration["Type"] == "AWS_PROXY"
        assert {"Fn::GetAtt": ["ConnectionControlLambdaFunction", "Arn"]} in integration["Uri"]["Fn::Join"][1]
    permissions = {one["Principal"]: one["FunctionName"] for one in resources(template, "AWS::Lambda::Permission")}
    assert permissions == {
        "apigateway.amazonaws.com": {"Fn::GetAtt": ["ConnectionControlLambdaFunction", "Arn"]},
        "events.amazonaws.com": {"Fn::GetAtt": ["ConnectionWatchLambdaFunction", "Arn"]},
    }
    (deployment,) = [one for one in template["Resources"].values() if one["Type"] == "AWS::ApiGateway::Deployment"]
    every = {name for name, one in template["Resources"].items() if one["Type"] == "AWS::ApiGateway::Method"}
    assert every <= set(deployment["DependsOn"])


@pytest.mark.parametrize("stage", ["local", "test"])
def test_the_local_stages_have_the_same_resources(template: dict[str, Any], stage: str) -> None:
    """This machine runs the deployed template, with other names and numbers."""

    def shape(compiled: dict[str, Any]) -> list[str]:
        return sorted(resource["Type"] for resource in compiled["Resources"].values())

    assert shape(osls.template(stage)) == shape(template)
    assert f"streamkeeper-{stage}-control" in json.dumps(osls.template(stage))


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

"""The resources of a stage that names a bucket of profiles, and of one with a VPC."""

import json
import re
from typing import Any

import pytest

from local import stages
from local.service.deployed_code import insert_profile_names
from local.stack import Route, read_stack
from tests.deploy import node
from tests.deploy.conftest import OPTIONS, SINK
from tests.deploy.test_template import statements

MANAGER, REPAIR, DELIVERY = "ConnectionManager", "ConnectionRepair", "ConnectionDelivery"
READERS = (MANAGER, "ConnectionControl", REPAIR, DELIVERY)


def roles_allowed(template: dict[str, Any], part: str) -> dict[str, dict[str, Any]]:
    """Return by role the resource of each action whose statement has a text in it."""
    return {
        name.removesuffix("Role"): found
        for name, one in template["Resources"].items()
        if one["Type"] == "AWS::IAM::Role" and "Policies" in one["Properties"]
        if (
            found := {
                action: place
                for actions, place in statements(template, name)
                for action in ([actions] if isinstance(actions, str) else actions)
                if part in json.dumps([actions, place])
            }
        )
    }


def functions(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the properties of each function."""
    end = "LambdaFunction"
    return {
        name.removesuffix(end): one["Properties"] for name, one in template["Resources"].items() if name.endswith(end)
    }


def test_only_functions_that_read_profiles_may_read_their_folder(
    template: dict[str, Any], prod: dict[str, Any]
) -> None:
    """They may read profiles, versions and the list. The machine that answers a POST may read only the list."""
    objects, bucket = ({"Fn::Sub": f"arn:${{AWS::Partition}}:s3:::mine{end}"} for end in ("/streams/*.toml", ""))
    reads: dict[str, Any] = dict.fromkeys(("s3:GetObject", "s3:GetObjectVersion"), objects)
    reads |= dict.fromkeys(("s3:ListBucket", "s3:ListBucketVersions"), bucket)
    assert roles_allowed(prod, ":s3:::mine") == dict.fromkeys(READERS, reads) | {"Start": {"s3:ListBucket": bucket}}
    for compiled, named in ((prod, {"PROFILES_BUCKET": "mine", "PROFILES_FOLDER": "streams/"}), (template, {})):
        variables = {name: one["Environment"]["Variables"] for name, one in functions(compiled).items()}
        told = {name: {key: had[key] for key in had if key.startswith("PROFILES_")} for name, had in variables.items()}
        assert {name: had for name, had in told.items() if had} == {name: named for name in READERS if named}
    start = json.loads(prod["Resources"]["Start"]["Properties"]["DefinitionString"])
    assert start["StartAt"] == "Did it ship"


def test_any_profile_may_be_in_the_bucket(prod: dict[str, Any]) -> None:
    """API Gateway refuses no name, and neither does the local run, whose own profiles come and go."""
    (text,) = {
        text
        for route in read_stack(prod, {}).routes
        if isinstance(route, Route)
        for text in route.request_templates.values()
    }
    assert "#set($known = '[A-Za-z0-9._-]+')" in text
    assert insert_profile_names(text, ["demo"]) == text


def test_the_alarm_of_wrong_profiles_searches_the_words_of_the_log(prod: dict[str, Any]) -> None:
    """One sentence about a wrong profile has these words. The alarm acts like the others."""
    source = (stages.ROOT / "handlers" / "run" / "profile_source.py").read_text()
    (words,) = re.findall('^"(.+)"$', prod["Resources"]["WrongProfilesFilter"]["Properties"]["FilterPattern"])
    assert source.count(words) == 1
    alarm, other = (prod["Resources"][name]["Properties"] for name in ("WrongProfilesAlarm", "StuckAlarm"))
    assert alarm["AlarmActions"] == other["AlarmActions"] != []


def test_profiles_of_the_bucket_may_deliver_to_the_stages_sinks(prod: dict[str, Any]) -> None:
    """An action applies only to resources of its own service; `http` applies to the stage's secrets."""
    (sinks,) = (actions for actions, place in statements(prod, f"{DELIVERY}Role") if place == [SINK])
    assert {"sqs:SendMessage", "s3:PutObject", "lambda:InvokeFunction"} < set(sinks)
    secrets = json.dumps(roles_allowed(prod, "/streamkeeper/test/*")[DELIVERY])
    assert ("parameter/streamkeeper/test/*" in secrets, ":secret:/streamkeeper/test/*" in secrets) == (True, True)


def test_only_functions_that_connect_to_others_are_in_the_vpc(template: dict[str, Any], prod: dict[str, Any]) -> None:
    """Their role may manage network interfaces. A stage without a VPC has none of this; half a VPC is refused."""
    vpc = {"SubnetIds": ["subnet-0a1b2c3d", "subnet-4e5f6a7b"], "SecurityGroupIds": ["sg-0a1b2c3d"]}
    inside = {name: one["VpcConfig"] for name, one in functions(prod).items() if "VpcConfig" in one}
    assert inside == dict.fromkeys((MANAGER, REPAIR, DELIVERY), vpc)
    names = (
        *("AssignPrivateIpAddresses", "CreateNetworkInterface", "DeleteNetworkInterface"),
        *("DescribeNetworkInterfaces", "DescribeSubnets", "UnassignPrivateIpAddresses"),
    )
    assert roles_allowed(prod, "ec2:") == {role: {f"ec2:{name}": "*" for name in names} for role in inside}
    assert "VpcConfig" not in json.dumps(template)
    assert roles_allowed(template, "ec2:") == {}
    for half in ({"vpc_subnet_ids": "subnet-0a1b2c3d"}, {"vpc_security_group_ids": "sg-0a1b2c3d"}):
        settings = {"vpc_subnet_ids": "", "vpc_security_group_ids": "", **half}
        with pytest.raises(node.Failed, match=r"\Avpc_subnet_ids and vpc_security_group_ids belong together: set both"):
            node.run("return require('./packaging/vpc.cjs').vpcOf(given)", settings)


def test_every_role_has_the_permissions_boundary(template: dict[str, Any], prod: dict[str, Any]) -> None:
    """If an account requires a boundary, CloudFormation can create no role without it. A stage without one has none."""
    for compiled, boundary in ((prod, {OPTIONS["permissions_boundary"]}), (template, {None})):
        roles = [one["Properties"] for one in compiled["Resources"].values() if one["Type"] == "AWS::IAM::Role"]
        assert {one.get("PermissionsBoundary") for one in roles} == boundary


# How the page calls a service; those of the network interface and the log are Lambda's own requests.
CALLED = {"events": "EventBridge", "secretsmanager": "Secrets Manager"}


def test_the_page_names_each_endpoint_that_the_vpc_needs(prod: dict[str, Any]) -> None:
    """Without an endpoint the function cannot reach the service. The delivery also calls itself."""
    rows = re.findall(r"^\| (.*?) \|(.*)", page_of("A VPC"), re.MULTILINE)
    actions = [json.dumps(one) for role in (MANAGER, REPAIR, DELIVERY) for one, _ in statements(prod, f"{role}Role")]
    services = set(re.findall(r'"(\w+):', " ".join(actions))) - {"ec2", "logs"}
    named = " ".join(name for name, _ in rows).lower()
    assert [one for one in services if CALLED.get(one, one).lower() not in named] == []
    assert "`deliver`" in dict(rows)["Lambda"]


def test_the_page_names_the_further_permissions_of_a_deployment() -> None:
    """Items and versions belong to no resource that a deployment creates or changes."""
    rights = page_of("Before the first time")
    code = "".join(path.read_text() for path in (stages.ROOT / "packaging").glob("*.cjs"))
    asked = set(re.findall(r"new (\w+Item|Publish\w+|List\w+)Command", code))
    assert [name for name in asked if f"`{name}`" not in rights] == []


def page_of(section: str) -> str:
    """Return a section of the page about deployments."""
    sections = (stages.ROOT / "docs" / "deploy.md").read_text(encoding="utf-8").split("\n## ")
    return next(text for text in sections if text.startswith(f"{section}\n"))

"""The VPC of a stage: which functions are put into it, and what their roles may do then."""

import json
from typing import Any

from tests.deploy import node

SCRIPT = """
const Plugin = require('./packaging/vpc.cjs');
const run = (settings) => {
  const statement = () => ({Properties: {Policies: [{PolicyDocument: {Statement: []}}]}});
  const resources = {Resources: {
    ConnectionManagerRole: statement(), ConnectionDeliveryRole: statement(), ConnectionControlRole: statement(),
  }};
  const functions = {connectionManager: {}, connectionControl: {}, connectionDelivery: {}};
  const plugin = new Plugin({service: {custom: {settings}, functions, resources}});
  try {
    plugin.hooks['before:package:compileFunctions']();
  } catch ({message}) {
    return message;
  }
  return {functions, resources: resources.Resources};
};
return given.map(run);
"""
NONE = {"vpc_subnet_ids": "", "vpc_security_group_ids": ""}
SET = {"vpc_subnet_ids": "subnet-0a1b2c3d,subnet-4e5f6a7b", "vpc_security_group_ids": "sg-0a1b2c3d"}


def placed(*settings: dict[str, str]) -> list[Any]:
    """Return what the plugin makes of each stage's settings."""
    answers: list[Any] = node.run(SCRIPT, settings)
    return answers


def test_what_connects_to_others_is_in_the_vpc_and_nothing_else() -> None:
    """Its role has the actions of network interfaces; a stage without a VPC has none of it, half a VPC is refused."""
    without, within, *halves = placed(
        NONE, SET, NONE | {"vpc_subnet_ids": "subnet-0a1b2c3d"}, SET | {"vpc_subnet_ids": ""}
    )
    assert set(map(json.dumps, without["functions"].values())) == {"{}"}
    vpc = {"subnetIds": ["subnet-0a1b2c3d", "subnet-4e5f6a7b"], "securityGroupIds": ["sg-0a1b2c3d"]}
    assert within["functions"] == {
        "connectionManager": {"vpc": vpc},
        "connectionControl": {},
        "connectionDelivery": {"vpc": vpc},
    }
    given = {
        name: [one["Action"] for one in role["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]]
        for name, role in within["resources"].items()
    }
    actions = [
        f"ec2:{name}"
        for name in (
            *("AssignPrivateIpAddresses", "CreateNetworkInterface", "DeleteNetworkInterface"),
            *("DescribeNetworkInterfaces", "DescribeSubnets", "UnassignPrivateIpAddresses"),
        )
    ]
    assert given == {
        "ConnectionManagerRole": [actions],
        "ConnectionDeliveryRole": [actions],
        "ConnectionControlRole": [],
    }
    assert halves == ["vpc_subnet_ids and vpc_security_group_ids belong together: set both, or neither."] * 2

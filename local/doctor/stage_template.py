"""Reads what a stage should be: the resources of its template, with the names that AWS gave them.

For a deployed stage this is the template of its last deployment, not that of this checkout; for the run on this machine
it is the template that it runs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from local import stages
from local.service import osls
from local.template import Resources
from local.terminal import UserError


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the template; `name` is its physical id (a name, an ARN or a URL)."""

    key: str
    kind: str
    name: str
    properties: Mapping[str, Any]


@dataclass(frozen=True)
class DeployedStage:
    """The resources of a stage; `stack` is CloudFormation's description, None for the run on this machine."""

    stage: str
    resources: tuple[Resource, ...]
    stack: Mapping[str, Any] | None = None

    @property
    def option(self) -> str:
        return f" --stage {self.stage}" if self.stack is not None else ""

    def of_type(self, kind: str) -> list[Resource]:
        """The resources of a type, such as AWS::DynamoDB::Table."""
        return [one for one in self.resources if one.kind == kind]

    def id_of(self, key: str) -> str:
        """The physical id of a resource; "" if the stage does not have it."""
        return next((one.name for one in self.resources if one.key == key), "")

    @property
    def account(self) -> tuple[str, str, str]:
        """The partition, the region and the account, from the ARN of the stack, or else of the machine."""
        # A deployment that failed may have left a stack without its machine.
        arn = self.id_of("Connections") if self.stack is None else self.stack["StackId"]
        _, partition, _, region, account, *_ = arn.split(":")
        return partition, region, account


def repair_advice(deployed: DeployedStage) -> str:
    """What a person can do about drift that `--repair` mends."""
    return f"`streamkeeper doctor{deployed.option} --repair` sets it"


def read_deployed_stage(cloudformation: Any, stage: str) -> DeployedStage:
    """The deployed stage; raises UserError if there is none."""
    name = f"{stages.SERVICE}-{stage}"
    try:
        name = _stack_of_table(cloudformation, f"{name}-control") or name
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
        template = cloudformation.get_template(StackName=name, TemplateStage="Original")["TemplateBody"]
        pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=name)
        names = {
            one["LogicalResourceId"]: one.get("PhysicalResourceId", "")
            for page in pages
            for one in page["StackResourceSummaries"]
        }
    except (BotoCoreError, ClientError, ValueError) as problem:
        region = cloudformation.meta.region_name
        reason = str(problem).rstrip(".")
        raise UserError(
            f"The stack {name} cannot be read in {region}: is the stage deployed there, and do the credentials of "
            f"the environment allow it? ({reason})."
        ) from None
    whole = json.loads(template) if isinstance(template, str) else template
    known, given = whole.get("Parameters", {}), {}
    for one in stack.get("Parameters", ()):
        value, is_number = one["ParameterValue"], known[one["ParameterKey"]]["Type"] == "Number"
        given[one["ParameterKey"]] = {"Default": json.loads(value) if is_number else value}
    _, partition, _, region, account, *_ = stack["StackId"].split(":")
    names |= {"AWS::Partition": partition, "AWS::Region": region, "AWS::AccountId": account}
    return DeployedStage(stage, _resources(whole | {"Parameters": given}, names), stack)


def _stack_of_table(cloudformation: Any, table: str) -> str:
    """The id of the stack that has the table, which may be nested in another or have any name; "" if none is found."""
    try:
        resources = cloudformation.describe_stack_resources(PhysicalResourceId=table)["StackResources"]
    except ClientError:
        # A deployment that failed may have left a stack without the table; without the permission, the name is tried.
        return ""
    # CloudFormation remembers for some time which deleted stack left the table behind.
    here = (one for one in resources if not one["ResourceStatus"].startswith("DELETE_"))
    return next((one["StackId"] for one in here if one.get("PhysicalResourceId") == table), "")


def read_local_stage(stage: str) -> DeployedStage:
    """The run on this machine."""
    template = osls.template(stage)
    resources = Resources(template, {})
    known = {key: str(resources.reference(key)) for key in template["Resources"]}
    known |= {key: resources.name(key) for key in resources.ids_of_type("AWS::SQS::Queue")}
    return DeployedStage(stage, _resources(template, known))


class _NamedResources(Resources):
    """The resources of a template; a reference to one of them is its name in the account."""

    def __init__(self, template: Mapping[str, Any], names: Mapping[str, str]) -> None:
        super().__init__(template, {})
        self._names = names

    def reference(self, key: str) -> Any:
        return self._names[key] if key in self._names else super().reference(key)


def _resources(template: Mapping[str, Any], names: Mapping[str, str]) -> tuple[Resource, ...]:
    """The resources that the stage has, with its own parameters and names in their properties."""
    known = _NamedResources(template, names)
    kinds = dict.fromkeys(one["Type"] for one in template["Resources"].values())
    found = ((key, kind) for kind in kinds for key in known.ids_of_type(kind))
    return tuple(Resource(key, kind, names.get(key, ""), known.properties(key)) for key, kind in found)

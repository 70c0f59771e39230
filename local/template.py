"""Resolves the resources of a compiled CloudFormation template: names, ARNs and intrinsic functions, on this machine.

Invariant: an intrinsic function or a reference that cannot be resolved is a UserError that names the place; nothing is
guessed.
"""

import re
from collections.abc import Mapping
from typing import Any

from local.terminal import UserError

REGION = "us-east-1"
ACCOUNT = "000000000000"
STREAM_LABEL = "latest"
_PSEUDO = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::Region": REGION,
    "AWS::StackName": "local",
    "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/local/0",
    "AWS::URLSuffix": "amazonaws.com",
}
# How resources of a type are named, and the ends of their ARNs.
_NAMES_AND_ARNS: Mapping[str, tuple[str, str]] = {
    "AWS::DynamoDB::Table": ("TableName", f"dynamodb:{REGION}:{ACCOUNT}:table/"),
    "AWS::SQS::Queue": ("QueueName", f"sqs:{REGION}:{ACCOUNT}:"),
    "AWS::Lambda::Function": ("FunctionName", f"lambda:{REGION}:{ACCOUNT}:function:"),
    "AWS::StepFunctions::StateMachine": ("StateMachineName", f"states:{REGION}:{ACCOUNT}:stateMachine:"),
    "AWS::Logs::LogGroup": ("LogGroupName", f"logs:{REGION}:{ACCOUNT}:log-group:"),
    "AWS::IAM::Role": ("RoleName", f"iam::{ACCOUNT}:role/"),
    "AWS::SNS::Topic": ("TopicName", f"sns:{REGION}:{ACCOUNT}:"),
    "AWS::SecretsManager::Secret": ("Name", f"secretsmanager:{REGION}:{ACCOUNT}:secret:"),
    "AWS::S3::Bucket": ("BucketName", "s3:::"),
}
_SUB = re.compile(r"\$\{(!?)([^}]+)\}")
_ABSENT = object()


def text_of(value: Any) -> str:
    """Returns a value in the form in which CloudFormation inserts it into a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class Resources:
    """The template's resources with their local names; it resolves CloudFormation's intrinsic functions."""

    def __init__(self, template: Mapping[str, Any], queue_urls: Mapping[str, str]) -> None:
        self._template = template
        self._all: Mapping[str, Mapping[str, Any]] = template["Resources"]
        self._queue_urls = queue_urls

    def ids_of_type(self, kind: str) -> list[str]:
        """Returns the logical ids of the resources of a type, except those whose condition is false."""
        own = ((key, resource.get("Condition")) for key, resource in self._all.items() if resource["Type"] == kind)
        return [key for key, condition in own if condition is None or self._condition(condition)]

    def raw(self, key: str) -> Mapping[str, Any]:
        if key not in self._all:
            raise UserError(f"The compiled template refers to {key!r}, which it does not define.")
        return self._all[key]

    def properties(self, key: str) -> dict[str, Any]:
        """Returns the properties of a resource, resolved."""
        return {
            name: resolved
            for name, value in self.raw(key).get("Properties", {}).items()
            if (resolved := self.resolve(value, f"{key}.{name}")) is not _ABSENT
        }

    def name(self, key: str) -> str:
        """Returns the physical name of a resource; its logical id if the template gives none."""
        resource = self.raw(key)
        own_name = resource.get("Properties", {}).get(_NAMES_AND_ARNS.get(resource["Type"], ("",))[0])
        return key if own_name is None else str(self.resolve(own_name, key))

    def attribute(self, key: str, attribute: str) -> str:
        """Returns the value of Fn::GetAtt."""
        kind = self.raw(key)["Type"]
        if attribute == "Arn" and kind in _NAMES_AND_ARNS:
            # The ARN of a log group covers its streams.
            return f"arn:aws:{_NAMES_AND_ARNS[kind][1]}{self.name(key)}{':*' if kind == 'AWS::Logs::LogGroup' else ''}"
        if attribute == "StreamArn":
            # Its label is the time of its creation, which only its service knows.
            return f"{self.attribute(key, 'Arn')}/stream/{STREAM_LABEL}"
        if attribute in ("Name", "QueueName", "TopicName"):
            return self.name(key)
        return f"{key}.{attribute}"

    def reference(self, key: str) -> Any:
        """Returns the value of Ref."""
        if key == "AWS::NoValue":
            return _ABSENT
        if key in _PSEUDO:
            return _PSEUDO[key]
        parameters = self._template.get("Parameters", {})
        if key in parameters:
            if "Default" not in parameters[key]:
                raise UserError(f"The compiled template's parameter {key!r} has no default, so it cannot run locally.")
            return parameters[key]["Default"]
        kind = self.raw(key)["Type"]
        if kind == "AWS::SQS::Queue":
            return self._queue_urls.get(self.name(key), "")
        if kind in ("AWS::StepFunctions::StateMachine", "AWS::SNS::Topic", "AWS::SecretsManager::Secret"):
            return self.attribute(key, "Arn")
        return self.name(key)

    def path(self, resource_id: Any) -> str:
        """Returns the path of an API Gateway resource: `/connections/{streamId}`."""
        if "Ref" not in resource_id:
            return ""
        properties = self.raw(resource_id["Ref"])["Properties"]
        return f"{self.path(properties['ParentId'])}/{properties['PathPart']}"

    def resolve(self, value: Any, place: str) -> Any:
        """Returns a value without intrinsic functions; `place` is named if that fails."""
        if isinstance(value, list):
            resolved = [self.resolve(item, place) for item in value]
            return [item for item in resolved if item is not _ABSENT]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            (name, argument), *_ = value.items()
            if name == "Ref":
                return self.reference(argument)
            if name.startswith("Fn::"):
                return self._intrinsic(name, argument, place)
        resolved_items = {key: self.resolve(item, f"{place}.{key}") for key, item in value.items()}
        return {key: item for key, item in resolved_items.items() if item is not _ABSENT}

    def _intrinsic(self, name: str, argument: Any, place: str) -> Any:
        if name == "Fn::Sub":
            return self._sub(argument, place)
        if name == "Fn::If":
            return self.resolve(argument[1] if self._condition(argument[0]) else argument[2], place)
        if name == "Fn::GetAtt":
            key, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
            return self.attribute(key, attribute)
        match name, self.resolve(argument, place):
            case "Fn::Join", [between, parts]:
                return str(between).join(map(text_of, parts))
            case "Fn::Select", [index, parts]:
                return parts[int(index)]
            case "Fn::Split", [between, text]:
                return str(text).split(str(between))
            case "Fn::FindInMap", [table, first, second]:
                return self._template["Mappings"][table][first][second]
        raise UserError(f"The local service does not support {name}, which the compiled template uses at {place}.")

    def _sub(self, argument: Any, place: str) -> str:
        text, bindings = (argument, {}) if isinstance(argument, str) else argument
        variables = self.resolve(bindings, place)

        def value(match: re.Match[str]) -> str:
            literal, name = match.groups()
            if literal:
                return "${" + name + "}"
            if name in variables:
                return text_of(variables[name])
            if "." in name:
                return self.attribute(*name.split(".", 1))
            return text_of(self.reference(name))

        return _SUB.sub(value, text)

    def _condition(self, condition: Any) -> bool:
        if isinstance(condition, str):
            return self._condition(self._template["Conditions"][condition])
        ((name, argument),) = condition.items()
        match name:
            case "Condition":
                return self._condition(argument)
            case "Fn::Equals":
                first, second = (text_of(self.resolve(one, "Conditions")) for one in argument)
                return first == second
            case "Fn::Not":
                return not self._condition(argument[0])
            case "Fn::And" | "Fn::Or":
                return (all if name == "Fn::And" else any)(self._condition(part) for part in argument)
        raise UserError(f"The local service does not support the condition {name} of the compiled template.")

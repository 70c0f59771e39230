"""Deploys the state machines of a template of SAM or CloudFormation on this machine.

A reference to a function becomes the ARN of its name here; any other reference becomes the resource's name. Invariant:
only the template's state machines are created.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from states_language.definition.fields import DefinitionError
from states_language.definition.source import read_data, read_definition
from states_language.definition.templates import FUNCTIONS, TYPES, Template, is_template
from states_language.server.requests import ACCOUNT, PREFIX, REGION
from states_language.values import compact


class DeployedMachine(NamedTuple):
    """A state machine of a template."""

    name: str
    arn: str
    definition: str
    type: str


def template_machines(path: str | os.PathLike[str], substitutions: Mapping[str, Any]) -> list[DeployedMachine]:
    """Returns the state machines of a template, for `loaded_stack`; raises DefinitionError."""
    template = read_data(path)
    if not is_template(template) or "Resources" not in template:
        raise DefinitionError("/", f"{os.fspath(path)} is no template: it has no Resources")
    resources = {name: one for name, one in template["Resources"].items() if isinstance(one, Mapping)}
    values: dict[str, Any] = {"AWS::AccountId": ACCOUNT}
    for id_, one in resources.items():
        name = _resource_name(id_, one)
        arn = f"{PREFIX}:stateMachine:{name}" if one.get("Type") in TYPES else f"arn:aws:{id_}"
        if one.get("Type") in FUNCTIONS:
            arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}"
        values |= {id_: arn if one.get("Type") in TYPES else name, f"{id_}.Arn": arn, f"{id_}.Name": name}
    values |= substitutions
    read, machines = Template(template, values), []
    for id_ in read.created_machines():
        name, definition = _resource_name(id_, resources[id_]), compact(read_definition(path, values, id_))
        machines.append(DeployedMachine(name, f"{PREFIX}:stateMachine:{name}", definition, read.machine_type(id_)))
    return machines


def _resource_name(id_: str, resource: Mapping[str, Any]) -> str:
    """Returns the name that a resource gives itself, otherwise its logical id."""
    properties = resource.get("Properties")
    kinds = ("FunctionName", "StateMachineName", "TableName", "QueueName", "TopicName", "BucketName", "Name")
    found = (properties.get(kind) for kind in kinds) if isinstance(properties, Mapping) else ()
    return next((name for name in found if isinstance(name, str) and "${" not in name), id_)

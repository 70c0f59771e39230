"""Deploys the state machines of a template of SAM or CloudFormation on this machine.

A reference to a function becomes the ARN of its name here; any other reference becomes the resource's name. Invariant:
only the template's state machines are created.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from states_language.definition.fields import DefinitionError
from states_language.definition.source import read_data, read_definition
from states_language.definition.templates import FUNCTIONS, TYPES, is_template
from states_language.server.requests import PREFIX, REGION
from states_language.values import compact


class Deployed(NamedTuple):
    """A state machine of a template."""

    name: str
    arn: str
    definition: str
    type: str


def machines_of(path: str | os.PathLike[str], substitutions: Mapping[str, Any]) -> list[Deployed]:
    """Returns the state machines of a template, for `loaded_stack`; raises DefinitionError."""
    template = read_data(path)
    if not is_template(template) or "Resources" not in template:
        raise DefinitionError("/", f"{os.fspath(path)} is no template: it has no Resources")
    resources = {name: one for name, one in template["Resources"].items() if isinstance(one, Mapping)}
    values: dict[str, Any] = {}
    for id_, one in resources.items():
        name = _name(id_, one)
        arn = f"{PREFIX}:stateMachine:{name}" if one.get("Type") in TYPES else f"arn:aws:{id_}"
        if one.get("Type") in FUNCTIONS:
            arn = f"arn:aws:lambda:{REGION}:000000000000:function:{name}"
        values |= {id_: arn if one.get("Type") in TYPES else name, f"{id_}.Arn": arn, f"{id_}.Name": name}
    machines = []
    for id_, one in resources.items():
        if one.get("Type") in TYPES:
            properties, name = one.get("Properties") or {}, _name(id_, one)
            definition = read_definition(path, {**values, **substitutions}, id_)
            kind = properties.get("Type", properties.get("StateMachineType", "STANDARD"))
            machines.append(Deployed(name, f"{PREFIX}:stateMachine:{name}", compact(definition), str(kind)))
    return machines


def _name(id_: str, resource: Mapping[str, Any]) -> str:
    """Returns the name that a resource gives itself, otherwise its logical id."""
    properties = resource.get("Properties")
    kinds = ("FunctionName", "StateMachineName", "TableName", "QueueName", "TopicName", "BucketName", "Name")
    found = (properties.get(kind) for kind in kinds) if isinstance(properties, Mapping) else ()
    return next((name for name in found if isinstance(name, str) and "${" not in name), id_)

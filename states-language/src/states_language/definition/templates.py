"""Finds the state machines of a template of SAM or CloudFormation, of one that CDK wrote, or of a serverless.yml.

A reference to another resource becomes a placeholder: `!GetAtt Charge.Arn` is `${Charge.Arn}`; `!Ref Name` is the
parameter's default, or `${Name}`. Invariant: a value that only a deployment knows is never guessed.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from states_language.definition.fields import DefinitionError, below
from states_language.definition.substitutions import PLACEHOLDER, filled

FUNCTIONS = ("AWS::Serverless::Function", "AWS::Lambda::Function")
TYPES = ("AWS::Serverless::StateMachine", "AWS::StepFunctions::StateMachine")
_ASSET = re.compile(r"[0-9a-f]{64}\.\w+")
"""The key of a file that CDK copies beside the template: its hash."""
_CDK_ID = re.compile(r"(.+)[0-9A-F]{8}")
"""The logical id that CDK makes of a construct's id."""


_FILE = re.compile(r"\$\{file\(([^()]+)\)\}")


def is_template(data: Any) -> bool:
    """Return whether the data is a template and not a definition."""
    return isinstance(data, Mapping) and _resources(data) is not None and "States" not in data


def _resources(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the resources of a template; for a serverless.yml, its machines in the same form; None for other data."""
    resources, plugin = data.get("Resources"), data.get("stepFunctions")
    machines = plugin.get("stateMachines") if isinstance(plugin, Mapping) else None
    if isinstance(resources, Mapping) or not isinstance(machines, Mapping):
        return resources if isinstance(resources, Mapping) else None
    made = {}
    for name, machine in machines.items():
        definition = machine.get("definition") if isinstance(machine, Mapping) else None
        file = _FILE.fullmatch(definition) if isinstance(definition, str) else None
        made[name] = {
            "Type": TYPES[1],
            "Properties": {"DefinitionUri": file[1]} if file else {"Definition": definition},
        }
    return made


class Template:
    """A template, and what it says of its state machines, which are named by their logical ids.

    given: values of parameters, and of other names; a parameter that it leaves out has its default.
    """

    def __init__(self, data: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        resources = (_resources(data) or {}).items()
        self._machines = {name: one for name, one in resources if isinstance(one, Mapping) and one.get("Type") in TYPES}
        parameters = data.get("Parameters")
        values = parameters.items() if isinstance(parameters, Mapping) else ()
        defaults = {name: one["Default"] for name, one in values if isinstance(one, Mapping) and "Default" in one}
        self._values = {**defaults, **given}

    def chosen(self, name: str | None) -> str:
        """Return the machine's logical id: `name` may lack the hash that CDK adds; None means the template's only one.

        Raises DefinitionError.
        """
        meant = [one for one in self._machines if name in (None, one, _CDK_ID.sub(r"\1", one))]
        if name in self._machines or len(meant) == 1:
            return str(name if name in self._machines else meant[0])
        found = ", ".join(self._machines)
        if not found:
            raise DefinitionError("/Resources", f"has no resource of the type {' or '.join(TYPES)}")
        there = "has several state machines" if name is None else f"has no state machine '{name}'"
        raise DefinitionError("/Resources", f"{there}: choose one of {found} by machine='...'")

    def type(self, name: str) -> str:
        """Return the type of a machine; raises DefinitionError if it is none, or only a deployment knows it."""
        properties = self._properties(name)
        field = "StateMachineType" if "StateMachineType" in properties else "Type"
        found = self._resolved(properties.get(field, "STANDARD"))
        if found not in ("STANDARD", "EXPRESS"):
            raise DefinitionError(self._pointer(name, field), f"must be STANDARD or EXPRESS, not {found}")
        return str(found)

    def substitutions(self, name: str) -> dict[str, Any]:
        """Return the DefinitionSubstitutions of a machine; raises DefinitionError."""
        found = self._resolved(self._properties(name).get("DefinitionSubstitutions", {}))
        if not isinstance(found, dict):
            raise DefinitionError(self._pointer(name, "DefinitionSubstitutions"), "must be a JSON object")
        return found

    def definition(self, name: str, read: Callable[[str], Any], parse: Callable[[str], Any]) -> Any:
        """Return the definition of a machine: `read` makes data of a file, `parse` of a text."""
        properties = self._properties(name)
        if "Definition" in properties:
            return self._resolved(properties["Definition"])
        text = self._resolved(properties.get("DefinitionString"))
        if isinstance(text, str):
            return parse(text)
        where = properties.get("DefinitionUri", properties.get("DefinitionS3Location"))
        if isinstance(where, str) and not where.startswith("s3:"):
            return read(where)
        key = self._resolved(where.get("Key")) if isinstance(where, Mapping) else None
        if isinstance(key, str) and _ASSET.fullmatch(key):
            return read(f"asset.{key}")
        rule = "needs a Definition, a DefinitionString or the DefinitionUri of a file: load one in S3 as a file itself"
        raise DefinitionError(self._pointer(name), rule)

    def _properties(self, name: str) -> Mapping[str, Any]:
        properties = self._machines[name].get("Properties")
        if not isinstance(properties, Mapping):
            raise DefinitionError(self._pointer(name), "must be a JSON object")
        return properties

    @staticmethod
    def _pointer(name: str, *below_it: str) -> str:
        return below("/Resources", name, "Properties", *below_it)

    def _resolved(self, value: Any) -> Any:
        """Return the value with each intrinsic function as its result or as a placeholder."""
        if isinstance(value, Mapping):
            if len(value) == 1:
                name, argument = next(iter(value.items()))
                if name == "Ref" or name.startswith("Fn::"):
                    return filled(_placeholder(name, self._resolved(argument)), self._values)
            return {key: self._resolved(member) for key, member in value.items()}
        if isinstance(value, list):
            return [self._resolved(element) for element in value]
        return value


def _placeholder(name: str, argument: Any) -> Any:
    """Return the text for an intrinsic function, with a placeholder for what only a deployment knows."""
    match name.removeprefix("Fn::"), argument:
        case "Sub", str():
            return argument.replace("${!", "${")
        case "Sub", [str(text), dict(values)]:
            return filled(text, values).replace("${!", "${")
        case "Join", [str(between), list(texts)]:
            return between.join(map(str, texts))
        case "GetAtt", [str(resource), str(attribute)]:
            return f"${{{resource}.{attribute}}}"
        case (("Ref" | "GetAtt"), str()):
            return f"${{{argument}}}"
    inner = [argument] if not isinstance(argument, list) else argument
    placeholder = f"${{{'.'.join([name, *map(str, inner)])}}}"
    return placeholder if PLACEHOLDER.fullmatch(placeholder) else f"${{{name}}}"

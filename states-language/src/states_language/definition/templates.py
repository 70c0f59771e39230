"""Finds the state machines of a template of SAM or CloudFormation, of one that CDK wrote, or of a serverless.yml.

A reference to another resource becomes a placeholder: `!GetAtt Charge.Arn` is `${Charge.Arn}`; `!Ref Name` is the
parameter's default, or `${Name}`; `!If` is what its condition chooses. Invariant: a value that only a deployment knows
is never guessed.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from states_language.definition.fields import DefinitionError, child_pointer
from states_language.values import compact

Substitutions = Mapping[str, Any]
"""A JSON value for each name."""

PLACEHOLDER = re.compile(r"(\$?)(?:\$|#(?=\{AWS::))\{ *(?:jsonencode\( *)?([A-Za-z_][\w.:\-]*)(?: *\))? *\}")
"""`${Name}`, `${Function.Arn}`, `${AWS::Region}` and a serverless.yml's `#{AWS::Region}`, Terraform's
`${jsonencode(name)}`; after another $ it is not a placeholder. No JSONata expression looks like one."""
_STRING_OR_PLACEHOLDER = re.compile(r'"(?:[^"\\]|\\.)*"|' + PLACEHOLDER.pattern, re.DOTALL)
_EXPRESSION = re.compile(r"(?<!\$)\$\{[^}\n]*\}?|(?<!%)%\{[^}\n]*\}?")
"""What Terraform evaluates in a template: an expression, or a directive."""

PSEUDO_PARAMETERS = {
    "AWS::Partition": "aws",
    "AWS::Region": "us-east-1",
    "AWS::AccountId": "111111111111",
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::StackName": "stack",
}
"""The pseudo parameters of CloudFormation, which have a value in every template."""


def to_text(value: Any) -> str:
    """Return a value as text: JSON, unless it is one."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def fill_in(text: str, substitutions: Substitutions, *, in_template: bool = False) -> str:
    """Return the text with its names filled in.

    in_template: CloudFormation fills in the names in a value, too, and $${Name} is not special for it.

        fill_in('{"Resource": "${Charge}", "Seconds": ${Pause}}', {"Pause": 5})
        # {"Resource": "${Charge}", "Seconds": 5}

    So a number between quotation marks is a text, and a value with a quotation mark must be escaped as in JSON. A name
    without a value stays as it is written: a placeholder.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] and not in_template:
            return found[0][1:]
        given = substitutions.get(found[2], PSEUDO_PARAMETERS.get(found[2], found[0]))
        written = json.dumps(given) if "jsonencode" in found[0] and found[2] in substitutions else to_text(given)
        if in_template and found[2] in substitutions:
            others = {name: one for name, one in substitutions.items() if name != found[2]}
            written = fill_in(written, others, in_template=True)
        return found[1] + written

    return PLACEHOLDER.sub(value, text)


def names_left(text: str) -> list[str]:
    """Return the names that are left outside of the strings of a text of JSON."""
    return [found[2] for found in _STRING_OR_PLACEHOLDER.finditer(text) if found[2]]


def check_templatefile(text: str, name: str) -> str:
    """Return a template of Terraform with only names left to fill in; raises DefinitionError for anything else."""
    for found in _EXPRESSION.finditer(text):
        if not PLACEHOLDER.fullmatch(found[0]):
            raise DefinitionError("/", f"{name} has {found[0]}, for Terraform: load the text that it renders")
    return text.replace("%%{", "%{")


FUNCTIONS = ("AWS::Serverless::Function", "AWS::Lambda::Function")
TYPES = ("AWS::Serverless::StateMachine", "AWS::StepFunctions::StateMachine")
_ASSET = re.compile(r"[0-9a-f]{64}\.\w+")
"""The key of a file that CDK copies beside the template: its hash."""
_CDK_ID = re.compile(r"(.+)[0-9A-F]{8}")
"""The logical id that CDK makes of a construct's id."""
_FILE = re.compile(r"\$\{file\(([^()]+)\)\}")
NO_VALUE = "${AWS::NoValue}"
"""What removes a property."""


class ObjectWithDuplicate(dict[str, Any]):
    """An object in which a key appears twice; `problem` refuses it."""

    def __init__(self, members: dict[str, Any], problem: DefinitionError) -> None:
        super().__init__(members)
        self.problem = problem


def is_template(data: Any) -> bool:
    """Return whether the data is a template and not a definition."""
    return isinstance(data, Mapping) and _resources(data) is not None and "States" not in data


def _resources(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a template's resources, or the machines of a serverless.yml or of its `stepFunctions` as such, or None."""
    resources, plugin = data.get("Resources"), data.get("stepFunctions", data)
    machines = plugin.get("stateMachines") if isinstance(plugin, Mapping) else None
    if isinstance(resources, Mapping) or not isinstance(machines, Mapping):
        return resources if isinstance(resources, Mapping) else None
    made = {}
    for name, machine in machines.items():
        definition = machine.get("definition") if isinstance(machine, Mapping) else None
        file = _FILE.fullmatch(definition) if isinstance(definition, str) else None
        properties = {"DefinitionUri": file[1]} if file else {"Definition": definition}
        made[name] = {"Type": TYPES[1], "Properties": properties}
    return made


class Template:
    """A template, and what it says of its state machines, which are named by their logical ids.

    given: values of parameters, and of other names; a parameter that it leaves out has its default.
    """

    def __init__(self, data: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        parameters, conditions = data.get("Parameters"), data.get("Conditions")
        values = parameters.items() if isinstance(parameters, Mapping) else ()
        defaults = {name: one["Default"] for name, one in values if isinstance(one, Mapping) and "Default" in one}
        # "When you use the parameter elsewhere in your template, … the parameter value becomes a string" (its guide).
        self._values = {name: to_text(value) for name, value in {**defaults, **given}.items()}
        self._conditions = conditions if isinstance(conditions, Mapping) else {}
        self._conditions_in_progress = set[str]()  # the conditions whose own are being decided
        self._machines = {
            name: one
            for name, one in (_resources(data) or {}).items()
            if isinstance(one, Mapping) and one.get("Type") in TYPES and self._condition_value(one) is not False
        }

    def created_machines(self) -> list[str]:
        """Return the logical ids of the machines that a deployment creates; raises DefinitionError if it is unknown."""
        for one in self._machines.values():
            if self._condition_value(one) is not True:
                raise DefinitionError(
                    child_pointer("/Conditions", str(one["Condition"])), "needs a value of each parameter"
                )
        return list(self._machines)

    def _condition_value(self, resource: Mapping[str, Any]) -> Any:
        """Return whether the condition of a resource is true; a text for one that only a deployment knows."""
        return "Condition" not in resource or self._resolve({"Condition": resource["Condition"]})

    def choose_machine(self, name: str | None) -> str:
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

    def machine_type(self, name: str) -> str:
        """Return the type of a machine; raises DefinitionError if it is none, or only a deployment knows it."""
        properties = self._properties(name)
        field = "StateMachineType" if "StateMachineType" in properties else "Type"
        found = properties.get(field, "STANDARD")
        if found not in ("STANDARD", "EXPRESS"):
            raise DefinitionError(self._pointer(name, field), f"must be STANDARD or EXPRESS, not {found}")
        return str(found)

    def substitutions(self, name: str) -> dict[str, Any]:
        """Return the DefinitionSubstitutions of a machine; raises DefinitionError."""
        found = self._properties(name).get("DefinitionSubstitutions", {})
        if not isinstance(found, dict):
            raise DefinitionError(self._pointer(name, "DefinitionSubstitutions"), "must be a JSON object")
        return found

    def definition(self, name: str, read: Callable[[str], Any], parse: Callable[[str, str], Any]) -> Any:
        """Return the definition of a machine: `read` makes data of a file, `parse` of a text with a name."""
        properties = self._properties(name)
        text = properties.get("DefinitionString")
        if "Definition" in properties:
            text = compact(properties["Definition"])
        if isinstance(text, str):
            return parse(text, f"the definition of {name}")
        where = properties.get("DefinitionUri", properties.get("DefinitionS3Location"))
        if isinstance(where, str) and not where.startswith("s3:"):
            return read(where)
        key = where.get("Key") if isinstance(where, Mapping) else None
        if isinstance(key, str) and _ASSET.fullmatch(key):
            return read(f"asset.{key}")
        rule = "needs a Definition, a DefinitionString or the DefinitionUri of a file: load one in S3 as a file itself"
        raise DefinitionError(self._pointer(name), rule)

    def _properties(self, name: str) -> dict[str, Any]:
        properties = self._resolve(self._machines[name].get("Properties"))
        if not isinstance(properties, dict):
            raise DefinitionError(self._pointer(name), "must be a JSON object")
        return properties

    @staticmethod
    def _pointer(name: str, *below_it: str) -> str:
        return child_pointer("/Resources", name, "Properties", *below_it)

    def _resolve(self, value: Any) -> Any:
        """Return the value with each intrinsic function as its result or as a placeholder."""
        if isinstance(value, ObjectWithDuplicate):
            raise value.problem
        if isinstance(value, Mapping):
            if len(value) == 1:
                name, argument = next(iter(value.items()))
                match name, argument:
                    case "Condition", str() if argument in self._conditions:
                        if argument in self._conditions_in_progress:
                            raise DefinitionError(child_pointer("/Conditions", argument), "must not refer to itself")
                        self._conditions_in_progress.add(argument)
                        decided = self._resolve(self._conditions[argument])
                        self._conditions_in_progress.remove(argument)
                        return decided
                    case "Fn::If", [condition, yes, no] if isinstance(
                        held := self._condition_value({"Condition": condition}), bool
                    ):
                        return self._resolve(yes if held else no)
                if name == "Ref" or name.startswith("Fn::"):
                    result = _apply_function(name, self._resolve(argument))
                    # Fn::Join fills in no name, and the ${Name} that Fn::Sub makes of ${!Name} is none.
                    if not isinstance(result, str) or name == "Fn::Join":
                        return result
                    result = fill_in(result, self._values, in_template=True)
                    return result.replace("${!", "${") if name == "Fn::Sub" else result
            members = ((key, self._resolve(member)) for key, member in value.items())
            return {key: member for key, member in members if member != NO_VALUE}
        if isinstance(value, list):
            return [element for element in map(self._resolve, value) if element != NO_VALUE]
        return value


def _apply_function(name: str, argument: Any) -> Any:
    """Return the result of an intrinsic function, with a placeholder for what only a deployment knows."""
    match name.removeprefix("Fn::"), argument:
        case "Sub", str():
            return argument
        case "Sub", [str(text), dict(values)]:
            return fill_in(text, values, in_template=True)
        case "Join", [str(between), list(texts)]:
            return between.join(map(str, texts))
        case "Equals", [one, other] if not any(PLACEHOLDER.search(str(each)) for each in argument):
            return to_text(one) == to_text(other)
        case "Not", [bool(held)]:
            return not held
        case "And" | "Or", [*found] if all(isinstance(each, bool) for each in found):
            return all(found) if name == "Fn::And" else any(found)
        case "GetAtt", [str(resource), str(attribute)]:
            return f"${{{resource}.{attribute}}}"
        case (("Ref" | "GetAtt"), str()):
            return f"${{{argument}}}"
    inner = [argument] if not isinstance(argument, list) else argument
    placeholder = f"${{{'.'.join([name, *map(str, inner)])}}}"
    return placeholder if PLACEHOLDER.fullmatch(placeholder) else f"${{{name}}}"

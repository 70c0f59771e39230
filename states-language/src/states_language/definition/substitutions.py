"""Fills in the `${Name}` of a definition, as SAM's DefinitionSubstitutions and Terraform's templatefile do.

    filled({"Resource": "${Charge}", "Seconds": "${Pause}"}, {"Pause": 5})  # {"Resource": "${Charge}", "Seconds": 5}

A name without a value stays as it is written: a placeholder. Invariant: a value is not searched for names again.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from states_language.definition.fields import DefinitionError

Substitutions = Mapping[str, Any]
"""A JSON value for each name."""

PLACEHOLDER = re.compile(r"(\$?)\$\{ *(?:jsonencode\( *)?([A-Za-z_][\w.:\-]*)(?: *\))? *\}")
"""`${Name}`, `${Function.Arn}`, `${AWS::Region}`, Terraform's `${jsonencode(name)}`; after another $ it is not a
placeholder. No JSONata expression looks like one."""
_STRING_OR_PLACEHOLDER = re.compile(r'"(?:[^"\\]|\\.)*"|' + PLACEHOLDER.pattern, re.DOTALL)
_EXPRESSION = re.compile(r"(?<!\$)\$\{[^}\n]*\}?|(?<!%)%\{[^}\n]*\}?")
"""What Terraform evaluates in a template: an expression, or a directive."""

PSEUDO = {
    "AWS::Partition": "aws",
    "AWS::Region": "us-east-1",
    "AWS::AccountId": "111111111111",
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::StackName": "stack",
}
"""The pseudo parameters of CloudFormation, which have a value in every template."""


def filled(value: Any, substitutions: Substitutions) -> Any:
    """Return a copy of the JSON value with the names in its texts filled in; a text that is one name becomes its value.

    Raises DefinitionError for a key whose value would not be a text.
    """
    if isinstance(value, str):
        return _text(value, substitutions) if "${" in value else value
    if isinstance(value, dict):
        return {_key(key, substitutions): filled(member, substitutions) for key, member in value.items()}
    return [filled(element, substitutions) for element in value] if isinstance(value, list) else value


def _key(key: str, substitutions: Substitutions) -> str:
    name = filled(key, substitutions)
    if not isinstance(name, str):
        raise DefinitionError("/", f"the value for the key '{key}' must be a string, not {json.dumps(name)}")
    return name


def _text(text: str, substitutions: Substitutions) -> Any:
    whole = PLACEHOLDER.fullmatch(text)
    if whole and not whole[1] and whole[2] in substitutions:
        return substitutions[whole[2]]

    def value(place: re.Match[str]) -> str:
        if place[1]:
            return place[0][1:]
        found = substitutions.get(place[2], PSEUDO.get(place[2], place[0]))
        return found if isinstance(found, str) else json.dumps(found)

    return PLACEHOLDER.sub(value, text)


def templatefile(text: str, name: str) -> str:
    """Return a template of Terraform with only names left to fill in; raises DefinitionError for anything else."""
    for found in _EXPRESSION.finditer(text):
        if not PLACEHOLDER.fullmatch(found[0]):
            raise DefinitionError("/", f"{name} has {found[0]}, for Terraform: load the text that it renders")
    return text.replace("%%{", "%{")


def filled_text(text: str, substitutions: Substitutions, name: str) -> str:
    """Return the text of a JSON template; the names outside of its strings are filled in.

    Raises DefinitionError if one of these names has no value.
    """

    def value(found: re.Match[str]) -> str:
        key = found[2]
        if key is None:
            return found[0]
        if key not in substitutions:
            raise DefinitionError("/", f"{name}: {found[0]} needs a value: load(..., substitutions={{'{key}': ...}})")
        given = substitutions[key]
        return given if isinstance(given, str) and "jsonencode" not in found[0] else json.dumps(given)

    return _STRING_OR_PLACEHOLDER.sub(value, text)

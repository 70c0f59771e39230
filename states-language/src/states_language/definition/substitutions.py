"""Fills in the `${Name}` of a definition's text before it is read, as CloudFormation and Terraform do.

    fill_in('{"Resource": "${Charge}", "Seconds": ${Pause}}', {"Pause": 5})  # {"Resource": "${Charge}", "Seconds": 5}

So a number between quotation marks is a text, and a value with a quotation mark must be escaped as in JSON. A name
without a value stays as it is written: a placeholder.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from states_language.definition.fields import DefinitionError

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

"""Reads the roles of a compiled template, and decides what each allows.

A request is allowed by a statement that matches its action and resource, unless another denies it. In a pattern, `*`
stands for any characters, `?` for one. Source: IAM user guide, "Policy evaluation logic".
Invariant: anything that cannot be evaluated here (conditions, managed policies, NotAction) is a UserError that names
the role.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from local.template import Resources
from local.user_error import UserError

_ELEMENTS = {"Sid", "Effect", "Action", "Resource"}
# Where osls writes the role of a function, a machine or an integration.
_ROLE_PROPERTY = {"AWS::Lambda::Function": "Role", "AWS::StepFunctions::StateMachine": "RoleArn"}


@dataclass(frozen=True)
class Need:
    """A need of a request: an action, such as dynamodb:GetItem, on the resource with this ARN."""

    action: str
    resource: str


@dataclass(frozen=True)
class Statement:
    """What a role is allowed or denied."""

    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]

    def matches(self, need: Need) -> bool:
        """Whether it applies to this request."""
        # Case matters in ARNs, but not in actions.
        return any(_pattern(action, re.IGNORECASE).fullmatch(need.action) for action in self.actions) and any(
            _pattern(resource).fullmatch(need.resource) for resource in self.resources
        )


@dataclass(frozen=True)
class Role:
    """A role of the template; `name` is its logical id."""

    name: str
    statements: tuple[Statement, ...]

    def refusal(self, need: Need) -> str:
        """Returns why the request is refused, as the end of AWS's sentence, or ""."""
        effects = {statement.effect for statement in self.statements if statement.matches(need)}
        if "Deny" in effects:
            return "with an explicit deny in an identity-based policy"
        return "" if "Allow" in effects else f"because no identity-based policy allows the {need.action} action"


@dataclass(frozen=True)
class Roles:
    """The roles of functions and machines, by name, and that in which the API starts executions."""

    functions: Mapping[str, Role]
    machines: Mapping[str, Role]
    api: Role | None

    def all(self) -> list[Role]:
        """Returns each role once, ordered by name."""
        roles = {*self.functions.values(), *self.machines.values(), *([self.api] if self.api else [])}
        return sorted(roles, key=lambda role: role.name)


def read(template: Mapping[str, Any]) -> Roles:
    """Returns the roles of a compiled template; raises UserError if one cannot be evaluated here."""
    resources = Resources(template, {})
    by_arn = {
        resources.attribute(key, "Arn"): _read_role(resources, key) for key in resources.ids_of_type("AWS::IAM::Role")
    }

    def roles_of_type(kind: str) -> list[tuple[str, Role]]:
        return [
            (key, _role_of_arn(by_arn, key, resources.properties(key)[_ROLE_PROPERTY[kind]]))
            for key in resources.ids_of_type(kind)
        ]

    integrations = {
        key: resources.properties(key).get("Integration", {})
        for key in resources.ids_of_type("AWS::ApiGateway::Method")
    }
    api = {_role_of_arn(by_arn, key, one["Credentials"]) for key, one in integrations.items() if "Credentials" in one}
    if len(api) > 1:
        raise UserError("The routes of the API have several roles; the local service can evaluate only one.")
    return Roles(
        {resources.name(key): role for key, role in roles_of_type("AWS::Lambda::Function")},
        {resources.name(key): role for key, role in roles_of_type("AWS::StepFunctions::StateMachine")},
        next(iter(api), None),
    )


def _read_role(resources: Resources, key: str) -> Role:
    properties = resources.properties(key)
    if properties.get("ManagedPolicyArns") or properties.get("PermissionsBoundary"):
        raise UserError(f"The role {key} has a managed policy or a boundary, which the local service cannot evaluate.")
    # The condition names the only service to which a role may be passed, and nothing here passes one to another.
    passed = {"StringEquals": {"iam:PassedToService": "states.amazonaws.com"}}
    documents = [policy["PolicyDocument"]["Statement"] for policy in properties.get("Policies", [])]
    written = [statement for document in documents for statement in _as_tuple(document)]
    known = [one for one in written if one.get("Action") == "iam:PassRole" and one.get("Condition") == passed]
    if other := {name for one in written for name in one if name != "Condition" or one not in known} - _ELEMENTS:
        raise UserError(f"A policy of the role {key} has {min(other)}, which the local service cannot evaluate.")
    statements = (Statement(one["Effect"], _as_tuple(one["Action"]), _as_tuple(one["Resource"])) for one in written)
    return Role(key, tuple(statements))


def _role_of_arn(by_arn: Mapping[str, Role], key: str, arn: str) -> Role:
    if arn not in by_arn:
        raise UserError(
            f"{key} has the role {arn}, which is not in the template: the local service cannot evaluate it."
        )
    return by_arn[arn]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


@cache
def _pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    parts: Iterable[str] = ({"*": ".*", "?": "."}.get(part, re.escape(part)) for part in re.split(r"([*?])", text))
    return re.compile("".join(parts), flags | re.DOTALL)

"""Determines which actions on which resources a request to AWS needs, and which roles of a template allow them.

Sources: the service authorization reference, and DynamoDB's developer guide, "IAM security policies with PartiQL". An
operation does not always need the action of its name: a batch of inserts needs PartiQLInsert on their tables.
Invariant: an unknown request needs the action of its name on every resource, so that no role allows it by accident.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote

from local.template import ACCOUNT, REGION, Resources
from local.terminal import UserError

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
    """The roles of functions and machines, by name, and that in which the API starts executions.

    A request is allowed by a statement that matches its action and resource, unless another denies it. In a pattern,
    `*` stands for any characters, `?` for one. Source: IAM user guide, "Policy evaluation logic".
    Invariant: anything that cannot be evaluated here (conditions, managed policies, NotAction) is a UserError that
    names the role.
    """

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


Parameters = Mapping[str, Any]
_INSERT = re.compile(r"""\s*INSERT\s+INTO\s+"?([\w.-]+?)"?(?=[\s{]|$)""", re.IGNORECASE)
_OBJECT = {"GET": "GetObject", "HEAD": "GetObject", "PUT": "PutObject", "POST": "PutObject", "DELETE": "DeleteObject"}
# The needs of requests that send several things at once.
_SINGLE = {
    "SendMessageBatch": "SendMessage",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
    "DeleteMessageBatch": "DeleteMessage",
    "ListObjectsV2": "ListBucket",
    "ListObjectVersions": "ListBucketVersions",
}
_VERSIONED = re.compile(r"/2015-03-31/functions/([^/]+)/(versions|aliases)(?:/[^/]+)?")
_VERSION_ACTIONS = {
    ("POST", "versions"): "PublishVersion",
    ("GET", "aliases"): "GetAlias",
    ("PUT", "aliases"): "UpdateAlias",
}
_INVOKE = re.compile(r"/2015-03-31/functions/([^/]+)/(?:invocations|response-streaming-invocations)")


def needs_of_http_request(service: str, method: str, path: str, query: str, target: str, body: bytes) -> list[Need]:
    """Returns the needs of an HTTP request; `service` is that of its signature, `target` its x-amz-target."""
    if service == "s3":
        return _needs_of_s3(method, path, query)
    if service == "lambda" and (invoked := _INVOKE.fullmatch(path)):
        qualifier = dict(parse_qsl(query)).get("Qualifier", "")
        return needs_of_invocation(unquote(invoked[1]), qualifier)
    if service == "lambda" and (named := _VERSIONED.fullmatch(path)):
        operation = _VERSION_ACTIONS.get((method, named[2]), method)
        return [Need(f"lambda:{operation}", _arn("lambda", f"function:{unquote(named[1])}"))]
    if target:
        return needs_of_call(service, target.rpartition(".")[2], parse_object(body))
    form = dict(parse_qsl(body.decode("utf-8", "replace")))
    return needs_of_call(service, form.get("Action", method), form)


def needs_of_call(service: str, operation: str, parameters: Parameters) -> list[Need]:
    """Returns the needs of an operation, by its name in the service's API, with its parameters."""
    try:
        if service == "dynamodb":
            return list(dict.fromkeys(_needs_of_dynamodb(operation, parameters)))
        action = f"{service}:{_SINGLE.get(operation, operation)}"
        return [Need(action, resource) for resource in dict.fromkeys(_RESOURCES[service](parameters))]
    except (KeyError, TypeError, AttributeError):  # no such service here, or parameters that the service will refuse
        return [Need(f"{service}:{operation}", "*")]


def needs_of_invocation(function: str, qualifier: str) -> list[Need]:
    """Returns the needs of an invocation; `function` is a name or an ARN, `qualifier` "", a version or an alias."""
    arn = function if function.startswith("arn:") else _arn("lambda", f"function:{function}")
    return [Need("lambda:InvokeFunction", f"{arn}:{qualifier}" if qualifier else arn)]


def _needs_of_dynamodb(operation: str, parameters: Parameters) -> Iterable[Need]:
    if operation in ("BatchGetItem", "BatchWriteItem"):
        return (Need(f"dynamodb:{operation}", _table_arn(name)) for name in parameters.get("RequestItems", {}))
    if operation == "BatchExecuteStatement":
        inserts = (_INSERT.match(one["Statement"]) for one in parameters["Statements"])
        return [
            Need("dynamodb:PartiQLInsert", _table_arn(one[1])) if one else Need(f"dynamodb:{operation}", "*")
            for one in inserts
        ]
    place = _table_arn(parameters["TableName"]) if "TableName" in parameters else "*"
    index = f"/index/{parameters['IndexName']}" if parameters.get("IndexName") else ""
    return [Need(f"dynamodb:{operation}", place + index)]


def _needs_of_s3(method: str, path: str, query: str) -> list[Need]:
    bucket, _, key = unquote(path).lstrip("/").partition("/")
    asked = dict(parse_qsl(query, keep_blank_values=True))
    if key:
        version = "Version" if "versionId" in asked else ""
        return [Need(f"s3:{_OBJECT.get(method, method)}{version}", f"arn:aws:s3:::{bucket}/{key}")]
    action = ("ListBucketVersions" if "versions" in asked else "ListBucket") if method in ("GET", "HEAD") else method
    return [Need(f"s3:{action}", f"arn:aws:s3:::{bucket or '*'}")]


def _table_arn(name_or_arn: str) -> str:
    return name_or_arn if name_or_arn.startswith("arn:") else _arn("dynamodb", f"table/{name_or_arn}")


def _arn(service: str, resource: str) -> str:
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"


def parse_object(body: bytes) -> dict[str, Any]:
    """Returns the object in a request's body; an empty one if there is none."""
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _first_present(parameters: Parameters, *names: str) -> str:
    """The first of these parameters that is present; in a Task of a machine, names begin with a capital."""
    return str(next((found for name in names if (found := parameters.get(name))), "*"))


def _secret_arn(name: str) -> str:
    # An ARN has six characters that Secrets Manager adds to the name.
    return name if name.startswith("arn:") else _arn("secretsmanager", f"secret:{name}-000000")


_RESOURCES: dict[str, Callable[[Parameters], Iterable[str]]] = {
    "sqs": lambda given: [_arn("sqs", _first_present(given, "QueueUrl", "QueueName").rpartition("/")[2])],
    "states": lambda given: [
        _first_present(given, "executionArn", "ExecutionArn", "stateMachineArn", "StateMachineArn")
    ],
    "sns": lambda given: [_first_present(given, "TopicArn", "TargetArn")],
    # "/a/b" is parameter/a/b, and so is "a/b" in a name without a path.
    "ssm": lambda given: [
        _arn("ssm", f"parameter/{str(name).lstrip('/')}")
        for name in given.get("Names") or [_first_present(given, "Name", "Path")]
    ],
    "secretsmanager": lambda given: [_secret_arn(_first_present(given, "SecretId", "Name"))],
    "s3": lambda given: [f"arn:aws:s3:::{given['Bucket']}" + (f"/{given['Key']}" if "Key" in given else "")],
    "events": lambda given: [
        _arn("events", f"event-bus/{entry.get('EventBusName', 'default')}") for entry in given["Entries"]
    ],
    "kinesis": lambda given: [_arn("kinesis", f"stream/{given['StreamName']}")],
    "firehose": lambda given: [_arn("firehose", f"deliverystream/{given['DeliveryStreamName']}")],
}

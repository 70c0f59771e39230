"""Determines which actions on which resources a request to AWS needs. Pure.

Sources: the service authorization reference, and DynamoDB's developer guide, "IAM security policies with PartiQL". An
operation does not always need the action of its name: a batch of inserts needs PartiQLInsert on their tables.
Invariant: an unknown request needs the action of its name on every resource, so that no role allows it by accident.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from local.permissions.roles import Need
from local.template import ACCOUNT, REGION

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

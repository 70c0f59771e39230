"""Between the JSON of a Task and botocore: names, values and errors as AWS's SDK integrations have them.

Decides how a parameter, an answer's member and an error are called and spelled. It does not know what a Task is, and
asks nobody. Sources: AWS Step Functions Developer Guide, "Learning to use AWS service SDK integrations"; what was
recorded on AWS decides where the two differ.
"""

import datetime
import json
import re
from typing import Any

from botocore.exceptions import ClientError
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StructureShape
from botocore.response import StreamingBody
from botocore.utils import CLIENT_NAME_TO_HYPHENIZED_SERVICE_ID_OVERRIDES

_CLIENTS = {name.replace("-", ""): client for client, name in CLIENT_NAME_TO_HYPHENIZED_SERVICE_ID_OVERRIDES.items()}
# The optimised integrations have names of their own: of the error, of an error that the SDK has no class for, and of
# the service in the cause.
_OPTIMISED = {
    "dynamodb": ("DynamoDB", "AmazonDynamoDBException", "AmazonDynamoDBv2"),
    "events": ("EventBridge", "AmazonEventBridgeException", "AmazonEventBridge"),
    "lambda": ("Lambda", "AWSLambdaException", "AWSLambda"),
    "sns": ("SNS", "AmazonSNSException", "AmazonSNS"),
    "sqs": ("SQS", "AmazonSQSException", "AmazonSQS"),
    "states": ("StepFunctions", "AWSStepFunctionsException", "AWSStepFunctions"),
}
_UNKNOWN = re.compile(r'Unknown parameter in \S+ "([^"]+)", must be one of: .*')
_MISSING = re.compile(r'Missing required parameter in \S+ "([^"]+)"')
_WORD = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z][a-z]+\d*|[a-z]+\d*|\d+")


def client_name(service: str) -> str:
    """Returns what boto3 calls a service that a Resource names as AWS's SDK for Java does."""
    return str(_CLIENTS.get(service, service))


def prefix(service: str, *, sdk: bool, model: ServiceModel | None = None) -> str:
    """Returns how the error names of a service begin."""
    if not sdk and service in _OPTIMISED:
        return _OPTIMISED[service][0]
    # The SDK for Java capitalises each word of the service's id: DynamoDB is DynamoDb, Secrets Manager SecretsManager.
    text = str(model.service_id) if model is not None else pascal(service)
    return "".join(word.capitalize() for word in _WORD.findall(text))


def refused(service: str, *, sdk: bool, model: ServiceModel, refusal: ClientError) -> tuple[str, str]:
    """Returns the Error Name and the cause of a Task that the service refused."""
    error, metadata = refusal.response.get("Error", {}), refusal.response.get("ResponseMetadata", {})
    # An exception of the service's model has a class; what the model does not know is the service's general one.
    modelled = type(refusal).__name__ if type(refusal) is not ClientError else None
    name, status = prefix(service, sdk=sdk, model=model), metadata.get("HTTPStatusCode", 400)
    message, request_id = error.get("Message", ""), metadata.get("RequestId", "")
    if sdk:
        told = f"Service: {name}, Status Code: {status}, Request ID: {request_id}"
        if metadata.get("HostId"):
            told += f", Extended Request ID: {metadata['HostId']}"
        return f"{name}.{_exception(modelled or name)}", f"{message} ({told})"
    _, general, spelled = _OPTIMISED.get(service, (name, f"{name}Exception", name))
    told = f"Service: {spelled}; Status Code: {status}; Error Code: {error.get('Code', '')}; Request ID: {request_id}"
    return f"{name}.{_exception(modelled) if modelled else general}", f"{message} ({told}; Proxy: null)"


def unusable(given: Any, report: str) -> str:
    """Returns the cause of parameters that fit no request, as Step Functions words it; report: botocore's, by lines."""
    lines = report.removeprefix("Parameter validation failed:").strip().splitlines()
    told = [_UNKNOWN.sub(r'The field "\1" is not supported by Step Functions', line) for line in lines]
    told = [_MISSING.sub(r"The field '\1' is required but was missing", line) for line in told]
    return f"The Parameters '{compact(given)}' could not be used to start the Task: [{', '.join(told)}]"


def arguments(given: Any, shape: Shape | None) -> Any:
    """Returns parameters as botocore takes them: a machine writes Pascal case, some services' own names begin small."""
    if isinstance(shape, StructureShape) and isinstance(given, dict):
        members = {name.lower(): name for name in shape.members}
        spelled = {members.get(name.lower(), name): value for name, value in given.items()}
        return {name: arguments(value, shape.members.get(name)) for name, value in spelled.items()}
    if isinstance(shape, ListShape) and isinstance(given, list):
        return [arguments(item, shape.member) for item in given]
    if isinstance(shape, MapShape) and isinstance(given, dict):
        return {key: arguments(value, shape.value) for key, value in given.items()}
    if shape is not None and shape.type_name in ("string", "blob") and not isinstance(given, str):
        # A text may be given as JSON, such as the MessageBody of sqs:sendMessage or the Body of s3:putObject.
        return compact(given)
    return given


def result(found: Any, shape: Shape | None) -> Any:
    """Returns an answer as a state sees it: members in Pascal case, times as ISO texts, bytes as text."""
    if isinstance(shape, StructureShape) and isinstance(found, dict):
        members = shape.members
        return {pascal(name): result(value, members.get(name)) for name, value in found.items()}
    if isinstance(shape, ListShape) and isinstance(found, list):
        return [result(item, shape.member) for item in found]
    if isinstance(shape, MapShape) and isinstance(found, dict):
        return {key: result(value, shape.value) for key, value in found.items()}
    return plain(found)


def http_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Returns what an optimised integration adds to an answer, out of botocore's ResponseMetadata."""
    headers = {str(name): str(value) for name, value in metadata.get("HTTPHeaders", {}).items()}
    return {
        "SdkHttpMetadata": {
            "AllHttpHeaders": {name: [value] for name, value in headers.items()},
            "HttpHeaders": headers,
            "HttpStatusCode": metadata.get("HTTPStatusCode", 200),
        },
        "SdkResponseMetadata": {"RequestId": metadata.get("RequestId", "")},
    }


def plain(value: Any) -> Any:
    """Returns a value of botocore's as JSON has it."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, StreamingBody):
        value = value.read()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value


def pascal(name: str) -> str:
    """Returns a name with its first letter large."""
    return f"{name[:1].upper()}{name[1:]}"


def compact(value: Any) -> str:
    """Returns JSON text as AWS writes it, without spaces (the checksum of an object put was recorded)."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _exception(name: str) -> str:
    return name if name.endswith("Exception") else f"{name}Exception"

"""Translates between the JSON of a Task and botocore: names, values and errors as AWS's SDK integrations spell them.

Example: `listStateMachines` is called with `maxResults`, where the Task wrote `MaxResults`. Sources: AWS Step Functions
Developer Guide, "Learning to use AWS service SDK integrations"; a recording from AWS decides where the two differ.
"""

import datetime
import functools
import re
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, UnknownServiceError
from botocore.loaders import create_loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StringShape, StructureShape
from botocore.response import StreamingBody
from botocore.utils import CLIENT_NAME_TO_HYPHENIZED_SERVICE_ID_OVERRIDES

from states_language.server.requests import Refusal
from states_language.tasks.resources import TOKEN, Resource
from states_language.values import compact

_CLIENTS = {name.replace("-", ""): client for client, name in CLIENT_NAME_TO_HYPHENIZED_SERVICE_ID_OVERRIDES.items()}
_CLIENTS |= {"states": "stepfunctions", "elasticmapreduce": "emr"}  # named so by the optimised integrations
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
    """Returns boto3's name of a service; a Resource has the name of AWS's SDK for Java."""
    return str(_CLIENTS.get(service) or _services().get(service, service))


def is_service(client: str) -> bool:
    """Returns whether botocore has a client of this name."""
    return client in _services().values()


@functools.cache
def _services() -> dict[str, str]:
    return {name.replace("-", ""): name for name in create_loader().list_available_services("service-2")}


@functools.lru_cache(maxsize=64)
def service_model(service: str) -> ServiceModel:
    """Returns botocore's model of a service; raises UnknownServiceError."""
    return ServiceModel(create_loader().load_service_model(service, "service-2"), service)


@functools.lru_cache(maxsize=1024)
def is_action(service: str, action: str) -> bool:
    """Returns whether botocore knows the action of an SDK integration, whose first letter is small for AWS."""
    try:
        names = service_model(client_name(service)).operation_names
    except UnknownServiceError:
        return False
    return action[:1].islower() and action.lower() in {name.lower() for name in names}


def prefix(service: str, *, sdk: bool, model: ServiceModel | None = None) -> str:
    """Returns the beginning of a service's error names."""
    if not sdk and service in _OPTIMISED:
        return _OPTIMISED[service][0]
    # The SDK for Java capitalises each word of the service's id: DynamoDB is DynamoDb, Secrets Manager SecretsManager.
    text = str(model.service_id) if model is not None else pascal(service)
    return "".join(word.capitalize() for word in _WORD.findall(text))


def error_of_refusal(
    service: str, *, sdk: bool, refusal: ClientError | BotoCoreError, model: ServiceModel | None = None
) -> tuple[str, str]:
    """Returns the Error Name and the cause of a Task that the service refused, or that never reached the service."""
    if isinstance(refusal, BotoCoreError):
        return f"{prefix(service, sdk=sdk)}.SdkClientException", str(refusal)
    error, metadata = refusal.response.get("Error", {}), refusal.response.get("ResponseMetadata", {})
    # An exception in the service's model has a class of its own; any other has the service's general name.
    modelled = type(refusal).__name__ if type(refusal) is not ClientError else None
    name, status = prefix(service, sdk=sdk, model=model), metadata.get("HTTPStatusCode", 400)
    message, request_id = error.get("Message", ""), metadata.get("RequestId", "")
    if sdk:
        details = f"Service: {name}, Status Code: {status}, Request ID: {request_id}"
        if metadata.get("HostId"):
            details += f", Extended Request ID: {metadata['HostId']}"
        return f"{name}.{_exception_name(modelled or name)}", f"{message} ({details})"
    _, general, spelled = _OPTIMISED.get(service, (name, f"{name}Exception", name))
    details = (
        f"Service: {spelled}; Status Code: {status}; Error Code: {error.get('Code', '')}; Request ID: {request_id}"
    )
    return f"{name}.{_exception_name(modelled) if modelled else general}", f"{message} ({details}; Proxy: null)"


def cause_of_unusable(parameters: Any, report: str) -> str:
    """Returns Step Functions' cause for parameters that fit no request; `report` is botocore's, one problem a line."""
    lines = report.removeprefix("Parameter validation failed:").strip().splitlines()
    details = [_UNKNOWN.sub(r'The field "\1" is not supported by Step Functions', line) for line in lines]
    details = [_MISSING.sub(r"The field '\1' is required but was missing", line) for line in details]
    return f"The Parameters '{compact(parameters)}' could not be used to start the Task: [{', '.join(details)}]"


def to_arguments(parameters: Any, shape: Shape | None) -> Any:
    """Returns parameters as botocore expects them: a Task writes Pascal case, some services do not."""
    if isinstance(shape, StructureShape) and isinstance(parameters, dict):
        members = {name.lower(): name for name in shape.members}
        spelled = {members.get(name.lower(), name): value for name, value in parameters.items()}
        return {name: to_arguments(value, shape.members.get(name)) for name, value in spelled.items()}
    if isinstance(shape, ListShape) and isinstance(parameters, list):
        return [to_arguments(item, shape.member) for item in parameters]
    if isinstance(shape, MapShape) and isinstance(parameters, dict):
        return {key: to_arguments(value, shape.value) for key, value in parameters.items()}
    if shape is not None and shape.type_name in ("string", "blob") and not isinstance(parameters, str):
        # A Task may write a text as JSON, such as the MessageBody of sqs:sendMessage or the Body of s3:putObject.
        return compact(parameters)
    return parameters


def result(answer: Any, shape: Shape | None) -> Any:
    """Returns an answer as a state sees it: members in Pascal case, times as ISO texts, bytes as text."""
    if isinstance(shape, StructureShape) and isinstance(answer, dict):
        members = shape.members
        return {pascal(name): result(value, members.get(name)) for name, value in answer.items()}
    if isinstance(shape, ListShape) and isinstance(answer, list):
        return [result(item, shape.member) for item in answer]
    if isinstance(shape, MapShape) and isinstance(answer, dict):
        return {key: result(value, shape.value) for key, value in answer.items()}
    # The API itself answers with epoch seconds, which botocore would have read.
    if shape is not None and shape.type_name == "timestamp" and isinstance(answer, int | float):
        answer = datetime.datetime.fromtimestamp(answer, datetime.UTC)
    return plain(answer)


def plain(value: Any) -> Any:
    """Returns a value of botocore's as JSON."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, StreamingBody):
        value = value.read()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value


def pascal(name: str) -> str:
    """Returns a name with its first character in upper case."""
    return f"{name[:1].upper()}{name[1:]}"


def _exception_name(name: str) -> str:
    return name if name.endswith("Exception") else f"{name}Exception"


STRICT, NONE = "STRICT", "NONE"
_KINDS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("string", "timestamp", "blob"), (str, "a string")),
    **dict.fromkeys(("integer", "long"), (int, "a number")),
    **dict.fromkeys(("float", "double"), ((int, float), "a number")),
    "boolean": (bool, "a boolean"),
    "list": (list, "an array"),
    "map": (dict, "an object"),
    "structure": (dict, "an object"),
}
_VERB = re.compile("^[A-Z][a-z]+")


def check_mocked_result(resource: Resource, result: Any, mode: str) -> None:
    """Raises Refusal for a result that the resource's API cannot give.

    STRICT requires the fields that the model requires; PRESENT checks only the fields that are there. Both accept
    fields that the model does not know. The mock of a job (.sync) is checked against the action that Step Functions
    polls: that of startExecution.sync:2 against DescribeExecution, whose Output is a text (Developer Guide, "Testing
    Activity, .sync, and .waitForTaskToken states"; boto3's issue 4683). Not checked, for no model says what comes back:
    results of functions, of activities, of whoever sends a token back, and of http:invoke, apigateway:invoke, eks:call
    and eks:runJob.
    """
    if mode == NONE or resource.function is not None or resource.pattern == TOKEN or resource.is_activity:
        return
    try:
        model = service_model(client_name(resource.service))
    except UnknownServiceError:
        return
    known = [name for name in _result_operations(resource) if name in model.operation_names]
    if not known:
        return
    shape = model.operation_model(known[0]).output_shape
    if not isinstance(result, dict):
        raise Refusal("ValidationException", "Mocked result must be a valid JSON object.")
    if shape is not None:
        _check_value(result, shape, "", mode == STRICT, resource.is_lambda_invoke)


def _result_operations(resource: Resource) -> list[str]:
    """Return the names that the operation may have whose answer is the result: of a job, those that describe it."""
    name = pascal(resource.action)
    if not resource.pattern:
        return [name]
    job = _VERB.sub("", name)  # StartJobRun starts a JobRun, which GetJobRun describes; SubmitJob has DescribeJobs
    return [f"Describe{job}", f"Get{job}", f"Describe{job}s", f"BatchGet{job}s", f"BatchGet{job}es"]


def _check_value(value: Any, shape: Shape, name: str, strict: bool, invokes: bool = False) -> None:
    """Raise Refusal for a wrong value. invokes: whether it is lambda:invoke's, whose Payload is any JSON value."""
    if shape.type_name not in _KINDS or getattr(shape, "is_document_type", False) or (invokes and name == "Payload"):
        return
    kind, words = _KINDS[shape.type_name]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _refusal(f"Field '{name}' must be {words}")
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if words == "a number" and least is not None and value < least:
        raise _refusal(f"Field '{name}' is less than the minimum value")
    if words == "a number" and most is not None and value > most:
        raise _refusal(f"Field '{name}' exceeds the maximum value")
    if shape.type_name == "blob" and least is not None and len(value) < least:
        raise _refusal(f"Field '{name}' is smaller than the minimum length")
    if isinstance(shape, StructureShape):
        members = {pascal(member): inner for member, inner in shape.members.items()}
        for required in map(pascal, shape.required_members) if strict else ():
            if required not in value:
                raise _refusal(f"Required field '{required}' is missing")
        for field, member in value.items():
            if field in members:
                _check_value(member, members[field], field, strict, invokes)
    elif isinstance(shape, ListShape):
        for element in value:
            _check_value(element, shape.member, name, strict)
    elif isinstance(shape, MapShape):
        for element in value.values():
            _check_value(element, shape.value, name, strict)
    elif isinstance(shape, StringShape) and shape.enum and value not in shape.enum:
        raise _refusal(f"Field '{name}' is not an expected value")


def _refusal(reason: str) -> Refusal:
    return Refusal("ValidationException", f"Mock result schema validation error: {reason}")

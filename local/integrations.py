"""What a Task state does on this machine: Lambda functions in sandboxes, every other AWS service through botocore.

Decides the error names of service integrations, which machines catch by name. It does not know which machine asks.
Invariant: whatever goes wrong comes back as a TaskFailure with AWS's name for it.
"""

import asyncio
import datetime
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError, UnknownServiceError
from botocore.model import ListShape, MapShape, OperationModel, Shape, StructureShape

from local.asl import TaskCall, TaskFailure
from local.aws import Endpoints
from local.executions import Known, Refusal
from local.pool import Pool, UnknownFunction

# How an error name begins: the optimised integrations have names of their own, the others are those of the Java SDK 2.
# Source: AWS Step Functions developer guide, "Learning to use AWS service SDK integrations".
_OPTIMISED = {"dynamodb": "DynamoDB", "sqs": "SQS", "sns": "SNS", "states": "StepFunctions"}
_SDK = {"dynamodb": "DynamoDb", "sfn": "Sfn", "secretsmanager": "SecretsManager", "eventbridge": "EventBridge"}
_BOTO_NAMES = {"sfn": "stepfunctions", "cloudwatchlogs": "logs", "eventbridge": "events"}


class Machines(Protocol):
    """What is asked of the executions of this machine; `local.executions.Executions` answers."""

    def describe(self, arn: str) -> dict[str, Any]:
        """Returns DescribeExecution's answer; KeyError where there is none of this ARN."""

    def start(self, machine_arn: str, text: str, name: str | None) -> Known:
        """Returns the execution that StartExecution began; raises Refusal."""


class Integrations:
    """Carries out Task states; `executions` answers for Step Functions itself, which runs in this process."""

    def __init__(self, functions: Pool, endpoints: Endpoints, executions: Machines) -> None:
        self._functions = functions
        self._endpoints = endpoints
        self._executions = executions
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="integration")

    async def perform(self, call: TaskCall) -> Any:
        """Returns the result of one Task, as its service gives it; raises TaskFailure."""
        if call.function is not None:
            return await self._invoke(call.function, call.payload)
        if (call.service, call.action) == ("sfn", "describeExecution"):
            return self._describe(call.parameters)
        if (call.service, call.action) in (("states", "startExecution"), ("sfn", "startExecution")):
            return self._start(call)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._request, call)

    def close(self) -> None:
        """Gives the threads back; requests under way are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _invoke(self, function: str, payload: Any) -> Any:
        try:
            answer = await self._functions.invoke(function, json.dumps(payload).encode())
        except UnknownFunction:
            raise TaskFailure("Lambda.ResourceNotFoundException", f"Function not found: {function}") from None
        text = answer.payload.decode()
        if answer.function_error is None:
            return json.loads(text) if text else None
        try:
            error = json.loads(text).get("errorType") or "Lambda.Unknown"
        except (ValueError, AttributeError):
            error = "Lambda.Unknown"
        raise TaskFailure(error, text)

    def _describe(self, parameters: Any) -> Any:
        arn = (parameters or {}).get("ExecutionArn", "")
        try:
            described = self._executions.describe(arn)
        except KeyError:
            raise TaskFailure("Sfn.ExecutionDoesNotExistException", f"Execution Does Not Exist: '{arn}'") from None
        return {_pascal(name): _date(name, value) for name, value in described.items()}

    def _start(self, call: TaskCall) -> Any:
        given = call.parameters or {}
        text = given.get("Input", {})
        try:
            # The Input of the optimised integration may be JSON; the API's own is text.
            text = text if isinstance(text, str) else json.dumps(text)
            known = self._executions.start(given.get("StateMachineArn", ""), text, given.get("Name"))
        except Refusal as refusal:
            raise TaskFailure(f"{_prefix(call)}.{_error_name(refusal.code)}", str(refusal)) from None
        return {"ExecutionArn": known.opening.arn, "StartDate": _date("StartDate", known.opening.started_ms / 1000)}

    def _request(self, call: TaskCall) -> Any:
        prefix = _prefix(call)
        try:
            client = self._endpoints.client(_BOTO_NAMES.get(call.service, call.service))
            operation: OperationModel = client.meta.service_model.operation_model(_pascal(call.action))
            method = getattr(client, _method(client, operation.name))
            answer = method(**_arguments(call.parameters or {}, operation.input_shape))
        except ClientError as refusal:
            error = refusal.response.get("Error", {})
            # The modelled exception's name is the one that AWS's SDKs share; a code may be older than the model.
            modelled = type(refusal).__name__ if type(refusal) is not ClientError else error.get("Code", "")
            raise TaskFailure(f"{prefix}.{_error_name(modelled)}", error.get("Message", "")) from None
        except ParamValidationError as refusal:
            raise TaskFailure("States.Runtime", str(refusal)) from None
        except UnknownServiceError:
            raise TaskFailure("States.Runtime", f"There is no AWS service {call.service!r}.") from None
        except BotoCoreError as refusal:
            raise TaskFailure(f"{prefix}.SdkClientException", str(refusal)) from None
        metadata = answer.pop("ResponseMetadata", {})
        found = _result(answer, operation.output_shape)
        http = {"SdkHttpMetadata": {"HttpStatusCode": metadata.get("HTTPStatusCode", 200)}}
        return found if call.sdk else found | http


def _date(name: str, value: Any) -> Any:
    return _plain(datetime.datetime.fromtimestamp(value, datetime.UTC)) if name.endswith("Date") else value


def _prefix(call: TaskCall) -> str:
    names = _SDK if call.sdk else _OPTIMISED
    return names.get(call.service, f"{call.service[:1].upper()}{call.service[1:]}")


def _method(client: Any, operation: str) -> str:
    methods: dict[str, str] = client.meta.method_to_api_mapping
    return next(method for method, name in methods.items() if name == operation)


def _error_name(code: str) -> str:
    name = code.rpartition(".")[2] or "Unknown"
    return name if name.endswith("Exception") else f"{name}Exception"


def _arguments(given: Any, shape: Shape | None) -> Any:
    """Spells members as the SDK does: a machine writes them in Pascal case, some services' own names begin small."""
    if isinstance(shape, StructureShape) and isinstance(given, dict):
        members = {name.lower(): name for name in shape.members}
        spelled = {members.get(name.lower(), name): value for name, value in given.items()}
        return {name: _arguments(value, shape.members.get(name)) for name, value in spelled.items()}
    if isinstance(shape, ListShape) and isinstance(given, list):
        return [_arguments(item, shape.member) for item in given]
    if isinstance(shape, MapShape) and isinstance(given, dict):
        return {key: _arguments(value, shape.value) for key, value in given.items()}
    if shape is not None and shape.type_name == "string" and not isinstance(given, str):
        # A text parameter may be given as JSON, such as the MessageBody of sqs:sendMessage.
        return json.dumps(given)
    return given


def _result(found: Any, shape: Shape | None) -> Any:
    if isinstance(shape, StructureShape) and isinstance(found, dict):
        members = shape.members
        return {_pascal(name): _result(value, members.get(name)) for name, value in found.items()}
    if isinstance(shape, ListShape) and isinstance(found, list):
        return [_result(item, shape.member) for item in found]
    if isinstance(shape, MapShape) and isinstance(found, dict):
        return {key: _result(value, shape.value) for key, value in found.items()}
    return _plain(found)


def _pascal(name: str) -> str:
    return f"{name[:1].upper()}{name[1:]}"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value

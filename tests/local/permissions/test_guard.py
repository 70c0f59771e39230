"""boto3 and state machines get AccessDenied as from AWS."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import ClientError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from local.listener import Listener, bind
from local.permissions import guard
from local.stack import read_stack
from local.terminal import UserError
from states_language import TaskCall, TaskFailure
from states_language.server import Refusal
from tests.local.permissions.test_needs import allow, template
from tests.local.support import in_thread

USER = "User: arn:aws:sts::000000000000:assumed-role/R/f is not authorized to perform: "
NOT = " because no identity-based policy allows the "
AT, CODE = "us-east-1:000000000000", "AccessDeniedException"
TOPIC, QUEUE = f"arn:aws:sns:{AT}:t", "http://127.0.0.1/000000000000/q"
STATEMENTS = [allow("s3:GetObject", "arn:aws:s3:::b/*"), allow("dynamodb:GetItem", "*")]


def stack_template() -> dict[str, Any]:
    """A function, a machine and a route that use one role."""
    made = template(*STATEMENTS)
    role = {"Fn::GetAtt": ["R", "Arn"]}
    machine = {"StateMachineName": "f", "DefinitionString": "{}", "RoleArn": role}
    made["Resources"]["M"] = {"Type": "AWS::StepFunctions::StateMachine", "Properties": machine}
    route = {"HttpMethod": "POST", "ResourceId": {}, "Integration": {"Credentials": role}}
    made["Resources"]["P"] = {"Type": "AWS::ApiGateway::Method", "Properties": route}
    return made


class Endpoint:
    """A guarded endpoint that answers every request, S3's with 404; `passed` has the bodies that it got."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[str] = []
        self.passed: list[bytes] = []
        self.guard = guard.PermissionGuard(stack_template(), folder / guard.RECORD, self.lines.append)
        (self.function,) = self.guard.with_access_keys(read_stack(stack_template(), {}).functions)
        self.port = 0

    async def answer(self, request: Request) -> Response:
        self.passed.append(await request.body())
        return Response("{}", 404 if request.method == "GET" else 200, media_type="application/x-amz-json-1.0")

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator["Endpoint"]:
        app = Starlette(routes=[Route("/{path:path}", self.answer, methods=["GET", "POST", "PUT"])])
        listener = Listener(self.guard.guard_endpoint(app), bind(0, "a test"))
        await listener.start()
        self.port = listener.port
        yield self
        await listener.close()

    def client(self, service: str, key: str) -> Any:
        return boto3.client(
            service, endpoint_url=f"http://127.0.0.1:{self.port}", region_name="us-east-1", aws_access_key_id=key,
            aws_secret_access_key="-", config=Config(retries={"total_max_attempts": 1}),
        )  # fmt: skip


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    made = Endpoint(tmp_path_factory.mktemp("guard"))
    with in_thread(made.serving) as served:
        yield served


def denial_of(call: Callable[[], Any]) -> tuple[str, str, int]:
    """Returns code, message and status of a refused request."""
    with pytest.raises(ClientError) as refusal:
        call()
    answer = refusal.value.response
    return answer["Error"]["Code"], answer["Error"]["Message"], answer["ResponseMetadata"]["HTTPStatusCode"]


@pytest.mark.parametrize(
    ("service", "operation", "parameters", "code", "status", "resource"),
    [
        ("dynamodb", "Scan", {"TableName": "t"}, CODE, 400, f"arn:aws:dynamodb:{AT}:table/t"),
        ("s3", "PutObject", {"Bucket": "b", "Key": "k"}, "AccessDenied", 403, "arn:aws:s3:::b/k"),
        ("sns", "Publish", {"TopicArn": TOPIC, "Message": "m"}, "AuthorizationError", 403, TOPIC),
        ("lambda", "Invoke", {"FunctionName": "f"}, CODE, 403, f"arn:aws:lambda:{AT}:function:f"),
        ("ssm", "GetParameter", {"Name": "/p"}, CODE, 400, f"arn:aws:ssm:{AT}:parameter/p"),
        ("sqs", "SendMessage", {"QueueUrl": QUEUE, "MessageBody": "m"}, "AccessDenied", 400, f"arn:aws:sqs:{AT}:q"),
    ],
)
def test_a_refused_request_gets_awss_answer_and_reaches_no_service(
    endpoint: Endpoint, service: str, operation: str, parameters: Any, code: str, status: int, resource: str
) -> None:
    """A refusal has the code and status of the service's protocol, and AWS's sentence, which the run also prints."""
    passed = len(endpoint.passed)
    client = endpoint.client(service, endpoint.function.environment["AWS_ACCESS_KEY_ID"])
    action = f"{service}:{operation}{'Function' if service == 'lambda' else ''}"
    sentence = f"{USER}{action} on resource: {resource}{NOT}{action} action"
    assert denial_of(lambda: getattr(client, xform_name(operation))(**parameters)) == (code, sentence, status)
    assert len(endpoint.passed) == passed
    assert f"ALERT: refused: {sentence}" in endpoint.lines


def test_an_allowed_request_passes_unchanged_and_a_person_may_do_all(endpoint: Endpoint) -> None:
    """The service gets the body as it was sent; the key of a person is not checked."""
    own, mine = endpoint.function.environment["AWS_ACCESS_KEY_ID"], "local"
    key = {"PK": {"S": "x" * 100_000}}
    endpoint.client("dynamodb", own).get_item(TableName="t", Key=key)
    assert json.loads(endpoint.passed[-1]) == {"TableName": "t", "Key": key}
    lines = list(endpoint.lines)
    endpoint.client("dynamodb", mine).scan(TableName="t")
    assert (json.loads(endpoint.passed[-1]), endpoint.lines) == ({"TableName": "t"}, lines)


def test_a_missing_object_is_hidden_without_the_right_to_list(endpoint: Endpoint) -> None:
    """Without s3:ListBucket, S3 answers AccessDenied; that is not reported as a missing permission."""
    client = endpoint.client("s3", endpoint.function.environment["AWS_ACCESS_KEY_ID"])
    sentence = f"{USER}s3:ListBucket on resource: arn:aws:s3:::b{NOT}s3:ListBucket action"
    lines = list(endpoint.lines)
    assert denial_of(lambda: client.get_object(Bucket="b", Key="k")) == ("AccessDenied", sentence, 403)
    assert endpoint.lines == lines


def task_call(resource: str, parameters: Any, machine: str = "f") -> TaskCall:
    service, action = resource.split(":")[-2:]
    arn, function = f"arn:aws:states:{AT}:execution:{machine}:x", parameters.get("FunctionName")
    whole, is_sdk = f"arn:aws:states:::{resource}", resource.startswith("aws-sdk:")
    return TaskCall(whole, service, action, is_sdk, function, parameters, None, arn, "Do", 0, None)


@pytest.mark.parametrize(
    ("task", "error"),
    [
        (task_call("dynamodb:updateItem", {"TableName": "t"}), "DynamoDB.AmazonDynamoDBException"),
        (task_call("lambda:invoke", {"FunctionName": "g"}), "Lambda.AWSLambdaException"),
        (task_call("states:startExecution", {"StateMachineArn": "m"}), "StepFunctions.AWSStepFunctionsException"),
        (task_call("aws-sdk:sfn:describeExecution", {"ExecutionArn": "e"}), "Sfn.SfnException"),
    ],
)
def test_a_refused_task_fails_with_its_services_general_error(endpoint: Endpoint, task: TaskCall, error: str) -> None:
    """If the machine's role does not allow a Task, the cause has AWS's sentence and code."""

    async def never(_: TaskCall) -> Any:
        raise AssertionError("it was performed")

    perform = endpoint.guard.guard_tasks(never, lambda service: endpoint.client(service, "local"))
    with pytest.raises(TaskFailure) as failure:
        asyncio.run(perform(task))  # type: ignore[arg-type]
    assert failure.value.error == error
    assert str(failure.value.cause).startswith(USER)
    assert error.startswith("Sfn") or "Error Code: AccessDeniedException" in str(failure.value.cause)


def test_a_task_that_is_allowed_or_of_a_persons_machine_is_performed(endpoint: Endpoint) -> None:
    """A machine that a person created at the endpoint is not in the template, and has no role."""

    async def done(_: TaskCall) -> Any:
        return "done"

    perform = endpoint.guard.guard_tasks(done, lambda service: endpoint.client(service, "local"))
    get = task_call("dynamodb:getItem", {"TableName": "t"})
    other = task_call("dynamodb:deleteTable", {"TableName": "t"}, "mine")
    assert [asyncio.run(perform(task)) for task in (get, other)] == ["done", "done"]  # type: ignore[arg-type]


def test_the_api_is_refused_by_step_functions(endpoint: Endpoint) -> None:
    """A start through the API is refused if the role of the route does not allow it."""

    async def never(_action: str, _parameters: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("it was called")

    call = endpoint.guard.guard_api_calls(never)
    with pytest.raises(Refusal) as refusal:
        asyncio.run(call("StartSyncExecution", {"stateMachineArn": "m"}))  # type: ignore[arg-type]
    assert refusal.value.code == "AccessDeniedException"
    assert "perform: states:StartSyncExecution on resource: m because" in str(refusal.value)


@pytest.mark.parametrize(
    ("value", "more", "sentence"),
    [
        ("on", {}, " must be enforce, or not set, not 'on'."),
        (
            "enforce",
            {"AWS_ENDPOINT_URL_SQS": "http://127.0.0.1:1"},
            " needs the embedded services: unset AWS_ENDPOINT_URL_SQS, whose service has its own roles.",
        ),
    ],
)
def test_a_setting_that_cannot_be_obeyed_is_refused(
    value: str, more: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    """Refused are a word other than enforce, and enforce with endpoints of the user's own."""
    with pytest.raises(UserError) as refusal:
        guard.make_guard({guard.SETTING: value} | more, stack_template(), tmp_path, print)
    assert str(refusal.value) == f"{guard.SETTING}{sentence}"
    # Without the setting the edges are what they are.
    assert not guard.make_guard(more, {}, tmp_path, print).is_enforcing

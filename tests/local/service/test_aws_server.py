"""The AWS endpoint as boto3 sees it: the service has Step Functions and Lambda itself, and forwards the rest."""

import asyncio
import contextlib
import io
import json
import re
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from endpoint import PREFIX, refusal
from local.functions.created_functions import BadPackage, CreatedFunction, CreatedFunctions
from local.stack import Function
from tests.local.service.embedded import QUEUE, TABLE, embedded_aws_in
from tests.local.service.endpoint import Running, endpoint_of, machine_by_arn
from tests.local.support import client, in_thread, until

MODULE = """
class StreamDropped(Exception):
    pass

def echo(event, lambda_context):
    if "fail" in event:
        raise StreamDropped("cut")
    return {"event": event}

def large(event, lambda_context):
    return "x" * event["size"]
"""
UPDATE = {
    "TableName": "events",
    "Key": {"PK": {"S": "one"}},
    "UpdateExpression": "SET claimed = :yes",
    "ConditionExpression": "attribute_not_exists(claimed)",
    "ExpressionAttributeValues": {":yes": {"BOOL": True}},
}


def task(resource: str, parameters: dict[str, Any]) -> dict[str, Any]:
    state = {"Type": "Task", "Resource": resource, "Parameters": parameters, "End": True}
    return {"StartAt": "Do", "States": {"Do": state}}


MACHINES: dict[str, dict[str, Any]] = {
    "calls": task("arn:aws:states:::lambda:invoke", {"FunctionName": "echo", "Payload.$": "$"}),
    "full": task("arn:aws:states:::lambda:invoke", {"FunctionName": "full"}),
    "misses": task("arn:aws:states:::lambda:invoke", {"FunctionName": "missing"}),
    "claims": task("arn:aws:states:::dynamodb:updateItem", UPDATE),
    "claims-sdk": task("arn:aws:states:::aws-sdk:dynamodb:updateItem", UPDATE),
    "reads": task("arn:aws:states:::dynamodb:getItem", {"TableName": "events", "Key": {"PK": {"S": "one"}}}),
    "sends": task("arn:aws:states:::sqs:sendMessage", {"QueueUrl.$": "$.url", "MessageBody": {"n": 1}}),
}


@contextlib.asynccontextmanager
async def service(folder: Path) -> AsyncIterator[Running]:
    """The endpoint with one function, a machine for each case, and an embedded AWS behind it."""
    machines = {arn: machine for name, each in MACHINES.items() for arn, machine in machine_by_arn(name, each).items()}
    async with (
        embedded_aws_in(folder, []) as aws,
        endpoint_of(folder, MODULE, ("echo", "large"), machines, aws.url) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One endpoint for the whole module; tests use their own names."""
    folder = tmp_path_factory.mktemp("server")
    with in_thread(lambda: service(folder)) as running:
        dynamodb = client("dynamodb", running.url)
        dynamodb.create_table(**{name: value for name, value in TABLE.items() if not name.endswith("Specification")})
        yield running


@pytest.fixture
def states(endpoint: Running) -> Any:
    """A boto3 client of Step Functions."""
    return client("stepfunctions", endpoint.url)


def code(call: Callable[..., Any], **parameters: Any) -> str:
    """Returns the error code with which AWS's SDK refuses the call."""
    with pytest.raises(ClientError) as refusal:
        call(**parameters)
    return str(refusal.value.response["Error"]["Code"])


def wait_for_end(states: Any, machine: str, data: Any = None) -> dict[str, Any]:
    """Returns the description of an execution once it has ended."""
    arn = states.start_execution(stateMachineArn=PREFIX + machine, input=json.dumps(data or {}))["executionArn"]
    description: dict[str, Any] = {}

    def look() -> bool:
        description.update(states.describe_execution(executionArn=arn))
        return bool(description["status"] != "RUNNING")

    assert until(look)
    return description


def test_tasks_call_functions(states: Any) -> None:
    """lambda:invoke wraps the answer; an exception becomes the error; a missing function has AWS's name."""
    assert json.loads(wait_for_end(states, "calls", {"n": 1})["output"])["Payload"] == {"event": {"n": 1}}
    failed = wait_for_end(states, "calls", {"fail": True})
    assert (failed["status"], failed["error"]) == ("FAILED", "StreamDropped")
    assert json.loads(failed["cause"])["errorMessage"] == "cut"
    assert wait_for_end(states, "misses")["error"] == "Lambda.ResourceNotFoundException"


def test_tasks_call_other_services(endpoint: Running, states: Any) -> None:
    """Direct integrations reach the embedded AWS, and errors have AWS's names.

    A queue is found under AWS's URL, with region, account and name; no other host is contacted.
    """
    assert wait_for_end(states, "claims")["status"] == "SUCCEEDED"
    assert wait_for_end(states, "claims")["error"] == "DynamoDB.ConditionalCheckFailedException"
    assert wait_for_end(states, "claims-sdk")["error"] == "DynamoDb.ConditionalCheckFailedException"
    assert json.loads(wait_for_end(states, "reads")["output"])["Item"]["claimed"] == {"BOOL": True}
    sqs = client("sqs", endpoint.url)
    url = sqs.create_queue(QueueName=QUEUE["QueueName"])["QueueUrl"]
    for address in (url, f"https://sqs.us-east-1.amazonaws.com/000000000000/{QUEUE['QueueName']}"):
        assert "MessageId" in json.loads(wait_for_end(states, "sends", {"url": address})["output"])
        (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=2)["Messages"]
        assert json.loads(message["Body"]) == {"n": 1}
    assert wait_for_end(states, "sends", {"url": f"{url}-absent"})["error"] == "SQS.QueueDoesNotExistException"


def test_lambda_invoke_answers_as_aws_does(endpoint: Running) -> None:
    """Invoke returns the payload; a function that raises has FunctionError; bad requests are refused."""
    functions = client("lambda", endpoint.url)
    answer = functions.invoke(FunctionName="echo", Payload=b'{"n": 1}')
    assert (answer["StatusCode"], answer["ExecutedVersion"]) == (200, "$LATEST")
    assert json.loads(answer["Payload"].read()) == {"event": {"n": 1}}
    partial, whole = "000000000000:function:echo", "arn:aws:lambda:us-east-1:000000000000:function:echo:$LATEST"
    tailed = functions.invoke(FunctionName=partial, Payload=b'{"n": 2}', LogType="Tail")
    assert (json.loads(tailed["Payload"].read()), "LogResult" in tailed) == ({"event": {"n": 2}}, False)
    failed = functions.invoke(FunctionName=whole, Payload=b'["fail"]')
    assert failed["FunctionError"] == "Unhandled"
    assert json.loads(failed["Payload"].read())["errorType"] == "StreamDropped"
    assert functions.invoke(FunctionName="echo", InvocationType="Event")["StatusCode"] == 202
    assert functions.invoke(FunctionName="echo", InvocationType="DryRun")["StatusCode"] == 204
    assert code(functions.invoke, FunctionName="missing") == "ResourceNotFoundException"
    for payload in (b"{", b"NaN"):
        assert code(functions.invoke, FunctionName="echo", Payload=payload) == "InvalidRequestContentException"


ADDS = """
import os, parts
def handler(event, context):
    return event["n"] + parts.ONE + int(os.environ["MORE"])
"""


def zip_of(**files: str) -> bytes:
    """Returns a zip with these modules."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"{name}.py", text)
    return packed.getvalue()


def create_arguments(name: str, code: bytes, **more: Any) -> dict[str, Any]:
    role = "arn:aws:iam::000000000000:role/any"
    return {
        "FunctionName": name, "Runtime": "python3.13", "Handler": "index.handler", "Role": role,
        "Code": {"ZipFile": code}, **more,
    }  # fmt: skip


def test_a_function_is_created_from_a_zip_and_runs(endpoint: Running, states: Any) -> None:
    """A created function has its own modules and variables. New code is used from the next call on, and a Task can call
    the function too.
    """
    functions = client("lambda", endpoint.url)
    more = {"Environment": {"Variables": {"MORE": "10"}}, "Timeout": 9}
    made = functions.create_function(**create_arguments("adds", zip_of(index=ADDS, parts="ONE = 1"), **more))
    assert (made["FunctionArn"].rpartition(":")[2], made["State"], made["Timeout"]) == ("adds", "Active", 9)

    def added(name: str = "adds") -> Any:
        return json.loads(functions.invoke(FunctionName=name, Payload=b'{"n": 5}')["Payload"].read())

    assert added() == 16
    functions.update_function_code(FunctionName="adds", ZipFile=zip_of(index=ADDS, parts="ONE = 2"))
    assert (added(), added(made["FunctionArn"])) == (17, 17)
    assert functions.get_function(FunctionName="adds")["Configuration"]["Handler"] == "index.handler"
    assert {one["FunctionName"] for one in functions.list_functions()["Functions"]} == {"adds", "echo", "full", "large"}
    assert (
        code(functions.create_function, **create_arguments("adds", zip_of(index=ADDS))) == "ResourceConflictException"
    )
    machine = json.dumps(task("arn:aws:states:::lambda:invoke", {"FunctionName": "adds", "Payload.$": "$"}))
    arn = states.create_state_machine(name="adds", definition=machine, roleArn="arn:aws:iam::000000000000:role/any")
    run = states.start_execution(stateMachineArn=arn["stateMachineArn"], input='{"n": 1}')["executionArn"]
    assert until(lambda: states.describe_execution(executionArn=run)["status"] == "SUCCEEDED")
    assert json.loads(states.describe_execution(executionArn=run)["output"])["Payload"] == 13
    functions.delete_function(FunctionName="adds")
    assert code(functions.invoke, FunctionName="adds") == "ResourceNotFoundException"
    assert code(functions.get_function, FunctionName="adds") == "ResourceNotFoundException"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"Runtime": "nodejs22.x"}, "Runtime must be one of Python's here, such as python3.13, not 'nodejs22.x'."),
        ({"Code": {"S3Bucket": "code", "S3Key": "zip"}}, "Code must be given as ZipFile"),
        ({"Code": {"ZipFile": b"PK"}}, "Could not unzip uploaded file"),
        ({"Layers": ["arn:aws:lambda:us-east-1:000000000000:layer:one:1"]}, "Layers is not supported here"),
        ({"Handler": "handler"}, "Handler must match"),
        ({"Timeout": 901}, "Timeout must be a whole number from 1 to 900, not 901."),
    ],
)
def test_a_function_that_cannot_run_locally_is_not_created(
    endpoint: Running, change: dict[str, Any], words: str
) -> None:
    """A function that cannot run here is refused with a sentence that says why, and is not created."""
    functions = client("lambda", endpoint.url)
    with pytest.raises(ClientError, match=re.escape(words)) as refusal:
        functions.create_function(**create_arguments("mine", zip_of(index=ADDS)) | change)
    assert refusal.value.response["Error"]["Code"] == "InvalidParameterValueException"
    assert code(functions.get_function, FunctionName="mine") == "ResourceNotFoundException"


def test_a_function_of_the_template_can_be_changed_only_in_the_template(endpoint: Running) -> None:
    """The API shows a function of the template, but refuses to update or delete it."""
    functions = client("lambda", endpoint.url)
    assert functions.get_function_configuration(FunctionName="echo")["Handler"] == "sample.echo"
    words = re.escape("echo is a function of serverless.yml: change it there")
    with pytest.raises(ClientError, match=words):
        functions.update_function_code(FunctionName="echo", ZipFile=zip_of(index=ADDS))
    with pytest.raises(ClientError, match=words):
        functions.delete_function(FunctionName="echo")


def test_a_created_function_survives_a_restart(tmp_path: Path) -> None:
    """After a restart a created function has its newest code; replaced code is deleted."""
    function = Function("adds", "index.handler", 3, 128, {"A": "b"})
    created = CreatedFunction(function, "python3.13", "role", "", "now")
    before = CreatedFunctions(tmp_path)
    before.put(created, zip_of(index="ONE = 1"))
    kept = before.put(created, zip_of(index="ONE = 2"))
    after = CreatedFunctions(tmp_path)
    assert (list(after), after.task_root(kept).joinpath("index.py").read_text()) == ([kept], "ONE = 2")
    assert len([one for one in (tmp_path / "adds").iterdir() if one.is_dir()]) == 1
    assert (after.delete("adds"), after.delete("adds"), list(CreatedFunctions(tmp_path))) == (True, False, [])


def test_a_zip_whose_contents_are_too_large_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zip is refused if its contents exceed Lambda's limit (lowered here), however small the zip itself is."""
    monkeypatch.setattr("local.functions.created_functions.MOST_BYTES", 1000)
    function = CreatedFunction(Function("large", "index.handler", 3, 128, {}), "python3.13", "role", "", "now")
    created = CreatedFunctions(tmp_path)
    created.put(function, zip_of(index="#" * 1000))
    with pytest.raises(BadPackage, match="must be smaller than 1000 bytes"):
        created.put(function, zip_of(index="#" * 1001))
    assert created.task_root(created.put(function, zip_of(index="#" * 1000))).is_dir()


@pytest.mark.parametrize(
    "template",
    [
        {"TemplateBody": '{"Resources": {"M": {"Type": "AWS::StepFunctions::StateMachine"}}}'},
        {"TemplateBody": '{"Resources": {"M": {"Type": "AWS\\u003a:StepFunctions::StateMachine"}}}'},
        {"TemplateBody": "Resources:\n  F:\n    Type: AWS::Lambda::Function\n"},
        {"TemplateURL": "https://s3.amazonaws.com/templates/one.json"},
        {"TemplateURL": "https://templates.s3.amazonaws.com/one.json"},
    ],
)
def test_a_stack_that_cannot_run_locally_is_refused(endpoint: Running, template: dict[str, str]) -> None:
    """A template with functions, machines or an API is refused with a sentence, and no stack is created."""
    stacks, buckets = client("cloudformation", endpoint.url), client("s3", endpoint.url)
    buckets.create_bucket(Bucket="templates")
    buckets.put_object(
        Bucket="templates", Key="one.json", Body=b'{"Resources": {"M": {"Type": "AWS::Serverless::Api"}}}'
    )
    with pytest.raises(ClientError, match="would not run") as refused:
        stacks.create_stack(StackName="machines", **template)
    assert refused.value.response["Error"]["Code"] == "ValidationError"
    assert stacks.list_stacks()["StackSummaries"] == []


def test_a_stack_of_supported_resources_is_created(endpoint: Running) -> None:
    """After a stack with a queue is created, the queue exists."""
    queue = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "of-a-stack"}}
    stacks = client("cloudformation", endpoint.url)
    stacks.create_stack(StackName="queues", TemplateBody=json.dumps({"Resources": {"Q": queue}}))
    queues = client("sqs", endpoint.url)
    assert until(lambda: any(url.endswith("/of-a-stack") for url in queues.list_queues().get("QueueUrls", [])))
    stacks.delete_stack(StackName="queues")


def test_an_error_of_the_query_protocol_is_xml(tmp_path: Path) -> None:
    """If the service behind the endpoint does not answer, a client of the query protocol gets 502 and an XML error."""

    async def silent() -> None:
        async with endpoint_of(tmp_path, MODULE, ("echo",), {}, "http://127.0.0.1:9") as running:
            stacks = client("cloudformation", running.url)
            with pytest.raises(ClientError, match="does not answer") as refused:
                await asyncio.to_thread(stacks.list_stacks)
            assert refused.value.response["Error"]["Code"] == "ServiceUnavailable"
            assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 502

    asyncio.run(silent())


@pytest.mark.long
def test_a_request_to_an_unsupported_service_is_refused_in_xml(endpoint: Running) -> None:
    """A service that the embedded AWS lacks is refused in XML, once the embedded AWS has imported all its services."""
    beans = client("elasticbeanstalk", endpoint.url)
    with pytest.raises(ClientError, match="Unsupported service: elasticbeanstalk") as unknown:
        beans.describe_applications()
    assert unknown.value.response["Error"]["Code"] == "ValidationError"


def test_a_call_beyond_the_reserved_concurrency_is_throttled_as_on_aws(endpoint: Running, states: Any) -> None:
    """A call beyond the reserved concurrency gets 429 with the exception's name and the reason; a Task gets the error
    name that a Retrier knows.
    """
    functions = client("lambda", endpoint.url)
    with pytest.raises(ClientError) as refusal:
        functions.invoke(FunctionName="full")
    assert refusal.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    error = refusal.value.response["Error"]
    assert (error["Code"], error["Message"]) == ("TooManyRequestsException", "Rate Exceeded.")
    assert refusal.value.response["Reason"] == "ReservedFunctionConcurrentInvocationLimitExceeded"
    description = wait_for_end(states, "full")
    assert (description["status"], description["error"]) == ("FAILED", "Lambda.TooManyRequestsException")
    assert description["cause"].startswith("Rate Exceeded. (Service: AWSLambda; Status Code: 429; ")


def test_a_function_answers_with_six_megabytes_at_most(endpoint: Running) -> None:
    """An answer over 6,291,556 bytes becomes the function's error; a request over the limit is refused."""
    functions = client("lambda", endpoint.url)
    whole = functions.invoke(FunctionName="large", Payload=json.dumps({"size": 6_291_554}))
    assert (len(whole["Payload"].read()), "FunctionError" in whole) == (6_291_556, False)
    cut = functions.invoke(FunctionName="large", Payload=json.dumps({"size": 6_291_555}))
    assert (cut["FunctionError"], json.loads(cut["Payload"].read())) == (
        "Unhandled",
        {
            "errorType": "Function.ResponseSizeTooLarge",
            "errorMessage": "Response payload size exceeded maximum allowed payload size (6291556 bytes).",
        },
    )
    for kind, size in (("RequestResponse", 6_291_456), ("Event", 1_048_576)):
        refused = refusal(functions.invoke, FunctionName="echo", InvocationType=kind, Payload=json.dumps("x" * size))
        assert refused == (
            "RequestTooLargeException",
            f"Request must be smaller than {size} bytes for the InvokeFunction operation",
        )

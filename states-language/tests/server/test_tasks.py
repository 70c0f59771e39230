"""Tasks as services perform them: by a token's holder, until the service stops, and in an SDK's words."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ParamValidationError
from moto import mock_aws
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from endpoint import client, handed_over, invoke, over, refusal, stepfunctions
from patience import until
from states_language import load
from states_language.clock import RealClock
from states_language.server import StepFunctions, TaskPerformer
from states_language.server.__main__ import Endpoints
from states_language.server.sdk import unusable
from states_language.server.serving import serving

TASK = {
    "Type": "Task",
    "Resource": "arn:aws:states:::dynamodb:getItem",
    "Parameters": {"TableName": "none", "Key": {"PK": {"S": "none"}}},
    "End": True,
}


def test_the_holder_of_a_token_ends_the_task(states: Any) -> None:
    """A function gets the token; SendTaskSuccess sets the result, once."""
    execution, token = handed_over(states, "token-success")
    states.send_task_heartbeat(taskToken=token)
    assert refusal(states.send_task_success, taskToken=token, output="{")[0] == "InvalidOutput"
    states.send_task_success(taskToken=token, output='{"done": true}')
    assert json.loads(over(states, execution)["output"]) == {"done": True}
    closed = ("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
    assert refusal(states.send_task_success, taskToken=token, output="{}") == closed
    assert refusal(states.send_task_heartbeat, taskToken=token) == closed
    assert refusal(states.send_task_failure, taskToken="none") == ("InvalidToken", "Invalid Token: 'Invalid token'")


@pytest.mark.parametrize("output", ["{}", "not JSON", '"' + "x" * 300_000 + '"'])
def test_a_bad_token_is_refused_whatever_the_output(states: Any, output: str) -> None:
    """SendTaskSuccess checks the token first."""
    refused = refusal(states.send_task_success, taskToken="none", output=output)
    assert refused == ("InvalidToken", "Invalid Token: 'Invalid token'")


def test_the_tokens_of_a_stopped_execution_are_closed(states: Any) -> None:
    """SendTaskSuccess is refused."""
    execution, token = handed_over(states, "token-stopped")
    states.stop_execution(executionArn=execution)
    assert until(lambda: refusal(states.send_task_success, taskToken=token, output="1")[0] == "TaskTimedOut")


def test_a_stop_at_any_moment_of_a_task_is_quiet(tmp_path: Path) -> None:
    """Before, during or after the call, or while it waits for a thread: no exception is unhandled."""
    machine = load({"StartAt": "Ask", "States": {"Ask": TASK}})
    problems: list[dict[str, Any]] = []

    async def stopped_after(turns: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, problem: problems.append(problem))
        clock = RealClock()
        performer = TaskPerformer(invoke, client, StepFunctions(tmp_path, clock))
        execution = machine.start({}, clock=clock, perform=performer.perform)
        for _ in range(turns):
            await asyncio.sleep(0)
        execution.stop()
        performer.close()
        for _ in range(3):
            await asyncio.sleep(0)

    for turns in range(6):
        asyncio.run(stopped_after(turns))
    assert problems == []


def test_an_item_reader_gets_the_bytes_of_an_object(tmp_path: Path) -> None:
    """The object is no text; a Task that asks for it gets a text."""
    ask = {"Resource": "arn:aws:states:::s3:getObject", "Parameters": {"Bucket": "bucket", "Key": "manifest.txt"}}
    config = {"InputType": "JSONL", "ManifestType": "ATHENA_DATA"}
    run = {"StartAt": "P", "States": {"P": {"Type": "Pass", "End": True}}}
    run["ProcessorConfig"] = {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}
    read = {"Type": "Map", "ItemReader": {**ask, "ReaderConfig": config}, "ItemProcessor": run, "End": True}
    machine = load({"StartAt": "Read", "States": {"Read": read}})

    def real(service: str) -> Any:
        return client(service, None)

    async def outputs() -> Any:
        clock = RealClock()
        performer = TaskPerformer(invoke, real, StepFunctions(tmp_path, clock))
        execution = machine.start({}, clock=clock, perform=performer.perform)
        await execution.wait()
        performer.close()
        return execution.output

    with mock_aws():
        bucket = real("s3")
        bucket.create_bucket(Bucket="bucket")
        bucket.put_object(Bucket="bucket", Key="manifest.txt", Body=b"s3://bucket/one.gz\n")
        bucket.put_object(Bucket="bucket", Key="one.gz", Body=gzip.compress(b"[1]\n[2]\n"))
        assert asyncio.run(outputs()) == [[1], [2]]


@pytest.mark.parametrize(
    ("answer", "error", "cause"),
    [
        (None, "Lambda.SdkClientException", "Could not connect to the endpoint URL"),
        ("TooManyRequestsException", "Lambda.TooManyRequestsException", "Status Code: 429"),
        ("", "Lambda.ResourceNotFoundException", "neither AWS_ENDPOINT_URL nor AWS_ENDPOINT_URL_LAMBDA is set"),
    ],
)
def test_a_function_whose_endpoint_refuses_can_be_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None, error: str, cause: str
) -> None:
    """Nobody listens there, or Lambda throttles; if no endpoint is named, the cause says so."""

    async def refuse(_request: Request) -> Response:
        return JSONResponse({"message": "Rate Exceeded."}, 429, {"x-amzn-errortype": str(answer)})

    async def failed() -> tuple[str | None, str | None]:
        app = Starlette(routes=[Route("/{_:path}", refuse, methods=["POST"])])
        async with serving(app) as address, stepfunctions(tmp_path) as states:
            url = {None: "http://127.0.0.1:9", "": ""}.get(answer, address)
            monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", url)
            monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
            endpoints = Endpoints()
            performer = TaskPerformer(endpoints.invoke, endpoints.client, states)
            task = {"Type": "Task", "Resource": "arn:aws:lambda:us-east-1:000000000000:function:f", "End": True}
            machine = load({"StartAt": "S", "States": {"S": task}})
            execution = await machine.start({}, clock=RealClock(), perform=performer.perform).wait()
            performer.close()
            return execution.error, execution.cause

    found = asyncio.run(failed())
    assert (found[0], cause in str(found[1])) == (error, True), found


def test_bad_parameters_are_named_by_field() -> None:
    report = (
        'Missing required parameter in input: "Key"\n'
        'Unknown parameter in input: "Keyy", must be one of: TableName, Key\n'
        "Invalid length for parameter TableName, value: 0, valid min length: 1"
    )
    assert unusable({"Keyy": 1}, str(ParamValidationError(report=report))) == (
        """The Parameters '{"Keyy":1}' could not be used to start the Task: """
        """[The field 'Key' is required but was missing, The field "Keyy" is not supported by Step Functions, """
        "Invalid length for parameter TableName, value: 0, valid min length: 1]"
    )

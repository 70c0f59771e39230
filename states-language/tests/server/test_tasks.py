"""Tasks that services perform: token holders, stops, hanging services, and the errors of an SDK."""

import asyncio
import gzip
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ParamValidationError
from botocore.stub import Stubber
from moto import mock_aws

from endpoint import await_end, client, invoke, refusal, start_waiting_for_token
from patience import PATIENCE, until
from states_language import TaskCall, TaskFailure, load
from states_language.clock import RealClock
from states_language.server import StepFunctions, TaskPerformer
from states_language.server.__main__ import Endpoints, FunctionAnswer
from states_language.server.http_task import by_name
from states_language.server.sdk import cause_of_unusable

TASK = {
    "Type": "Task",
    "Resource": "arn:aws:states:::dynamodb:getItem",
    "Parameters": {"TableName": "none", "Key": {"PK": {"S": "none"}}},
    "End": True,
}


def test_the_holder_of_a_token_ends_the_task(states: Any) -> None:
    """SendTaskSuccess with the function's token sets the result, once. The token is checked before the output."""
    execution, token = start_waiting_for_token(states, "token-success")
    states.send_task_heartbeat(taskToken=token)
    assert refusal(states.send_task_success, taskToken=token, output="{")[0] == "InvalidOutput"
    states.send_task_success(taskToken=token, output='{"done": true}')
    assert json.loads(await_end(states, execution)["output"]) == {"done": True}
    closed = ("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
    assert refusal(states.send_task_success, taskToken=token, output="{}") == closed
    assert refusal(states.send_task_heartbeat, taskToken=token) == closed
    unknown = ("InvalidToken", "Invalid Token: 'Invalid token'")
    assert refusal(states.send_task_failure, taskToken="none") == unknown
    for output in ("{}", "not JSON", '"' + "x" * 300_000 + '"'):
        assert refusal(states.send_task_success, taskToken="none", output=output) == unknown


def test_the_tokens_of_a_stopped_execution_are_closed(states: Any) -> None:
    """After a stop, SendTaskSuccess is refused with TaskTimedOut."""
    execution, token = start_waiting_for_token(states, "token-stopped")
    states.stop_execution(executionArn=execution)
    assert until(lambda: refusal(states.send_task_success, taskToken=token, output="1")[0] == "TaskTimedOut")


def test_a_stop_at_any_moment_of_a_task_is_quiet(tmp_path: Path) -> None:
    """A stop before, during or after the call leaves no unhandled exception, also while a call waits for a thread."""
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


def test_a_hanging_service_delays_no_task_of_another(tmp_path: Path) -> None:
    """While eight requests to one service hang, another service answers. A service that AWS does not have fails.

    Each connection of http:invoke counts as a service.
    """
    free, silent = threading.Event(), socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{silent.getsockname()[1]}"
    basic = {"AuthorizationType": "BASIC", "AuthParameters": {"BasicAuthParameters": {"Username": "", "Password": ""}}}

    def hanging(service: str) -> Any:
        if service == "sqs":
            free.wait(PATIENCE)
        return client(service)

    async def asked() -> None:
        connections = by_name({"A": basic, "B": basic})
        performer = TaskPerformer(invoke, hanging, StepFunctions(tmp_path, RealClock()), connections)

        def ask(service: str, action: str, **given: Any) -> "asyncio.Task[Any]":
            arn = "arn:aws:states:us-east-1:000000000000:x"
            call = TaskCall("", service, action, service != "http", None, given, {}, arn, "S", 0, None)
            return asyncio.create_task(performer.perform(call))

        def ask_api(connection: str, address: str) -> "asyncio.Task[Any]":
            by = {"InvocationConfig": {"ConnectionArn": connection}}
            return ask("http", "invoke", ApiEndpoint=address, Method="GET", **by)

        waiting = [ask("sqs", "listQueues") for _ in range(8)] + [ask_api("A", url) for _ in range(8)]
        with pytest.raises(TaskFailure, match="no answer of the endpoint"):
            await ask_api("B", "http://127.0.0.1:9")
        with pytest.raises(TaskFailure, match="Connection not found: C"):
            await ask_api("C", url)
        with pytest.raises(TaskFailure, match="Could not connect"):
            await ask("dynamodb", "listTables")
        assert not any(each.done() for each in waiting)
        with pytest.raises(TaskFailure, match="There is no AWS service 'none'"):
            await ask("none", "list")
        free.set()
        silent.close()
        performer.close()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(asked())


def test_an_item_reader_gets_the_bytes_of_an_object(tmp_path: Path) -> None:
    """An ItemReader gets an object's bytes, such as gzip, and a Task a text. A ResultWriter writes to the bucket."""
    ask = {"Resource": "arn:aws:states:::s3:getObject", "Parameters": {"Bucket": "bucket", "Key": "manifest.txt"}}
    config = {"InputType": "JSONL", "ManifestType": "ATHENA_DATA"}
    run = {"StartAt": "P", "States": {"P": {"Type": "Pass", "End": True}}}
    run["ProcessorConfig"] = {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}
    read = {"Type": "Map", "ItemReader": {**ask, "ReaderConfig": config}, "ItemProcessor": run}
    write = {"Resource": "arn:aws:states:::s3:putObject", "Parameters": {"Bucket": "bucket"}}
    compact = {**write, "WriterConfig": {"Transformation": "COMPACT"}}
    machine = load({"StartAt": "Read", "States": {"Read": {**read, "ResultWriter": compact, "End": True}}})

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
        manifest = bucket.get_object(**asyncio.run(outputs())["ResultWriterDetails"])["Body"].read()
        (written,) = json.loads(manifest)["ResultFiles"]["SUCCEEDED"]
        assert bucket.get_object(Bucket="bucket", Key=written["Key"])["Body"].read() == b"[[1],[2]]"


def test_a_function_fails_with_an_error_name_for_each_answer_of_its_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No endpoint, no connection, throttling and invalid JSON each have an error name that a Retrier can match."""
    call = TaskCall("", "lambda", "invoke", False, "f", {}, {}, "arn:aws:states:us-east-1:000000000000:x", "S", 0, None)

    async def odd(*_: Any) -> FunctionAnswer:
        return FunctionAnswer(b"NaN", None)

    def failure(invoke: Any = None) -> str:
        endpoints = Endpoints()
        performer = TaskPerformer(invoke or endpoints.invoke, endpoints.client, StepFunctions(tmp_path, RealClock()))
        with pytest.raises(TaskFailure) as failed:
            asyncio.run(performer.perform(call))
        return str(failed.value)

    assert failure(odd) == "Lambda.Unknown: The function's answer is not valid JSON: NaN is not a valid JSON number"
    assert "Lambda.ResourceNotFoundException: --functions does not name the call, and" in failure()
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert "Lambda.SdkClientException: Could not connect to the endpoint URL" in failure()
    with Stubber(lambdas := client("lambda")) as answers:
        answers.add_client_error("invoke", "TooManyRequestsException", "Rate Exceeded.", 429)
        monkeypatch.setattr(Endpoints, "client", lambda *_: lambdas)
        assert "Lambda.TooManyRequestsException: Rate Exceeded. (Service: AWSLambda; Status Code: 429" in failure()


def test_bad_parameters_are_named_by_field() -> None:
    report = (
        'Missing required parameter in input: "Key"\n'
        'Unknown parameter in input: "Keyy", must be one of: TableName, Key\n'
        "Invalid length for parameter TableName, value: 0, valid min length: 1"
    )
    assert cause_of_unusable({"Keyy": 1}, str(ParamValidationError(report=report))) == (
        """The Parameters '{"Keyy":1}' could not be used to start the Task: """
        """[The field 'Key' is required but was missing, The field "Keyy" is not supported by Step Functions, """
        "Invalid length for parameter TableName, value: 0, valid min length: 1]"
    )

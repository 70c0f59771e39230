"""Step Functions' API for tests: the server on a socket, a function that runs here, and a client."""

import contextlib
import functools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session

from patience import until
from states_language.clock import RealClock
from states_language.server import StepFunctions, TaskPerformer, UnknownFunction, application, loaded_stack
from states_language.server.__main__ import FunctionAnswer
from states_language.server.stack import DeployedMachine
from states_language.server.threaded import serve_application

PREFIX = "arn:aws:states:us-east-1:000000000000:stateMachine:"
ROLE = "arn:aws:iam::000000000000:role/any"
PASS: dict[str, Any] = {"StartAt": "S", "States": {"S": {"Type": "Pass", "End": True}}}
WAIT: dict[str, Any] = {"StartAt": "S", "States": {"S": {"Type": "Wait", "Seconds": 600, "End": True}}}
SEND = "arn:aws:states:::lambda:invoke.waitForTaskToken"
TOKEN_PARAMETERS = {"FunctionName": "echo", "Payload": {"token.$": "$$.Task.Token"}}


async def invoke(name: str, payload: bytes) -> FunctionAnswer:
    """Return `echo`'s event as the member `event`; no other function exists."""
    if name.rpartition(":")[2] != "echo":
        raise UnknownFunction(name)
    return FunctionAnswer(b'{"event":' + payload + b"}", None)


@functools.cache
def session() -> Session:
    """Return one session for all clients, so that botocore reads its models once."""
    return Session()


def client(service: str, url: str | None = "http://127.0.0.1:9") -> Any:
    """Return a botocore client of an endpoint. None is AWS; the default endpoint refuses connections."""
    return session().create_client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=120, inject_host_prefix=False),
    )


def host_machines(*machines: tuple[str, dict[str, Any]]) -> Any:
    """Return a host's machines in the form that StepFunctions accepts."""
    stack = (DeployedMachine(name, PREFIX + name, json.dumps(definition), "STANDARD") for name, definition in machines)
    return loaded_stack(stack)


@contextlib.asynccontextmanager
async def stepfunctions(
    folder: Path, *machines: tuple[str, dict[str, Any]], perform: Any = None, **options: Any
) -> AsyncIterator[StepFunctions]:
    """Return Step Functions without HTTP, with its state in `folder`; `perform` replaces `invoke`."""
    states = StepFunctions(folder, RealClock(), host_machines(*machines), **options)
    tasks = TaskPerformer(invoke, client, states)
    states.executions.perform = perform or tasks.perform
    try:
        yield states
    finally:
        states.executions.close()
        states.close()
        tasks.close()
        await states.executions.evaluators.wait_closed()


@contextlib.asynccontextmanager
async def service(folder: Path) -> AsyncIterator[str]:
    """Yield the address of a server with its state in `folder`; its host deploys one machine, `deployed`."""
    async with stepfunctions(folder, ("deployed", PASS)) as states:
        states.executions.restore()
        async with serve_application(application(states)) as address:
            try:
                yield address
            finally:
                # Close these before serving ends, which would give waiting requests another second.
                states.executions.close()
                states.close()


def states_client(url: str) -> Any:
    """Return a botocore client that sends every action to this host, StartSyncExecution and TestState too."""
    return client("stepfunctions", url)


def refusal(call: Callable[..., Any], **parameters: Any) -> tuple[str, str]:
    """Return the error's code and message of a refused call."""
    with pytest.raises(ClientError) as refused:
        call(**parameters)
    error = refused.value.response["Error"]
    return error["Code"], error["Message"]


def create_machine(states: Any, name: str, definition: Any = PASS, **more: Any) -> str:
    """Return the ARN of a new machine."""
    answer = states.create_state_machine(name=name, definition=json.dumps(definition), roleArn=ROLE, **more)
    return str(answer["stateMachineArn"])


def await_end(states: Any, execution_arn: str) -> dict[str, Any]:
    """Return the description of the execution once it has ended."""
    description: dict[str, Any] = {}

    def has_ended() -> bool:
        description.update(states.describe_execution(executionArn=execution_arn))
        return bool(description["status"] != "RUNNING")

    assert until(has_ended)
    return description


def run_to_end(states: Any, machine_arn: str, **request: Any) -> dict[str, Any]:
    """Start an execution and return its description once it has ended."""
    return await_end(states, states.start_execution(stateMachineArn=machine_arn, **request)["executionArn"])


def line_of(**states: dict[str, Any]) -> dict[str, Any]:
    """Return the states as a line that starts at the first."""
    return {"StartAt": next(iter(states)), "States": states}


def distributed_map(kind: str = "STANDARD", at_once: int = 0, **inner: dict[str, Any]) -> dict[str, Any]:
    """Return a distributed Map whose items run these states."""
    config = {"ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": kind}}
    return {"Type": "Map", "MaxConcurrency": at_once, "ItemProcessor": {**config, **line_of(**inner)}, "End": True}


def task_definition(resource: str, parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the definition of a machine of one Task."""
    return {"StartAt": "S", "States": {"S": {"Type": "Task", "Resource": resource, "Parameters": parameters, **more}}}


def start_waiting_for_token(states: Any, name: str, **more: Any) -> tuple[str, str]:
    """Return the ARN of an execution that waits for a token, and that token."""
    arn = create_machine(states, name, task_definition(SEND, TOKEN_PARAMETERS, End=True, **more))
    execution = states.start_execution(stateMachineArn=arn)["executionArn"]

    def submitted() -> str:
        events = states.get_execution_history(executionArn=execution)["events"]
        outputs = [one["taskSubmittedEventDetails"]["output"] for one in events if one["type"] == "TaskSubmitted"]
        return str(json.loads(outputs[0])["Payload"]["event"]["token"]) if outputs else ""

    return execution, until(submitted)

"""An AWS endpoint for tests of its API: the real one on a socket, with the functions and machines of a test."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session

from local.aws_endpoints import Endpoints
from local.functions.function_pool import Pool
from local.listener import Listener, bind
from local.service.aws_server import AwsServer
from local.stack import Function, StateMachine
from states_language import Machine, load
from states_language.clock import RealClock
from states_language.server import Executions, StepFunctions, TaskPerformer
from tests.local.support import until

PREFIX = "arn:aws:states:us-east-1:000000000000:stateMachine:"
ROLE = "arn:aws:iam::000000000000:role/any"
PASS: dict[str, Any] = {"StartAt": "S", "States": {"S": {"Type": "Pass", "End": True}}}
WAIT: dict[str, Any] = {"StartAt": "S", "States": {"S": {"Type": "Wait", "Seconds": 600, "End": True}}}
MODULE = """
def echo(event, lambda_context):
    return {"event": event}

def large(event, lambda_context):
    return "x" * event["size"]
"""


@dataclass(frozen=True)
class Running:
    """The endpoint under test and the executions that it keeps."""

    url: str
    executions: Executions


def deployed(name: str, definition: dict[str, Any]) -> dict[str, tuple[StateMachine, Machine]]:
    """A machine of the stack by its ARN, as `Machines` takes them."""
    return {PREFIX + name: (StateMachine(name, PREFIX + name, json.dumps(definition)), load(definition))}


@contextlib.asynccontextmanager
async def endpoint_of(
    folder: Path,
    module: str,
    functions: tuple[str, ...],
    machines: dict[str, tuple[StateMachine, Machine]],
    engine_url: str = "http://127.0.0.1:9",
) -> AsyncIterator[Running]:
    """An endpoint that keeps its state in `folder`; `module` has the functions, the embedded AWS answers the rest."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sample.py").write_text(module)
    clock, endpoints = RealClock(), Endpoints({}, engine_url)
    specs = [Function(name, f"sample.{name}", 5, 128, {}) for name in functions]
    specs.append(Function("full", f"sample.{functions[0]}", 5, 128, {}, reserved_concurrency=0))
    pool = Pool(specs, {}, folder, folder / "logs")
    states = StepFunctions(folder, clock, machines)
    executions = states.executions
    executions.restore()
    integrations = TaskPerformer(pool.invoke, endpoints.client, states)
    executions.perform = integrations.perform
    endpoint = AwsServer(states, pool, endpoints)
    listener = Listener(endpoint.app, bind(0, "a test"))
    await listener.start()
    try:
        yield Running(f"http://127.0.0.1:{listener.port}", executions)
    finally:
        executions.close()
        await pool.close()
        endpoint.close()
        integrations.close()
        await listener.close()


@contextlib.asynccontextmanager
async def service(folder: Path) -> AsyncIterator[str]:
    """The address of an endpoint with no other service behind it; its stack has one machine, `deployed`."""
    async with endpoint_of(folder, MODULE, ("echo", "large"), deployed("deployed", PASS)) as running:
        yield running.url


def states_client(url: str) -> Any:
    """A botocore client; StartSyncExecution and TestState go to the same host as everything else."""
    return Session().create_client(
        "stepfunctions",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=120, inject_host_prefix=False),
    )


def refusal(call: Callable[..., Any], **parameters: Any) -> tuple[str, str]:
    """The code and the message with which the call is refused."""
    with pytest.raises(ClientError) as refused:
        call(**parameters)
    error = refused.value.response["Error"]
    return error["Code"], error["Message"]


def created(states: Any, name: str, definition: Any = PASS, **more: Any) -> str:
    """The ARN of a new machine."""
    answer = states.create_state_machine(name=name, definition=json.dumps(definition), roleArn=ROLE, **more)
    return str(answer["stateMachineArn"])


def over(states: Any, execution_arn: str) -> dict[str, Any]:
    """The description of an execution that has ended."""
    description: dict[str, Any] = {}

    def look() -> bool:
        description.update(states.describe_execution(executionArn=execution_arn))
        return bool(description["status"] != "RUNNING")

    assert until(look)
    return description


def task(resource: str, parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The definition of a machine of one Task."""
    return {"StartAt": "S", "States": {"S": {"Type": "Task", "Resource": resource, "Parameters": parameters, **more}}}


SEND = "arn:aws:states:::lambda:invoke.waitForTaskToken"
HANDED = {"FunctionName": "echo", "Payload": {"token.$": "$$.Task.Token"}}


def handed_over(states: Any, name: str, **more: Any) -> tuple[str, str]:
    """The ARN of an execution that waits for a token, and the token."""
    arn = created(states, name, task(SEND, HANDED, End=True, **more))
    execution = states.start_execution(stateMachineArn=arn)["executionArn"]

    def submitted() -> str:
        events = states.get_execution_history(executionArn=execution)["events"]
        outputs = [one["taskSubmittedEventDetails"]["output"] for one in events if one["type"] == "TaskSubmitted"]
        return str(json.loads(outputs[0])["Payload"]["event"]["token"]) if outputs else ""

    return execution, until(submitted)

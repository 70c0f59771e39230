"""An AWS endpoint for tests of its API: the real one on a socket, with the functions and machines of a test."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endpoint import PREFIX
from local.aws_endpoints import Endpoints
from local.functions.function_pool import FunctionPool
from local.listener import Listener, bind
from local.service.aws_server import AwsServer
from local.stack import Function, StateMachine
from states_language import Machine, load
from states_language.clock import RealClock
from states_language.server import Executions, StepFunctions, TaskPerformer


@dataclass(frozen=True)
class Running:
    """The endpoint under test and the executions that it keeps."""

    url: str
    executions: Executions


def machine_by_arn(name: str, definition: dict[str, Any]) -> dict[str, tuple[StateMachine, Machine]]:
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
    pool = FunctionPool(specs, {}, folder, folder / "logs")
    states = StepFunctions(folder, clock, machines)
    executions = states.executions
    executions.restore()
    integrations = TaskPerformer(pool.invoke, endpoints.client, states)
    executions.perform = integrations.perform
    endpoint = AwsServer(states, pool, endpoints, lambda _: True)
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

"""A pytest plugin that puts this interpreter in the place of moto's, to run moto's own tests on it.

    PYTHONPATH=.../tests/suites pytest -p moto_adapter tests/test_stepfunctions/parser    # in moto's checkout or sdist

moto keeps its API, its machines and its other services. This module has what it calls on an ExecutionWorker.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import boto3
from moto.stepfunctions.parser import models
from moto.stepfunctions.parser.api import InvalidDefinition
from moto.stepfunctions.parser.asl.eval.callback.callback import CallbackConsumerTimeout, CallbackOutcomeSuccess
from moto.stepfunctions.parser.asl.eval.program_state import ProgramEnded, ProgramError, ProgramStopped, ProgramTimedOut
from moto.stepfunctions.parser.backend import execution as backend

from states_language import DefinitionError, Execution, RealClock, TokenClosed, TokenUnknown, load
from states_language.distributed.report import MapRunReport
from states_language.server import StepFunctions, TaskPerformer
from states_language.server.__main__ import FunctionAnswer
from states_language.server.map_runs import describe_map_runs


class Worker:
    """Runs one execution in moto's place: its worker, and the environment that moto reads the result from."""

    def __init__(self, evaluation_details: Any, exec_comm: Any, **_: Any) -> None:
        self._details, self._done = evaluation_details, exec_comm
        self._region = evaluation_details.aws_execution_details.region
        self._ready = threading.Event()
        self.states, self.event_manager = SimpleNamespace(), SimpleNamespace()
        self.states.get_input = lambda: self._execution.output
        self.event_manager.get_event_history = lambda: [
            {**event, "timestamp": datetime.fromtimestamp(event["timestamp"] / 1000, UTC)}
            for event in list(self._execution.history)
        ]
        self.callback_pool_manager = SimpleNamespace(heartbeat=self._heartbeat, notify=self._notify)
        self.map_run_record_pool_manager = SimpleNamespace(get=self._map_run, get_all=self._map_runs)

    @property
    def env(self) -> "Worker":
        """Return this worker once its execution has begun."""
        self._ready.wait()
        return self

    def start(self) -> None:
        threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True).start()

    def stop(self, error: str | None, cause: str | None, **_: Any) -> None:
        """Abort the execution."""
        self._call_in_loop(lambda: self._execution.stop(error, cause))

    def program_state(self) -> Any:
        """Return the execution's result in moto's types."""
        ended = self._execution
        if ended.status == "FAILED":
            return ProgramError({"error": ended.error, "cause": ended.cause})
        if ended.status == "ABORTED":
            return ProgramStopped(datetime.now(UTC), ended.error, ended.cause)
        return ProgramEnded() if ended.status == "SUCCEEDED" else ProgramTimedOut()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        execution, machine = self._details.execution_details, self._details.state_machine_details
        with TemporaryDirectory() as folder:
            service = StepFunctions(Path(folder), RealClock())
            tasks = TaskPerformer(self._invoke, lambda name: boto3.client(name, self._region), service)
            self._tokens = service.tokens
            self._execution: Execution = load(json.loads(machine.definition), deployed=True).start(
                execution.inpt, clock=RealClock(), perform=tasks.perform, arn=execution.arn,
                name=execution.name or execution.arn.rpartition(":")[2], machine_arn=machine.arn,
                machine_name=machine.name, role_arn=execution.role_arn,
            )  # fmt: skip
            self._ready.set()
            await self._execution.wait()
            self._done.terminated()
            tasks.close()
            service.close()

    async def _invoke(self, name: str, payload: bytes) -> FunctionAnswer:
        client = boto3.client("lambda", self._region)
        answer = await asyncio.to_thread(client.invoke, FunctionName=name, Payload=payload)
        return FunctionAnswer(answer["Payload"].read(), answer.get("FunctionError"))

    def _heartbeat(self, callback_id: str) -> bool:
        return self._answer_token(lambda: self._tokens.heartbeat(callback_id))

    def _notify(self, callback_id: str, outcome: Any) -> bool:
        if isinstance(outcome, CallbackOutcomeSuccess):
            return self._answer_token(lambda: self._tokens.succeed(callback_id, json.loads(outcome.output)))
        return self._answer_token(lambda: self._tokens.fail(callback_id, outcome.error, outcome.cause))

    def _answer_token(self, call: Callable[[], object]) -> bool:
        try:
            self._call_in_loop(call)
        except TokenUnknown:
            return False
        except TokenClosed:
            raise CallbackConsumerTimeout from None
        return True

    def _map_runs(self) -> list[Any]:
        """Return the Map Runs in the form that moto reads."""
        pairs = zip(self._execution.map_runs, describe_map_runs(self._execution), strict=True)
        return [MapRun(run, _with_dates(one)) for run, one in pairs]

    def _map_run(self, arn: str) -> Any:
        return next((run for run in self._map_runs() if run.arn == arn), None)

    def _call_in_loop(self, call: Callable[[], object]) -> None:
        """Call in the loop's thread and wait for the end of the call."""
        self._ready.wait()

        async def called() -> None:
            call()

        asyncio.run_coroutine_threadsafe(called(), self._loop).result()


@dataclass
class MapRun:
    """A Map Run in the form that moto reads."""

    report: MapRunReport
    described: dict[str, Any]

    @property
    def arn(self) -> str:
        return self.report.arn

    def describe(self) -> dict[str, Any]:
        """Return DescribeMapRun's answer, which has the members of ListMapRuns too."""
        return self.described

    list_item = describe

    def update(self, **bounds: Any) -> None:
        self.report.update(*map(bounds.get, UPDATED))


class SyncWorker(Worker):
    """Runs an Express execution to its end before StartSyncExecution returns."""

    def start(self) -> None:
        asyncio.run(self._run())


DATES = ("startDate", "stopDate")
UPDATED = ("max_concurrency", "tolerated_failure_count", "tolerated_failure_percentage")


def _with_dates(run: dict[str, Any]) -> dict[str, Any]:
    return {name: datetime.fromtimestamp(one / 1000, UTC) if name in DATES else one for name, one in run.items()}


def _check(definition: str) -> None:
    try:
        load(json.loads(definition), deployed=True)
    except (ValueError, DefinitionError) as problem:
        raise InvalidDefinition(message=f"Invalid State Machine Definition: '{problem}'") from None


@contextmanager
def swap_interpreter() -> Iterator[None]:
    """Have moto execute machines by this interpreter within the context."""
    places: list[tuple[Any, str, Any]] = [
        (backend, "ExecutionWorker", Worker),
        (backend, "SyncExecutionWorker", SyncWorker),
        (models.StepFunctionsParserBackend, "_validate_definition", staticmethod(_check)),
    ]
    former = [(place, name, vars(place)[name]) for place, name, _ in places]
    for place, name, ours in places:
        setattr(place, name, ours)
    try:
        yield
    finally:
        for place, name, theirs in former:
            setattr(place, name, theirs)


_SWAPPED = swap_interpreter()


def pytest_configure() -> None:
    """Replace moto's interpreter for a whole run."""
    _SWAPPED.__enter__()


def pytest_unconfigure() -> None:
    """Restore moto's interpreter."""
    _SWAPPED.__exit__(None, None, None)

"""Answers requests of the Step Functions API, JSON 1.0, as boto3 and the AWS command line send them.

Invariant: an unknown action or a bad request gets an error that the SDK raises by AWS's name, never a 500.
"""

import asyncio
import contextlib
import gc
import inspect
import json
import re
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from states_language import Machine, Tokens
from states_language.clock import Clock
from states_language.scheduling.lanes import SHORT, take_turn_for_json
from states_language.server import requests
from states_language.server.activities import Activities
from states_language.server.activity_actions import ActivityActions
from states_language.server.definition_reader import DefinitionReader
from states_language.server.diagnostics import examine, is_examined
from states_language.server.execution_actions import ExecutionActions, ExpressExecutions
from states_language.server.executions import Executions
from states_language.server.journals import Journals
from states_language.server.known_executions import KnownExecution, Retention
from states_language.server.machine_actions import MachineActions
from states_language.server.machines import Machines, StateMachine
from states_language.server.map_run_actions import MapRunActions
from states_language.server.state_test_action import StateTestAction
from states_language.server.version_actions import VersionActions

_ACTIONS_WITH_DEFINITION = ("CreateStateMachine", "UpdateStateMachine", "ValidateStateMachineDefinition", "TestState")
# Source: "Authorization header", AWS Signature Version 4.
_SIGNED_FOR = re.compile(r"Credential=[^/,]+/\d+/([a-z0-9-]+)/")
_MEDIA_TYPE = "application/x-amz-json-1.0"
_POLL_ACTION = "GetActivityTask"
LARGEST_REQUEST_BYTES = 16 * 1024 * 1024
"""The bytes of a request: more than a definition and an input of the largest size take, each character escaped."""
_LITTLE_S, _LEFT = 0.1, 125
"""At most so many CPU seconds in a second are rest; after so many collections of the young, the old are collected."""


def settle() -> None:
    """Prepares a process that only serves: it changes settings of all threads.

    It loads the modules that the first request would wait for. The garbage collector never searches the present objects
    again.
    """
    requests.api_model()
    requests.arn_prefix({})
    # Otherwise each full collection walks through all modules, some 30 ms in which no request is answered.
    gc.collect()
    gc.freeze()
    gc.enable()
    # The event loop waits at most this long for a thread that reads definitions.
    sys.setswitchinterval(0.001)
    # JSON has no cycles, so old objects are collected while no request waits, and young ones for some milliseconds
    # at a time.
    gc.set_threshold(2_000, 3, 10_000)
    _collect_at_rest(time.process_time())


def _collect_at_rest(spent_s: float) -> None:
    """Collects old garbage after a second of little work, if collections of young objects have left enough."""
    now_s = time.process_time()
    if now_s - spent_s < _LITTLE_S and gc.get_count()[2] >= _LEFT:
        gc.collect()
    asyncio.get_running_loop().call_later(1, _collect_at_rest, now_s)


class StepFunctions:
    """Answers Step Functions requests, and keeps its state in `folder`.

    deployed: the host's machines, as `loaded_stack` returns them. on_change: called at each start and end of an
    execution. retention: which executions are kept after their end. virtual_time: whether Waits take no time.
    `executions` holds all known ones, and the host sets its `perform`; `tokens` holds the tokens of Tasks that wait,
    `activities` the work for workers.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        deployed: Mapping[str, tuple[StateMachine, Machine]] | None = None,
        on_change: Callable[[KnownExecution], None] = lambda _: None,
        retention: Retention | None = None,
        virtual_time: bool = False,
    ) -> None:
        machines = Machines(folder / "machines", deployed or {}, clock.now_ms())
        executions = self.executions = Executions(
            machines, Journals(folder / "executions"), clock, on_change, retention, virtual_time
        )
        activities = self.activities = Activities(folder / "activities.json")
        self.tokens = Tokens()
        self._express = ExpressExecutions(executions)
        self._reader = DefinitionReader()
        self._actions: dict[str, requests.Action] = {
            **ExecutionActions(executions, self._express).actions(),
            **MachineActions(machines, executions, activities).actions(),
            **VersionActions(machines).actions(),
            **ActivityActions(activities, self.tokens).actions(),
            **MapRunActions(executions).actions(),
            **StateTestAction(executions, clock, self._reader).actions(),
        }

    async def answer(self, action: str, body: bytes, region: str = requests.REGION) -> Response:
        """Returns the HTTP answer to a request that is signed for a region; nothing in a request makes it raise.

        Others have turns while it reads a long request, or stops an execution.
        """
        answering = self._answer(action, body, region)
        if len(body) <= SHORT and action != "StopExecution":
            return await answering
        return await asyncio.get_running_loop().create_task(self.executions.lanes.run(answering))

    async def _answer(self, action: str, body: bytes, region: str) -> Response:
        try:
            try:
                take_turn_for_json(body)
                request = requests.parse_request(body or b"{}")
            except ValueError:
                raise requests.Refusal("SerializationException", "The request is not valid JSON.") from None
            if not isinstance(request, dict):
                raise requests.Refusal("SerializationException", "The request is not a JSON object.")
            return _json_response(200, await self.call(action, request, region))
        except requests.Refusal as refusal:
            return _json_response(400, _error_body(refusal.code, str(refusal)))

    async def call(self, action: str, request: dict[str, Any], region: str = requests.REGION) -> dict[str, Any]:
        """Returns an action's answer, times as epoch seconds; raises Refusal."""
        if action not in self._actions:
            raise requests.Refusal("UnknownOperationException", f"The local service does not offer {action}.")
        requests.check_request(action, request)
        arguments = {name: value for name, value in request.items() if value is not None}
        for definition in self._definitions_needed(action, arguments):
            if not is_examined(definition):
                # Reading a large definition, or a long expression, takes seconds; afterwards it is remembered.
                await self._reader.run_in_thread(len(definition), examine, definition)
        answer = self._actions[action](arguments | {requests.REGION_MEMBER: region})
        return requests.complete_answer(action, arguments, await answer if inspect.isawaitable(answer) else answer)

    def _definitions_needed(self, action: str, arguments: dict[str, Any]) -> list[str]:
        """Returns the definitions whose machines an action needs."""
        if action in _ACTIONS_WITH_DEFINITION:
            return [arguments["definition"]] if isinstance(arguments.get("definition"), str) else []
        if isinstance(arn := arguments.get("stateMachineArn"), str):
            return self.executions.machines.definitions_to_load(arn)
        with contextlib.suppress(requests.Refusal):
            if action == "RedriveExecution":
                return [self.executions.get(arguments["executionArn"]).opening.definition]
        return []

    def deploy(self, machines: Mapping[str, tuple[StateMachine, Machine]]) -> list[str]:
        """Takes the host's machines as they are now, and returns the names of those that changed."""
        now_ms = self.executions.now_ms()
        kept = self.executions.machines
        return [one.name for one, machine in machines.values() if kept.deploy(one, machine, now_ms)]

    def close(self) -> None:
        """Ends the Express executions that run, and answers the workers that wait."""
        self._express.close()
        self._reader.close()
        self.activities.close()


def application(states: StepFunctions) -> Starlette:
    """Returns the ASGI application that answers every request with Step Functions."""

    async def answer(request: Request) -> Response:
        target = request.headers.get("x-amz-target", "").removeprefix("AWSStepFunctions.")
        signed = _SIGNED_FOR.search(request.headers.get("authorization", ""))
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > LARGEST_REQUEST_BYTES:
                    return _json_response(
                        413,
                        _error_body(
                            "RequestEntityTooLargeException", f"It is longer than {LARGEST_REQUEST_BYTES} bytes."
                        ),
                    )
        except ClientDisconnect:
            return _json_response(400, {})  # Half a request is none, and nobody reads the answer.
        answering = states.answer(target, bytes(body), signed[1] if signed else requests.REGION)
        return await (_answer_unless_disconnected(request, answering) if target == _POLL_ACTION else answering)

    return Starlette(routes=[Route("/", answer, methods=["POST"])])


async def _answer_unless_disconnected(request: Request, answering: Coroutine[Any, Any, Response]) -> Response:
    """Return the answer to a worker. A worker that disconnects first gets no work, because the work would be lost."""
    answer, gone = asyncio.ensure_future(answering), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else _json_response(400, {})
    finally:
        answer.cancel()
        gone.cancel()


def _error_body(code: str, message: str) -> dict[str, str]:
    return {"__type": f"com.amazonaws.states#{code}", "message": message}


def _json_response(status: int, value: dict[str, Any]) -> Response:
    return Response(json.dumps(value, separators=(",", ":")), status, media_type=_MEDIA_TYPE)
